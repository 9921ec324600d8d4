"""Trainings between whole daemons that are offered only columns which a screen has selected."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DaemonError
from fedmq.evaluation.card import card_of, markdown_of
from fedmq.messages.codec import decode
from fedmq.messages.training import SelectedColumns, TrainingOpen
from fedmq.party.card.signed_card import CardFile
from fedmq.party.configuration.job import ScreenJob, TrainingJob
from fedmq.party.configuration.online import DriftSection
from fedmq.party.consent.terms import terms_in_words
from fedmq.party.store.documents import ModelStore, made_screens, selections, training_records
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

MEASURED = 'screen = "measured"\nsmallest_group = 5\nsmallest_selection = 1\n'
STRONG = {"bank": {"x1"}, "telco": {"x0", "x2"}, "retail": {"x2"}}
"""The columns that tell the label; the others are noise."""


class Screened(DaemonsInMemory):
    """Three parties of 100 people and four columns each, of which `STRONG` tell the label."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, settings: str = MEASURED) -> None:
        super().__init__(folder, patch, settings)

    def write_table(self, party: str, seed: int = 1) -> None:
        draw = np.random.default_rng([seed, PARTIES.index(party)])
        label = np.random.default_rng(seed).integers(2, size=100)
        names = ("x0", "x1", "x2", "x3")
        columns = [draw.normal(size=100) + 1.5 * label * (name in STRONG[party]) for name in names]
        known = [label] if party == "bank" else []
        lines = [",".join(["id", *(["label"] * len(known)), *names])]
        lines += [
            ",".join([f"p{row:03}", *(str(of[row]) for of in (*known, *columns))])
            for row in range(100)
        ]
        (self.folder / party / "data.csv").write_text("\n".join(lines) + "\n")

    def configure(self, party: str, before: str, now: str) -> None:
        path = self.folder / party / "party.toml"
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, now))

    async def screen(self, name: str = "look", **keys: Any) -> Any:
        job = ScreenJob(name=name, bins=4, **keys)
        return await self.ask("bank", "screen", job=job.model_dump(mode="json"))

    async def selecting(self, model: str, select: dict[str, Any] | None, **keys: Any) -> Any:
        trees = keys.pop("trees", 3)
        params = TrainParams(num_boost_round=trees, max_depth=2, max_bin=8)
        job = TrainingJob(model=model, engine="plain", params=params, select=select, **keys)
        return await self.ask("bank", "train", job=job.model_dump(mode="json"))

    def state(self, party: str) -> Path:
        return self.folder / party / "state"

    def active(self, model: str) -> ActiveShare:
        return ModelStore(self.state("bank")).active(model)

    def passive(self, party: str, model: str) -> PassiveShare:
        return ModelStore(self.state(party)).passive(model)


def features(share: ActiveShare | PassiveShare) -> set[str]:
    return set(share.lookup_table.feature_names)


async def test_each_party_trains_with_its_selected_columns_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    async with demo:
        await demo.screen()
        await demo.selecting("few", {"iv": 0.3})
        await demo.selecting("top", {"top": 2, "screen": "look", "parties": ("telco",)})
    assert features(demo.active("few")) == STRONG["bank"]
    for party in ("telco", "retail"):
        assert features(demo.passive(party, "few")) == STRONG[party]
    assert features(demo.passive("telco", "top")) == STRONG["telco"]
    assert len(features(demo.passive("retail", "top"))) == 4
    assert len(features(demo.active("top"))) == 4


async def test_a_training_selects_by_steps_where_sums_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch, MEASURED.replace("measured", "hidden"))
    async with demo:
        await demo.screen(sums="hidden", iv_from=0.1)
        await demo.selecting("few", {"iv": 0.3})
    for party in ("telco", "retail"):
        assert features(demo.passive(party, "few")) == STRONG[party]


async def test_the_model_is_that_of_owners_who_left_the_other_columns_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    async with demo:
        await demo.screen()
        await demo.selecting("few", {"iv": 0.3})
    for party in ("telco", "retail"):
        kept = json.dumps(sorted(STRONG[party]))
        demo.configure(party, "[policy]", f"[policy]\nfeatures = {kept}")
    demo.configure("bank", "[policy]", 'ignore = ["x0", "x2", "x3"]\n[policy]')
    async with demo:
        await demo.selecting("same", None)
    few, same = demo.active("few"), demo.active("same")
    assert [tree.model_dump_json() for tree in few.trees] == [
        tree.model_dump_json() for tree in same.trees
    ]


