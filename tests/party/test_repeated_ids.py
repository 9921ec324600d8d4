"""Ten loans of one customer, one row at the telephone company: each loan is a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.errors import DaemonError
from fedmq.party.configuration.job import AlignmentJob, ScreenJob, TrainingJob
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.documents import held_out_rows
from tests.party.daemons_in_memory import DaemonsInMemory

PARAMS: dict[str, Any] = {"num_boost_round": 5, "max_depth": 3, "max_bin": 16, "eta": 0.8}


def tables() -> dict[str, pd.DataFrame]:
    """Sixty customers with one to five loans, some of them strangers to one of the others."""
    random = np.random.default_rng(3)
    people = [f"c{number:02}" for number in range(60)]
    loans = random.permutation(np.repeat(people, random.integers(1, 6, 60)))
    calls = dict(zip(people, random.normal(size=60), strict=True))
    amount = random.normal(size=len(loans))
    risk = amount + np.array([calls[name] for name in loans])
    label = (risk + random.normal(size=len(loans)) > 0).astype(int)
    bank = pd.DataFrame({"id": loans, "label": label, "amount": amount.astype(np.float32)})
    telco = pd.DataFrame({"id": people[3:], "calls": [np.float32(calls[n]) for n in people[3:]]})
    bought = random.normal(size=58).astype(np.float32)
    retail = pd.DataFrame({"id": people[:58], "bought": bought})
    return {"bank": bank, "telco": telco, "retail": retail}


@pytest.fixture
async def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DaemonsInMemory:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    for party, table in tables().items():
        table.to_csv(tmp_path / party / "data.csv", index=False)
    say_each(tmp_path, "bank")
    return demo


def say_each(folder: Path, party: str, how: str = "each") -> None:
    path = folder / party / "party.toml"
    text = path.read_text().replace('duplicates = "each"\n', "")
    path.write_text(text.replace("[data]\n", f'[data]\nduplicates = "{how}"\n', 1))


async def aligned(demo: DaemonsInMemory) -> dict[str, Any]:
    job = AlignmentJob(name="loans")
    found: dict[str, Any] = await demo.ask("bank", "align", job=job.model_dump(mode="json"))
    return found


async def trained(demo: DaemonsInMemory, **keys: Any) -> dict[str, Any]:
    keys = {"model": "m", "engine": "plain", **keys}
    job = TrainingJob(alignment="loans", params=PARAMS, **keys)
    found: dict[str, Any] = await demo.ask("bank", "train", job=job.model_dump(mode="json"))
    return found


def joined() -> pd.DataFrame:
    parts = tables()
    return parts["bank"].merge(parts["telco"], on="id").merge(parts["retail"], on="id")


async def test_each_row_is_a_row_of_the_training_and_the_model_that_of_the_joined_table(
    demo: DaemonsInMemory,
) -> None:
    async with demo:
        found = await aligned(demo)
        both = joined()
        assert (found["rows"], found["people"]) == (len(both), both["id"].nunique())
        await trained(demo)
        stores = {
            party: AlignmentStore(demo.folder / party / "state").load("loans").ids
            for party in tables()
        }
        people = [str(name).partition("#")[0] for name in stores["bank"]]
        assert len({*stores["bank"]}) == len(both)
        assert people == [*stores["telco"]] == [*stores["retail"]]

        # The same rows in the same order, as one process trains on them.
        parts = {name: table.set_index("id") for name, table in tables().items()}
        bank = parts["bank"].sort_index(kind="stable")
        order = [(n.partition("#")[0], int(n.partition("#")[2] or 1) - 1) for n in stores["bank"]]
        bank = pd.concat([bank.loc[[name]].iloc[[number]] for name, number in order])
        model = fedmq.simulate(
            active=bank[["amount"]],
            label=bank["label"],
            passive={"telco": parts["telco"], "retail": parts["retail"]},
            params=fedmq.TrainParams(**PARAMS),
            engine="plain",
            join="inner",
        )
        shown = demo.daemons["bank"].parts.context.model_store.active("m")
        for ours, theirs in zip(shown.trees, model.share.trees, strict=True):
            assert json.loads(ours.model_dump_json()) == json.loads(theirs.model_dump_json())

        scored = await demo.ask(
            "bank", "predict", model="m", alignment="loans", mode="sealed", output_margin=True
        )
        expected = model.predict(
            active=bank[["amount"]],
            passive={"telco": parts["telco"].loc[people], "retail": parts["retail"].loc[people]},
            output_margin=True,
        )
        assert scored["ids"] == list(stores["bank"])
        np.testing.assert_allclose(scored["scores"], expected, atol=1e-5)
        with pytest.raises(DaemonError, match="one way of a person, and some have several rows"):
            await demo.ask("bank", "predict", model="m", alignment="loans", mode="hop")
        await demo.ask("bank", "activate", model="m", name="production", mode="sealed")
        online = await demo.ask("bank", "score", name="production", ids=list(stores["bank"][:9]))
        told = await demo.ask(
            "bank", "predict", model="m", ids=list(stores["bank"][:9]), mode="sealed"
        )
        assert [row["score"] for row in online["scores"]] == pytest.approx(told["scores"])


async def test_a_person_s_rows_are_held_out_together_and_folds_keep_them_together(
    demo: DaemonsInMemory,
) -> None:
    async with demo:
        await aligned(demo)
        await trained(demo, evaluation=0.3)
        held = held_out_rows(demo.folder / "bank" / "state").read("m").ids
        people = [name.partition("#")[0] for name in held]
        loans = joined()["id"].value_counts()
        assert len(people) > len({*people}) > 5
        assert all(people.count(name) == loans[name] for name in {*people})
        await trained(demo, nfold=3)
        with pytest.raises(DaemonError, match='"stratified" would part them'):
            await trained(demo, model="n", evaluation=0.3, split="stratified")


@pytest.mark.long
async def test_people_are_counted_where_rows_would_be_too_few(
    demo: DaemonsInMemory, tmp_path: Path
) -> None:
    path = tmp_path / "telco" / "party.toml"
    path.write_text(path.read_text().replace("[policy]\n", "[policy]\nsmallest_cell = 3\n", 1))
    async with demo:
        await aligned(demo)
        with pytest.raises(DaemonError, match="telco has a smallest_node or smallest_cell"):
            await trained(demo)
        job = ScreenJob(name="s", alignment="loans").model_dump(mode="json")
        with pytest.raises(DaemonError, match="a screen counts people, and some have several"):
            await demo.ask("bank", "screen", job=job)


async def test_a_passive_party_has_one_row_of_a_person(
    demo: DaemonsInMemory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    say_each(tmp_path, "telco")
    async with demo:
        with pytest.raises(DaemonError, match="its own ids could not be read; its log says why"):
            await aligned(demo)
    assert 'telco: duplicates = "each" is for the active party' in caplog.text


@pytest.mark.long
async def test_an_id_with_the_sign_that_numbers_rows_is_named(
    demo: DaemonsInMemory, tmp_path: Path
) -> None:
    path = tmp_path / "bank" / "data.csv"
    path.write_text(path.read_text().replace("c07,", "c07#2,", 1))
    async with demo:
        with pytest.raises(DaemonError, match=r"the id 'c07#2' has a #, which numbers the rows"):
            await aligned(demo)


# Nobody learns how many rows a person has


async def test_hidden_rows_need_no_alignment_where_all_hold_the_same_people(
    demo: DaemonsInMemory, tmp_path: Path
) -> None:
    say_each(tmp_path, "bank", "hidden")
    shared = {*tables()["telco"]["id"]} & {*tables()["retail"]["id"]}
    for party, table in tables().items():
        table[table["id"].isin(shared)].to_csv(tmp_path / party / "data.csv", index=False)
        path = tmp_path / party / "party.toml"
        path.write_text(path.read_text().replace('engines = ["plain"]', 'engines = ["lattice"]'))
    told: list[str] = []

    async def listen(sender: str, _: str, message: str) -> bool:
        told.extend([message] * (sender == "bank" and "training open" in message))
        return False

    demo.hold = listen
    async with demo:
        params = {**PARAMS, "num_boost_round": 1}
        job = TrainingJob(model="m", engine="lattice", params=params)
        await demo.ask("bank", "train", job=job.model_dump(mode="json"))
        share = demo.daemons["bank"].parts.context.model_store.active("m")
        assert len(share.trees) == 1 and len(share.trees[0].owner) > 3
    assert len(told) == 2 and all(f"\xa4rows{chr(len(shared))}" in opening for opening in told)


@pytest.mark.long
async def test_hidden_rows_are_learned_from_and_other_parties_have_one_row_of_a_person(
    demo: DaemonsInMemory, tmp_path: Path
) -> None:
    say_each(tmp_path, "bank", "hidden")
    for party in tables():
        path = tmp_path / party / "party.toml"
        path.write_text(path.read_text().replace('engines = ["plain"]', 'engines = ["lattice"]'))
    async with demo:
        found = await aligned(demo)
        both = joined()
        assert found["rows"] == found["people"] == both["id"].nunique()
        with pytest.raises(DaemonError, match="engine plain: people have several rows, so that"):
            await trained(demo)
        await trained(demo, engine="lattice", evaluation=0.3)
        people = AlignmentStore(demo.folder / "bank" / "state").load("loans").ids
        for party in ("telco", "retail"):
            assert AlignmentStore(demo.folder / party / "state").load("loans").ids == people
        held = held_out_rows(demo.folder / "bank" / "state").read("m").ids
        loans = both["id"].value_counts()
        of = [name.partition("#")[0] for name in held]
        assert len(of) > len({*of}) and all(of.count(name) == loans[name] for name in {*of})

        parts = {name: table.set_index("id") for name, table in tables().items()}
        bank = parts["bank"].sort_index(kind="stable")
        bank = pd.concat([bank.loc[[name]] for name in people])
        names = [name.partition("#")[0] for name in held]
        places = np.array([name in {*names} for name in bank.index])
        model = fedmq.simulate(
            active=bank[["amount"]],
            label=bank["label"],
            passive={"telco": parts["telco"], "retail": parts["retail"]},
            params=fedmq.TrainParams(**PARAMS),
            evaluation=places,
            join="inner",
            duplicates="hidden",
        )
        shown = demo.daemons["bank"].parts.context.model_store.active("m")
        for ours, theirs in zip(shown.trees, model.share.trees, strict=True):
            assert json.loads(ours.model_dump_json()) == json.loads(theirs.model_dump_json())

        scored = await demo.ask(
            "bank", "predict", model="m", alignment="loans", mode="sealed", output_margin=True
        )
        assert [name.partition("#")[0] for name in scored["ids"]] == [*bank.index]
        expected = model.predict(
            active=bank[["amount"]],
            passive={name: parts[name].loc[bank.index] for name in ("telco", "retail")},
            output_margin=True,
        )
        np.testing.assert_allclose(scored["scores"], expected, atol=1e-5)
        job = ScreenJob(name="s", alignment="loans").model_dump(mode="json")
        with pytest.raises(DaemonError, match="a screen takes one label of a person"):
            await demo.ask("bank", "screen", job=job)
