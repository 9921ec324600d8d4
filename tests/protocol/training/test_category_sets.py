"""Which candidates are categories of one column: what is said of it, and what cannot be meant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.splits import CandidateTable
from fedmq.errors import FedmqError, Inconsistent, ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.training import HistogramReply
from fedmq.protocol.training.candidates import count_cells, kept_candidates
from fedmq.protocol.training.claims import CandidateCategories, disclosed_categories


def numbers(*values: int) -> Array:
    return Array.of(np.array(values, np.uint32))


def reply(columns: Sequence[Array], piece: int = 0) -> HistogramReply:
    return HistogramReply(
        tree=0, node=1, round=0, piece=piece, pieces=2, payload={}, categories=tuple(columns)
    )


def test_columns_are_known_by_peer_and_node() -> None:
    held = CandidateCategories(["telco"])
    held.take("telco", reply([numbers(4, 0, 2), numbers(3, 1)]), 5)
    assert [column.tolist() for column in held.of("telco", 1, 5)] == [[4, 0, 2], [3, 1]]
    assert held.of("telco", 2, 5) == held.of("shop", 1, 5) == ()


@pytest.mark.parametrize(
    ("columns", "peer", "piece", "error"),
    [
        ([numbers(0, 1)], "shop", 0, ProtocolError),
        ([numbers(0, 1)], "telco", 1, ProtocolError),
        ([numbers(0)], "telco", 0, ProtocolError),
        ([numbers(0, 1), numbers(1, 2)], "telco", 0, ProtocolError),
        ([numbers(0, 5)], "telco", 0, Inconsistent),
    ],
    ids=["not announced", "a later piece", "one category", "twice", "beyond the candidates"],
)
def test_columns_that_cannot_be_are_illegal(
    columns: Sequence[Array], peer: str, piece: int, error: type[FedmqError]
) -> None:
    with pytest.raises(error):
        CandidateCategories(["telco"]).take(peer, reply(columns, piece), 5)


def test_candidates_that_a_node_did_not_show_are_no_categories() -> None:
    held = CandidateCategories(["telco"])
    held.take("telco", reply([numbers(0, 4)]), 5)
    with pytest.raises(ProtocolError, match="beyond its 3 candidates"):
        held.of("telco", 1, 3)


TOWN = np.array([0] * 6 + [1] * 5 + [2] * 4 + [-1] * 2)
VALUES = np.where(TOWN[:, None] < 0, np.nan, TOWN[:, None] == np.arange(3)).astype(np.float32)
BINS = BinMatrix.of(
    np.column_stack((VALUES, np.arange(len(TOWN)))).astype(np.float32),
    Cuts.of(np.column_stack((VALUES, np.arange(len(TOWN)))).astype(np.float32), 4).by_sets(
        [(0, 1, 2)], 3
    ),
)
TABLE = CandidateTable.of(BINS.cuts)


def test_an_owner_shows_its_categories_in_its_own_order() -> None:
    order = np.array([5, 2, 0, 4, 1, 3])
    [shown] = disclosed_categories(TABLE, order)
    assert shown.numpy().tolist() == [2, 4, 1]
    assert disclosed_categories(TABLE, np.array([5, 2, 0])) == ()  # a category is hidden


@pytest.mark.parametrize(
    ("smallest", "apart", "shown"), [(2, [], True), (3, [], False), (2, [7], False)], ids=str
)
def test_categories_are_shown_all_or_none(smallest: int, apart: list[int], shown: bool) -> None:
    """Two rows have no town; where one row of a town stands alone in a child, none is shown."""
    everyone = np.arange(len(TOWN), dtype=np.int32)
    nodes = [everyone]
    if apart:
        nodes = [np.array(apart, np.int32), np.setdiff1d(everyone, apart).astype(np.int32)]
    above = np.ones(len(TABLE), np.bool_)
    kept = kept_candidates(BINS.cuts, TABLE, above, count_cells(BINS, TABLE, nodes), smallest)
    assert kept[:3].tolist() == [shown] * 3
    assert kept[3:].any() or apart


@pytest.mark.parametrize(
    ("candidates", "legal"),
    [
        ([0, 2], True),
        ([1], True),
        ([0, 1, 2], False),
        ([0, 3], False),
        ([1, 1], False),
        ([], False),
    ],
    ids=str,
)
def test_a_set_is_some_but_not_all_categories_of_one_column(
    candidates: list[int], legal: bool
) -> None:
    assert TABLE.has_set(np.array(candidates, np.int64)) is legal
