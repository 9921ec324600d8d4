"""Trainings by sets of categories: the owner's policy decides, and the auditor replays them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from fedmq.boosting.model.share import PassiveShare
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CategorySet
from fedmq.party.configuration.job import TrainingJob
from fedmq.privacy.engine import Winner
from tests.accountability.audited import AuditedDaemons
from tests.accountability.test_hidden_sums import (
    HIDDEN,
    assert_a_tree_without_circuits_is_passed_over,
)


class DaemonsOfTowns(AuditedDaemons):
    """The second column of telco and retail are towns, of some people none."""

    def write_table(self, party: str, seed: int = 1) -> None:
        super().write_table(party, seed)
        if party == "bank":
            return
        path = self.folder / party / "data.csv"
        with path.open(newline="") as file:
            head, *lines = csv.reader(file)
        for number, line in enumerate(lines):
            town = number if party == "telco" else number // 3
            line[-1] = line[-1] and f"town {town % 7}"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([head, *lines])

    wanted = True
    """Whether the active party's job asks for sets of others' columns."""

    async def trained(self, trees: int, engine: str = "plain", **options: Any) -> None:
        params = TrainParams(
            num_boost_round=trees, max_bin=8, max_cat_to_onehot=4, min_child_weight=0.0
        )
        job = TrainingJob(
            model="m",
            engine=engine,
            engine_options=options,
            params=params,
            category_sets=self.wanted,
        )
        await self.start()
        await self.ask("bank", "train", job=job.model_dump(mode="json"))
        await self.stop()

    def share(self, party: str) -> PassiveShare:
        path = self.folder / party / "state" / "models" / "m.json"
        return PassiveShare.loads(path.read_bytes(), party)


async def test_answers_by_sets_are_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemons = DaemonsOfTowns(tmp_path, monkeypatch, "category_sets = true\n")
    await daemons.trained(3)
    for party in ("telco", "retail"):
        assert daemons.verified(party).answers > 6
    tables = [daemons.share(party).lookup_table for party in ("telco", "retail")]
    assert all(tuple(table.category_columns) == ("x1",) for table in tables)
    sets = [features for table in tables for features in table.category_sets if features]
    assert sets


@pytest.mark.long
@pytest.mark.usefixtures("short_exponents")
async def test_circuits_that_sort_categories_are_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of trees whose circuits are left out, of which the party says which sets won."""
    daemons = DaemonsOfTowns(tmp_path, monkeypatch, "category_sets = true\n")
    await daemons.trained(2, "lattice", **HIDDEN["lattice"])
    won: list[Winner] = []
    for party in ("telco", "retail"):
        verdict = daemons.verified(party)
        assert (verdict.trees, verdict.thin_trees) == (2, 0)
        shown = daemons.shown(party)
        won += [winner for tree in shown.attempts[1].won.values() for winner in tree.values()]
    assert any(isinstance(winner, CategorySet) for winner in won)
    assert_a_tree_without_circuits_is_passed_over(daemons, daemons.shown("telco"))


@pytest.mark.parametrize(
    ("policy", "wanted"), [("", True), ("category_sets = true\n", False)], ids=["owner", "job"]
)
async def test_unless_both_agree_no_column_is_split_by_sets(
    policy: str, wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = DaemonsOfTowns(tmp_path, monkeypatch, policy)
    daemons.wanted = wanted
    await daemons.trained(2)
    for party in ("telco", "retail"):
        table = daemons.share(party).lookup_table
        assert not table.category_columns
        assert not table.category_sets