async def test_an_owner_is_told_the_numbers_of_its_own_columns_and_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo, told = Screened(tmp_path, monkeypatch), {}

    async def hold(_: str, recipient: str, message: str) -> bool:
        body = decode(message.encode("latin-1")).body
        if isinstance(body, TrainingOpen):
            told[recipient] = body.selected
        return False

    async with demo:
        found = await demo.screen()
        demo.hold = hold
        await demo.selecting("few", {"iv": 0.3})
    numbers = {party: of.numbers for party, of in told.items() if isinstance(of, SelectedColumns)}
    assert numbers == {"telco": (1, 3), "retail": (3,)}
    assert {of.screen for of in told.values() if of is not None} == {found["screen"]}


async def test_the_card_says_how_many_of_each_party_and_an_owner_which_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    async with demo:
        await demo.screen()
        await demo.selecting("few", {"iv": 0.3}, evaluation=0.2)
        await demo.selecting("all", None)
    record = training_records(demo.state("bank")).read("few")
    card = card_of(demo.active("few"), "demo", record, None, {}, DriftSection())
    assert card.training is not None and card.training.selection is not None
    assert card.training.selection.columns == {"bank": (1, 4), "telco": (2, 4), "retail": (1, 4)}
    text = markdown_of(CardFile(card=card), ())
    assert "| columns | 1 of 4 of bank, 2 of 4 of telco, 1 of 4 of retail |" in text
    assert "iv = 0.3; screen look of" in text and "x0" not in text
    own = selections(demo.state("telco")).read("few")
    assert own.own is not None and own.own.columns == ("x0", "x2")
    assert own.others == {} and own.rule == {}
    assert selections(demo.state("telco")).find("all") is None
    assert training_records(demo.state("bank")).read("all").selection is None


@pytest.mark.long
async def test_columns_that_have_changed_since_the_screen_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    async with demo:
        await demo.screen()
    changed = (
        "its columns, or those that its policy lets take part, have changed since screen 'look' "
        "was made; make it anew with: fedmq screen"
    )
    demo.configure("telco", "[policy]", '[policy]\nfeatures = ["x0", "x2", "x3"]')
    async with demo:
        with pytest.raises(DaemonError, match=f"telco: {changed}"):
            await demo.selecting("few", {"iv": 0.3})
    demo.configure("telco", 'features = ["x0", "x2", "x3"]', "")
    table = (demo.folder / "bank" / "data.csv").read_text()
    (demo.folder / "bank" / "data.csv").write_text(table.replace("x3", "x9"))
    async with demo:
        with pytest.raises(DaemonError, match=f"bank: {changed}"):
            await demo.selecting("few", {"iv": 0.3})
    (demo.folder / "bank" / "data.csv").write_text(table)
    demo.configure("telco", 'screen = "measured"', 'screen = "refuse"')
    async with demo:
        with pytest.raises(DaemonError, match="telco does not train with columns that a screen"):
            await demo.selecting("few", {"iv": 0.3})
    assert demo.models() == {party: [] for party in PARTIES}


async def test_an_owner_trains_with_no_fewer_columns_than_its_policy_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = MEASURED.replace("smallest_selection = 1\n", "")
    demo = Screened(tmp_path, monkeypatch, settings)
    async with demo:
        await demo.screen()
        with pytest.raises(DaemonError, match="telco trains with 3 of its columns or more, and 2 "):
            await demo.selecting("few", {"iv": 0.3, "parties": ("telco",)})
        await demo.selecting("more", {"missing": 0.5})
    assert len(features(demo.passive("telco", "more"))) == 4


async def test_an_owner_that_does_not_know_the_screen_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    async with demo:
        await demo.screen()
        for path in (demo.state("retail") / "shown-screens").iterdir():
            path.write_text("{")
        with pytest.raises(DaemonError, match="retail knows nothing of these columns of screen"):
            await demo.selecting("few", {"iv": 0.3})
        for path in (demo.state("retail") / "shown-screens").iterdir():
            path.unlink()
        with pytest.raises(DaemonError, match="retail knows nothing of these columns of screen"):
            await demo.selecting("few", {"iv": 0.3})


