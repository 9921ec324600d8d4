"""An active party that only looks trains on nearly the same people: differences are of the few."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.cli.templates import party_toml
from fedmq.errors import DaemonError, Refused
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.group_sums import check_new
from fedmq.party.store.answered_people import GroupQuestions
from fedmq.protocol.session_records import hashed_ids
from tests.cli.command import fedmq
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

PEOPLE = 600
AS_INIT_WRITES = "smallest_difference = 50\nmost_folds = 10\n"
SHOWING_SUMS = f"smallest_cell = 10\n{AS_INIT_WRITES}"


class Federation(DaemonsInMemory):
    """Six hundred people, of whom the bank knows households and weights besides."""

    def write_table(self, party: str, seed: int = 1, people: slice = slice(PEOPLE)) -> None:
        random = np.random.default_rng([seed, PARTIES.index(party)])
        names = [f"p{person:04}" for person in range(2 * PEOPLE)]
        columns: dict[str, Any] = {"id": names}
        if party == "bank":
            columns |= {
                "label": random.integers(2, size=2 * PEOPLE),
                "churned": random.integers(2, size=2 * PEOPLE),
                "household": np.minimum(np.arange(2 * PEOPLE), 500) // 250,
                "weight": (np.arange(2 * PEOPLE) != 7).astype(int),
            }
        if party == "telco":
            columns["town"] = np.arange(2 * PEOPLE) % 3
        columns |= {f"x{column}": random.normal(size=2 * PEOPLE) for column in range(2)}
        rows = zip(*columns.values(), strict=True)
        text = [",".join(map(str, row)) for row in rows][people]
        path = self.folder / party / "data.csv"
        path.write_text("\n".join([",".join(columns), *text]) + "\n")

    async def hold_people(self, people: slice) -> None:
        """From now on all tables are of these ``people``; the daemons read them anew."""
        await self.stop()
        for party in PARTIES:
            self.write_table(party, people=people)
        await self.start()

    async def set_at_bank(self, old: str, new: str) -> None:
        """Change the bank's file; it starts again."""
        path = self.folder / "bank" / "party.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        await self.stop("bank")
        await self.start("bank")

    async def asked(self, model: str, engine: str = "plain", **asked: Any) -> Any:
        """What a training ends with; keys of a job, and others of its params."""
        own = {key: asked.pop(key) for key in tuple(asked) if key in TrainingJob.model_fields}
        given = {"num_boost_round": 2, "max_depth": 2, "max_bin": 8, "max_cat_to_onehot": None}
        params = TrainParams(**{**given, **asked})
        job = TrainingJob(model=model, engine=engine, params=params, **own)
        return await self.ask("bank", "train", job=job.model_dump(mode="json"))


@pytest.fixture
async def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Federation]:
    engines = ("plain", "lattice")
    telco = tmp_path / "telco" / "party.toml"
    ignored = 'label = "label"\nignore = ["churned", "household", "weight"]\n'
    federation = Federation(tmp_path, monkeypatch, SHOWING_SUMS, engines=engines)
    path = tmp_path / "bank" / "party.toml"
    path.write_text(path.read_text().replace('label = "label"\n', ignored))
    telco.write_text(telco.read_text().replace('id = "id"\n', 'id = "id"\nignore = ["town"]\n'))
    async with federation:
        yield federation


async def session_of(federation: Federation, model: str) -> str:
    ended = (await federation.ask("telco", "status"))["ended"]
    return next(str(entry["session"]) for entry in ended if entry["model"] == model)


async def test_leave_one_out_is_refused_at_its_opening(federation: Federation) -> None:
    with pytest.raises(DaemonError, match=r"not cross-validate in 600 folds, at most 10"):
        await federation.asked("m", nfold=PEOPLE, num_boost_round=1)
    with pytest.raises(DaemonError, match=r"4\d\d people in 10 folds: folds differ by 50 people"):
        await federation.asked("m", nfold=10, evaluation=0.3, num_boost_round=1)


