"""Rows are held out at random, by class, by group or by date; never one of them twice."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import DataError
from fedmq.party.configuration.job import ByGroup, ByNewest, Split
from fedmq.party.data.held_out import EvaluationShares

LABEL = (np.arange(1000) % 10 == 0).astype(np.float32)


def held_out(
    split: Split, texts: list[str] | None = None, **shares: float
) -> dict[str, np.ndarray]:
    given = shares or {"eval": 0.2}
    return EvaluationShares(given, split).sets("bank", LABEL, 7, lambda: texts or [])


def test_a_share_of_the_rows_is_drawn() -> None:
    rows = held_out("random")["eval"]
    assert 150 < rows.sum() < 250
    assert (rows == held_out("random")["eval"]).all()


def test_a_stratified_set_has_as_many_of_each_class() -> None:
    rows = held_out("stratified", first=0.2, second=0.3)
    for name, share in (("first", 0.2), ("second", 0.3)):
        assert LABEL[rows[name]].sum() == 100 * share
        assert rows[name].sum() == 1000 * share
    assert not (rows["first"] & rows["second"]).any()


def test_a_label_without_classes_is_not_stratified() -> None:
    shares = EvaluationShares({"eval": 0.2}, "stratified")
    with pytest.raises(DataError, match='split = "stratified" needs classes'):
        shares.sets("bank", np.arange(2000, dtype=np.float32), 7, list)


def test_a_group_is_not_divided() -> None:
    texts = [f"household {row // 4}" for row in range(1000)]
    rows = held_out(ByGroup(group="household"), texts)["eval"]
    assert 100 < rows.sum() < 300
    assert (rows.reshape(250, 4).all(axis=1) == rows.reshape(250, 4).any(axis=1)).all()


@pytest.mark.parametrize(
    "texts",
    [
        [f"20{row % 25:02}-03-01" for row in range(1000)],
        [f"{row % 25}" for row in range(1000)],
    ],
    ids=["dates", "numbers"],
)
def test_the_newest_are_held_out(texts: list[str]) -> None:
    rows = held_out(ByNewest(newest="since"), texts)["eval"]
    assert rows.sum() == 200
    assert set(np.arange(1000)[rows] % 25) == {20, 21, 22, 23, 24}


def test_an_empty_cell_cannot_be_split_by() -> None:
    texts = ["2020-01-01"] * 999 + [""]
    with pytest.raises(DataError, match="bank, column 'since': row 1000"):
        held_out(ByNewest(newest="since"), texts)


def test_a_set_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="evaluation = 1e-05 holds out no row of 1000"):
        held_out("random", eval=0.00001)
