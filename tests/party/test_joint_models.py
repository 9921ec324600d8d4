"""A model in one XGBoost file: each owner says yes, and then it predicts as the federation does."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from fedmq.boosting.model.owner_splits import OwnerSplits
from fedmq.errors import DaemonError
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.terms import asked_in_words, terms_in_words
from tests.cli.command import Outcome, fedmq
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

PASSIVE = PARTIES[1:]


def policy(demo: DaemonsInMemory, party: str, text: str) -> None:
    path = demo.folder / party / "party.toml"
    path.write_text(path.read_text() + text + "\n")


def asking(tmp_path: Path, patch: pytest.MonkeyPatch, retail: str = "ask") -> DaemonsInMemory:
    """Three parties, two of which hold blanks; of telco columns have names."""
    demo = DaemonsInMemory(tmp_path, patch)
    for party in PASSIVE:
        blank_some(demo.folder / party / "data.csv")
    policy(demo, "telco", 'joint_models = "ask"\ncolumn_names = "shared"')
    policy(demo, "retail", f'joint_models = "{retail}"')
    return demo


def blank_some(path: Path) -> None:
    head, *rows = path.read_text().splitlines()
    blanked = [
        row.rsplit(",", 1)[0] + "," if place % 5 == 0 else row for place, row in enumerate(rows)
    ]
    path.write_text("\n".join([head, *blanked]) + "\n")


def joined(demo: DaemonsInMemory, booster: xgboost.Booster) -> xgboost.DMatrix:
    """The columns of ``booster`` from all tables; those without a name in the order of its use."""
    tables = {}
    for party in PARTIES:
        with (demo.folder / party / "data.csv").open() as file:
            tables[party] = list(csv.DictReader(file))
    assert booster.feature_names is not None
    columns = []
    for name in booster.feature_names:
        party, column = name.split(".", 1)
        held = column if column in tables[party][0] else RETAILS[column]
        columns.append([float(row[held] or "nan") for row in tables[party]])
    return xgboost.DMatrix(np.array(columns, np.float32).T, feature_names=booster.feature_names)


RETAILS: dict[str, str] = {}
"""The columns of retail by their numbers, which only retail knows."""


async def answers(demo: DaemonsInMemory) -> dict[str, Any]:
    found: dict[str, Any] = await demo.ask("bank", "joint_model", model="credit")
    return found


async def approve(demo: DaemonsInMemory, party: str) -> None:
    request = (await demo.waiting(party))["request"]
    await demo.ask(party, "approve", request=request)


async def test_the_file_predicts_as_the_federation_once_every_owner_has_said_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = asking(tmp_path, monkeypatch)
    ids = [f"p{row:02}" for row in range(40)]
    file = tmp_path / "credit.json"

    async def export(party: str = "bank", to: Path = file) -> Outcome:
        words = ("models", "export", demo.folder / party / "party.toml", "credit", "--joint", to)
        return await asyncio.to_thread(fedmq, *words, "--json")

    async with demo:
        await demo.train("credit", 6)
        assert (waiting := await export()).code == 6
        assert waiting.error.count("its owner is asked, and has 24 hours to answer") == 2
        assert not file.exists()
        for party in PASSIVE:
            await approve(demo, party)
        told = (await export()).result
        scores = await demo.ask("bank", "predict", model="credit", ids=ids, output_margin=True)
        retails = demo.daemons["retail"].parts.context.model_store.passive("credit").lookup_table
        assert (await export()).error == f"{file}: exists already; choose another name"
        assert "end it with .json" in (await export(to=tmp_path / "credit.bin")).error
        assert "only bank can have" in (await export("telco", tmp_path / "its.json")).error
    used = OwnerSplits.of(retails).told(names=True).columns
    numbers = [name for name in told["columns"] if name.startswith("retail.")]
    assert numbers == [f"retail.column_{number}" for number, _ in enumerate(used, 1)]
    RETAILS.update({f"column_{number}": name for number, name in enumerate(used, 1)})
    assert {*told["columns"]} >= {"bank.x0", "bank.x1"}
    assert file.stat().st_mode & 0o777 == 0o600
    booster = xgboost.Booster(model_file=file)
    assert len([name for name in booster.get_score() if not name.startswith("bank.")]) > 1
    margins = booster.predict(joined(demo, booster), output_margin=True)
    np.testing.assert_array_equal(margins, np.array(scores["scores"], np.float32))


async def test_no_owner_is_asked_whose_policy_refuses_and_one_refusal_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = asking(tmp_path, monkeypatch, retail="refuse")
    async with demo:
        await demo.train("credit", 1)
        found = await answers(demo)
        assert found["retail"]["refused"] == (
            "retail does not do that: retail does not tell its thresholds for a model in one file; "
            'joint_models = "ask" in its [policy] would allow it'
        )
        assert await demo.ask("retail", "inbox") == []
        request = (await demo.waiting("telco"))["request"]
        await demo.ask("telco", "refuse", request=request, reason="not this one")
        asked_anew = (await answers(demo))["telco"]["refused"]
        assert "its owner is asked" in asked_anew  # a no is no answer to the next request


async def test_the_owner_reads_what_is_told_and_the_log_notes_a_yes_and_nothing_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = asking(tmp_path, monkeypatch)
    log = AuditLog(demo.folder / "telco" / "state")

    def agreed() -> list[Any]:
        entries = [entry for entry in log.entries() if entry["event"] == "agreed"]
        return [entry["joint_model"] for entry in entries if "joint_model" in entry]

    async with demo:
        await demo.train("credit", 2)
        await answers(demo)
        request = await demo.waiting("telco")
        assert asked_in_words(request) == "bank asks for all your thresholds in model credit"
        words = dict(terms_in_words(request))
        assert words["columns"].endswith("with their names")
        assert "thresholds of this model" in words["active party learns"]
        assert agreed() == []
        with pytest.raises(DaemonError, match="each model is asked about"):
            await demo.ask("telco", "alike", request=request["request"])
        for party in PASSIVE:
            await approve(demo, party)
        assert "splits" in (await answers(demo))["telco"]
    assert agreed() == ["credit", "credit"]  # that it would tell, and that it has told
    assert [entry["event"] for entry in log.entries()][-1] == "ended"


async def test_no_threshold_leaves_before_every_owner_has_said_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = asking(tmp_path, monkeypatch)
    told: list[str] = []

    async def watch(_: str, __: str, message: str) -> bool:
        told.extend([message] if "model thresholds" in message else [])
        return False

    async with demo:
        await demo.train("credit", 6)
        await answers(demo)
        await approve(demo, "telco")
        demo.hold = watch
        found = await answers(demo)
        assert found["telco"] == {}
        assert "its owner is asked" in found["retail"]["refused"]
        [yes] = told
        assert "x0" not in yes and "x1" not in yes  # telco's names come with its thresholds
        await approve(demo, "retail")
        assert all("splits" in answer for answer in (await answers(demo)).values())
        assert any("x0" in message or "x1" in message for message in told)


async def test_a_yes_is_for_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = asking(tmp_path, monkeypatch)
    async with demo:
        await demo.train("credit", 1)
        await answers(demo)
        for party in PASSIVE:
            await approve(demo, party)
        await demo.train("other", 2)
        found = await demo.ask("bank", "joint_model", model="other")
        assert "its owner is asked" in found["telco"]["refused"]
        assert "splits" in (await answers(demo))["telco"]  # again, within the time of the answer