async def test_another_training_about_one_person_less_is_refused_and_names_the_first(
    federation: Federation,
) -> None:
    await federation.asked("first", evaluation=0.2)
    with pytest.raises(
        DaemonError, match=r"(telco|retail) refused the session: .* about 1 from those of"
    ) as refused:
        await federation.asked("second", evaluation=0.208)
    assert await session_of(federation, "first") in str(refused.value)


async def test_neither_a_restart_nor_hidden_sums_nor_a_continued_model_help(
    federation: Federation,
) -> None:
    await federation.asked("first")
    await federation.hold_people(slice(1, PEOPLE))
    with pytest.raises(DaemonError, match="differ by about 1 from"):
        await federation.asked("plain")
    hidden = {"engine_options": {"sums": "hidden"}, "xgboost_arithmetic": "3.2"}
    with pytest.raises(DaemonError, match="differ by about 1 from"):
        await federation.asked("hidden", "lattice", **hidden)
    with pytest.raises(DaemonError, match="differ by about 1 from"):
        await federation.asked("continued", continue_from="first")
    await federation.hold_people(slice(50, PEOPLE))
    await federation.asked("fifty-less")


async def test_two_that_open_at_once_are_compared(federation: Federation) -> None:
    ends = await asyncio.gather(
        federation.asked("first", evaluation=0.2),
        federation.asked("second", evaluation=0.208),
        return_exceptions=True,
    )
    assert any("differ by about" in str(end) for end in ends if isinstance(end, DaemonError))


async def test_folds_and_drawn_rows_are_compared_tree_by_tree(federation: Federation) -> None:
    households = {"split": {"group": "household"}, "num_boost_round": 1}
    await federation.hold_people(slice(0, 530))  # of whom thirty are of the third household
    # A sketch misses two who cancel each other in both halves: of thirty, once in twenty-five.
    with pytest.raises(DaemonError, match=r"those of tree \d differ by about (2[4-9]|30) from"):
        await federation.asked("households", nfold=3, **households)
    with pytest.raises(DaemonError, match="those of tree 0 differ by about"):
        await federation.asked("sampled", subsample=0.99)
    await federation.set_at_bank('"household", "weight"]\n', '"household"]\nweight = "weight"\n')
    with pytest.raises(DaemonError, match="those of tree 0 differ by about 1 from"):
        await federation.asked("weighted")


async def test_a_combination_of_four_trainings_is_refused(federation: Federation) -> None:
    """A and B, A and C, C and D and a person, B and D: the last one tells of that person."""
    a, b, c, d = (set(range(start, start + 120)) for start in range(0, 480, 120))
    for number, people in enumerate((a | b, a | c, c | d | {599})):
        await hold(federation, people)
        await federation.asked(f"m{number}")
    await hold(federation, b | d)
    with pytest.raises(DaemonError, match=r"by about 1 from a combination of .*;.*; session"):
        await federation.asked("m3")


async def test_a_question_about_groups_is_compared_with_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SHOWING_SUMS + 'groups = ["town"]\nallow_weak_keys = true\n'
    federation = Federation(tmp_path, monkeypatch, settings)
    path = tmp_path / "telco" / "party.toml"
    path.write_text(path.read_text().replace('id = "id"\n', 'id = "id"\nignore = ["town"]\n'))
    ids = [f"p{person:04}" for person in range(PEOPLE)]

    async def ask(people: list[str]) -> Any:
        figures = {name: [0] * len(people) for name in ("ones", "selected", "score")}
        asked = {"model": "first", "party": "telco", "column": "town", "ids": people}
        return await federation.ask("bank", "group_sums", **asked, **figures)

    async with federation:
        await federation.asked("first")
        with pytest.raises(DaemonError, match="these people differ by about 1 from those of sess"):
            await ask(ids[1:])
        answer = await ask(ids[:300])
        assert sum(group["people"] for group in answer) == 300
        await federation.hold_people(slice(299))
        with pytest.raises(DaemonError, match="the people who learn differ by about 1 from"):
            await federation.asked("second")