async def test_what_cannot_be_selected_is_one_line_before_anybody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    demo.configure("retail", 'screen = "measured"', 'screen = "refuse"')
    async with demo:
        with pytest.raises(DaemonError, match="select: there is no screen yet; make one with"):
            await demo.selecting("few", {"iv": 0.3})
        await demo.screen("both")
        await demo.screen("alone", parties=("telco",))
        with pytest.raises(DaemonError, match="no screen 'other'; there are: both; make one"):
            await demo.selecting("few", {"iv": 0.3, "screen": "other"})
        with pytest.raises(DaemonError, match="screen 'alone' has not looked at retail"):
            await demo.selecting("few", {"iv": 0.3})
        with pytest.raises(DaemonError, match="retail has not shown its columns in screen 'both'"):
            await demo.selecting("few", {"iv": 0.3, "screen": "both"})
        with pytest.raises(DaemonError, match=r"no column of bank is selected by iv = 9\.0 in"):
            await demo.selecting("few", {"iv": 9.0}, parties=("telco",))
        await demo.selecting("few", {"iv": 0.3}, parties=("telco",))
        await demo.selecting("beside", {"iv": 0.3, "parties": ("bank", "telco")})
    assert len(features(demo.passive("retail", "beside"))) == 4


def test_a_selection_says_what_it_selects_by() -> None:
    with pytest.raises(ConfigError, match=r"select: .*say which columns: iv, p, top, missing or"):
        TrainingJob.of({"select": {"screen": "look"}}, "job")


async def test_a_cross_validation_says_that_columns_were_selected_before_its_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    async with demo:
        await demo.screen()
        found = await demo.selecting("few", {"iv": 0.3}, nfold=3)
        assert found["selected_by"] == "look"
        assert "selected_by" not in await demo.selecting("all", None, nfold=3)


@pytest.mark.long
async def test_owners_are_asked_about_the_columns_and_a_standing_consent_covers_these_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    async with demo:
        await demo.screen()
    demo.configure("telco", "[policy]", '[policy]\nconsent = "ask"')
    async with demo:
        training = asyncio.create_task(demo.selecting("few", {"iv": 0.3}))
        request = await demo.waiting("telco")
        said = dict(terms_in_words(request))["columns"]
        assert said == "2 of 4, which the active party has selected by screen look: x0, x2"
        diff = (await demo.ask("telco", "alike", request=request["request"]))["diff"]
        assert '+selected = ["x0", "x2"]' in diff
        await demo.ask("telco", "approve", request=request["request"], diff=diff)
        await training
        await demo.selecting("again", {"iv": 0.3})
        for name, select in (("all", None), ("other", {"top": 3, "parties": ("telco",)})):
            asked = asyncio.create_task(demo.selecting(name, select))
            request = await demo.waiting("telco")
            await demo.ask("telco", "refuse", request=request["request"], reason="no")
            with pytest.raises(DaemonError, match="telco refused: no"):
                await asked


async def test_fallback_models_are_offered_the_columns_of_their_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    async with demo:
        await demo.screen()
        found = await demo.selecting("few", {"iv": 0.3}, fallback=True)
    for fallback in found["fallbacks"]:
        assert features(demo.active(fallback["model"])) == STRONG["bank"]
        for party in set(PARTIES[1:]) - set(fallback["without"]):
            assert features(demo.passive(party, fallback["model"])) == STRONG[party]
        assert training_records(demo.state("bank")).read(fallback["model"]).selection is not None


@pytest.mark.long
async def test_a_training_that_goes_on_keeps_its_selection_when_the_screen_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    async with demo:
        await demo.screen()
        asked = asyncio.create_task(demo.selecting("few", {"iv": 0.3}, trees=60))
        session = await demo.session()
        await demo.stop("bank")
        with pytest.raises(DaemonError):
            await asked
        await demo.stop("telco")
        await demo.start("bank", "telco")
        await demo.screen(parties=("telco",))
        made = made_screens(demo.state("bank")).read("look")
        assert set(made.parties) == {"bank", "telco"}
        await demo.ask("bank", "follow", session=session, again=True)
    assert features(demo.active("few")) == STRONG["bank"]
    assert features(demo.passive("telco", "few")) == STRONG["telco"]
    assert len(demo.active("few").trees) == 60
