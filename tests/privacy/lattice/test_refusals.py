"""Malformed and truncated queries, hints and answers are refused, in one clear line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.lattice.hint import JoinHints
from fedmq.privacy.lattice.parameters import Layout
from fedmq.privacy.lattice.query import EncryptNode, read_answer, read_query
from fedmq.privacy.lattice.ring import PublicElements, shares_of
from tests.privacy.lattice.computed import Computed, binned

LAYOUT = Layout(100, 64)
LIMBS = LAYOUT.sent_limbs
UNITS = LAYOUT.hint_units


WIDE = Layout(30_000)
"""Its queries have half limbs, and travel in three pieces."""


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmq.privacy.lattice.query.LARGEST_PIECE_BYTES", 400_000)


def query(layout: Layout) -> list[dict[str, Any]]:
    rows = np.arange(layout.rows)
    seed = b"q" * 32
    public = PublicElements.joined([share.run() for share in shares_of(seed, layout, 1)])
    return EncryptNode(np.zeros((layout.rows, 2), np.int64), [rows], public, layout, seed).run()


def changed(layout: Layout, place: int, **changes: Any) -> list[dict[str, Any]]:
    """A query with another piece; a change to None leaves a field out."""
    pieces = query(layout)
    piece = {**pieces[place], **changes}
    pieces[place] = {name: value for name, value in piece.items() if value is not None}
    return pieces


def test_a_query_is_read() -> None:
    read = read_query(query(LAYOUT), LAYOUT)
    assert read.rows.shape == (LIMBS, 100)
    assert read.masks.shape == (LIMBS, 64)
    [piece] = query(LAYOUT)
    np.testing.assert_array_equal(read.rows, piece["limbs"][:, :100])
    np.testing.assert_array_equal(read.masks, piece["limbs"][:, 100:])


def test_half_limbs_are_read() -> None:
    assert WIDE.sends_half
    pieces = query(WIDE)
    read = read_query(pieces, WIDE)
    halves = np.concatenate([piece["half"] for piece in pieces]).astype(np.float64)
    np.testing.assert_array_equal(read.rows[0], halves[:30_000] * 2**16)
    np.testing.assert_array_equal(read.masks[0], halves[30_000:] * 2**16)


@pytest.mark.parametrize(
    "limbs",
    [
        None,
        1,
        np.zeros((LIMBS, 163), np.uint32),
        np.zeros((LIMBS, 165), np.uint32),
        np.zeros((LIMBS - 1, 164), np.uint32),
        np.zeros((LIMBS, 164), np.int64),
        np.zeros(164, np.uint32),
    ],
    ids=["none", "number", "short", "long", "few", "signed", "flat"],
)
def test_malformed_limbs_of_a_query_are_refused(limbs: Any) -> None:
    with pytest.raises(MessageError, match="a piece of a query that is not limbs"):
        read_query(changed(LAYOUT, 0, limbs=limbs), LAYOUT)


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("half", [3, np.zeros(7, np.uint16), np.zeros(30_000, np.uint32)], ids=str)
def test_malformed_half_limbs_are_refused(half: Any, place: int) -> None:
    with pytest.raises(MessageError, match="half limbs are not uint16"):
        read_query(changed(WIDE, place, half=half), WIDE)


@pytest.mark.parametrize("changes", [{"half": None}, {"more": 1}], ids=str)
def test_a_piece_of_other_fields_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match="a piece of a query that is not limbs"):
        read_query(changed(WIDE, 1, **changes), WIDE)


@pytest.mark.parametrize("count", [0, 2, 4, 7])
def test_a_query_of_too_few_or_many_pieces_is_refused(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("fedmq.privacy.lattice.query.LARGEST_PIECE_BYTES", 24 * 64)
    computed = Computed(binned(100), 64)
    pieces = (3 * computed.query(np.zeros((100, 2), np.int64), np.arange(4)))[:count]
    with pytest.raises(MessageError, match=f"a query of {count} pieces, not 3"):
        computed.answering(pieces).limbs()


def test_pieces_in_another_order_are_refused() -> None:
    with pytest.raises(MessageError, match="a piece of a query that is not limbs"):
        read_query(query(WIDE)[::-1], WIDE)


@pytest.mark.parametrize(
    "piece",
    [
        {},
        {"hint": 1},
        {"hint": np.zeros((1, UNITS, 63), np.uint16)},
        {"hint": np.zeros((1, UNITS - 1, 64), np.uint16)},
        {"hint": np.zeros((UNITS, 64), np.uint16)},
        {"hint": np.zeros((1, UNITS, 64), np.uint32)},
        {"hint": np.zeros((1, UNITS, 64), np.uint16), "more": 1},
    ],
)
def test_a_malformed_hint_is_refused(piece: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match="a hint that is not uint16"):
        JoinHints([piece], LAYOUT).run()


def answer(numbers: list[int]) -> dict[str, Any]:
    return {
        "numbers": np.array(numbers, np.uint32),
        "sums": np.zeros((len(numbers), 6), np.uint32),
    }


def test_an_answer_is_read() -> None:
    numbers, sums = read_answer([answer([2, 0]), answer([1])], 3)
    assert numbers.tolist() == [2, 0, 1]
    assert sums.shape == (3, 6)


@pytest.mark.parametrize(
    "piece",
    [
        {},
        {"sums": np.zeros((1, 6), np.uint32)},
        {"numbers": 1, "sums": np.zeros((1, 6), np.uint32)},
        {"numbers": np.zeros(2, np.uint32), "sums": np.zeros((1, 6), np.uint32)},
        {"numbers": np.zeros(1, np.uint32), "sums": np.zeros((1, 5), np.uint32)},
        {"numbers": np.zeros(1, np.uint32), "sums": np.zeros((1, 6), np.int64)},
        {"numbers": np.zeros(1, np.int64), "sums": np.zeros((1, 6), np.uint32)},
        answer([0]) | {"more": 1},
    ],
)
def test_a_malformed_answer_is_refused(piece: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match="an answer that is not"):
        read_answer([piece], 3)


@pytest.mark.parametrize("numbers", [[0, 0], [3], [0, 2**32 - 1]])
def test_an_answer_under_numbers_that_are_not_of_hints_is_refused(numbers: list[int]) -> None:
    with pytest.raises(MessageError, match="names a hint twice, or none of the 3"):
        read_answer([answer(numbers)], 3)


def test_an_answer_of_no_pieces_is_refused() -> None:
    with pytest.raises(MessageError, match="without pieces"):
        read_answer([], 3)