def test_four_questions_about_groups_leave_nobody_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    people = hashed_ids([f"p{person}" for person in range(3000)])
    groups = dict(zip(people.tolist(), random.choice(["a", "b", "c"], 3000).tolist(), strict=True))
    questions = GroupQuestions(tmp_path)
    a, b, c, d, alone = np.split(random.permutation(people), [600, 1200, 1800, 2400])

    def ask(session: str, *asked: NDArray[np.uint64]) -> None:
        together = np.concatenate(asked)
        check_new("telco", together, questions.about("town"), groups, 50)
        questions.keep("town", session, together)

    ask("first", a, b)
    ask("second", c, d, alone[:1])
    ask("third", a, c)
    names = "session first, session second, session third"
    with pytest.raises(Refused, match=rf"\({names}\), leave about 1 people of a group"):
        ask("fourth", b, d)
    ask("fourth", b, d, alone[:1])
    ask("fifth", a, b)
    ask("sixth", alone)


def test_of_fifty_people_who_differ_hardly_more_is_told_than_guessed() -> None:
    """Why `fedmq init` writes 50: what the numbers on the left of cuts tell of those who differ."""
    random = np.random.default_rng(0)
    values, label = random.normal(size=(4000, 8)), random.random(4000) < 0.25
    left = np.concatenate([values < cut for cut in np.linspace(-2, 2, 15)], axis=1)
    shares = left.mean(axis=0)
    guessed = np.maximum(shares, 1 - shares).mean()

    def told(number: int) -> float:
        """The share of bits told of so many people, where those of one label are counted apart."""
        right = []
        for _ in range(200 // number + 10):
            people = random.choice(len(left), number, replace=False)
            for one in (True, False):
                bits = left[people[label[people] == one]]
                counts = (bits.sum(axis=0) + 2 * shares) / (len(bits) + 2)
                sure = bits.all(axis=0) | ~bits.any(axis=0)
                right.extend(((np.where(sure, bits, counts > 0.5)) == bits).mean(axis=1))
        return float(np.mean(right))

    assert told(1) == 1
    assert told(10) > guessed + 0.025
    assert told(50) < guessed + 0.015


def test_init_writes_these_keys_and_a_file_without_them_has_their_defaults(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert fedmq("init", folder, "--active", "bank", "--passive", "telco").code == 0
    path = folder / "telco" / "party.toml"
    kept = [line for line in AS_INIT_WRITES.splitlines() if line in path.read_text().splitlines()]
    assert kept == AS_INIT_WRITES.splitlines()
    text = path.read_text()
    for line in kept:
        text = text.replace(f"{line}\n", "")
    path.write_text(text)
    config, _ = PartyFile.read(path)
    assert (config.policy.smallest_difference, config.policy.most_folds) == (0, 10)


async def hold(federation: Federation, people: set[int]) -> None:
    await federation.hold_people(slice(PEOPLE))
    await federation.stop()
    for party in PARTIES:
        path = federation.folder / party / "data.csv"
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([head, *(rows[person] for person in sorted(people))]) + "\n")
    await federation.start()


async def test_a_training_that_goes_on_after_a_crash_is_no_neighbour(
    federation: Federation,
) -> None:
    running = asyncio.create_task(
        federation.asked("m", evaluation=0.2, num_boost_round=12, subsample=0.7)
    )
    await federation.session()
    await federation.stop("telco")
    await federation.start("telco")
    assert (await running)["trees"] == 12


@pytest.mark.long
async def test_ordinary_work_is_unhindered(federation: Federation) -> None:
    await federation.asked("first", evaluation=0.2)
    await federation.asked("the-same-people-again", evaluation=0.2, max_depth=3)
    await federation.asked("another-split", evaluation=0.2, seed=1)
    await federation.asked("stratified", evaluation=0.25, split="stratified", seed=2)
    await federation.asked("five-folds", nfold=5)
    await federation.asked("all-people")
    await federation.asked("continued", continue_from="all-people")
    await federation.asked("stopped", evaluation=0.2, early_stopping_rounds=2, num_boost_round=5)
    await federation.asked("drawn", subsample=0.8, num_boost_round=5)
    await federation.asked("drawn-by-gradients", goss=True, num_boost_round=4)
    await federation.asked("hidden-rows", "lattice", evaluation=0.2)
    ids = [f"p{person:04}" for person in range(60)]
    assert len((await federation.ask("bank", "predict", model="first", ids=ids))["scores"]) == 60
    await federation.set_at_bank(
        'label = "label"\nignore = ["churned"', 'label = "churned"\nignore = ["label"'
    )
    await federation.asked("another-label", evaluation=0.2)
    for month in (1, 2):
        await federation.hold_people(slice(60 * month, PEOPLE + 60 * month))
        await federation.asked(f"month-{month}", evaluation=0.2)
        await federation.asked(f"month-{month}-crossed", nfold=5, num_boost_round=1)


@pytest.fixture
async def as_init_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Federation]:
    """All parties under the policy of ``fedmq init``, which shows no sums."""
    federation = Federation(tmp_path, monkeypatch)
    written = party_toml("telco", "amqp://nobody@localhost/", labelled=False, serving=False)
    _, _, policy = written.partition("[policy]\n")
    for party in PARTIES:
        path = tmp_path / party / "party.toml"
        data, head, _ = path.read_text().partition("[policy]\n")
        ignored = {"bank": '"churned", "household", "weight"', "telco": '"town"'}.get(party, "")
        path.write_text(f"{data}ignore = [{ignored}]\n{head}allow_unsealed = true\n{policy}")
    async with federation:
        yield federation


@pytest.mark.long
async def test_ordinary_work_is_unhindered_where_sums_are_hidden(
    as_init_writes: Federation,
) -> None:
    federation = as_init_writes

    async def train(model: str, engine: str = "lattice", **asked: Any) -> Any:
        given = {"num_boost_round": 1, "max_depth": 1, "max_bin": 4, "xgboost_arithmetic": "3.2"}
        hidden = {"engine_options": {"sums": "hidden"}}
        return await federation.asked(model, engine, **{**given, **hidden, **asked})

    await train("first", evaluation=0.2)
    await train("the-same-people-again", evaluation=0.2, num_boost_round=2)
    await train("another-split", evaluation=0.2, seed=1)
    await train("stratified", evaluation=0.25, split="stratified", seed=2)
    await train("five-folds", nfold=5)
    await train("continued", evaluation=0.2, continue_from="first")
    await train("stopped", evaluation=0.2, early_stopping_rounds=1, num_boost_round=3)
    await train("drawn", subsample=0.8, num_boost_round=2)
    ids = [f"p{person:04}" for person in range(60)]
    assert len((await federation.ask("bank", "predict", model="first", ids=ids))["scores"]) == 60
    await federation.set_at_bank(
        'label = "label"\nignore = ["churned"', 'label = "churned"\nignore = ["label"'
    )
    await train("another-label", evaluation=0.2)
    for month in (1, 2):
        await federation.hold_people(slice(60 * month, PEOPLE + 60 * month))
        await train(f"month-{month}", evaluation=0.2)


async def test_sums_are_shown_to_nobody_who_has_not_agreed(as_init_writes: Federation) -> None:
    for engine, options in (("lattice", {}), ("ou", {"sums": "shown"}), ("plain", {})):
        with pytest.raises(DaemonError, match=r"(telco|retail) refused"):
            await as_init_writes.asked(engine, engine, engine_options=options)
