"""Malformed and truncated queries, hints and answers are refused, in one clear line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.lattice.decryption import read_answer
from fedmq.privacy.lattice.hint import JoinHints
from fedmq.privacy.lattice.layout import Layout
from fedmq.privacy.lattice.query import read_query

LAYOUT = Layout(100, 64)
LIMBS = LAYOUT.sent_limbs
UNITS = LAYOUT.hint_units


def query() -> list[dict[str, Any]]:
    return [
        {"rows": np.zeros((LIMBS, 64), np.uint32)},
        {"rows": np.zeros((LIMBS, 36), np.uint32)},
        {"masks": np.zeros((LIMBS, 64), np.uint32)},
    ]


def test_a_query_is_read() -> None:
    read = read_query(query(), LAYOUT)
    assert read.rows.shape == (LIMBS, 100)
    assert read.masks.shape == (LIMBS, 64)


@pytest.mark.parametrize(
    ("place", "piece"),
    [
        (0, {}),
        (0, {"rows": 1}),
        (0, {"rows": np.zeros((LIMBS, 63), np.uint32)}),
        (0, {"rows": np.zeros((LIMBS - 1, 64), np.uint32)}),
        (0, {"rows": np.zeros((LIMBS, 64), np.int64)}),
        (0, {"masks": np.zeros((LIMBS, 64), np.uint32)}),
        (1, {"rows": np.zeros((LIMBS, 64), np.uint32)}),
        (1, {"rows": np.zeros((LIMBS, 36), np.uint32), "more": 1}),
        (2, {"rows": np.zeros((LIMBS, 64), np.uint32)}),
        (2, {"masks": np.zeros((LIMBS, 36), np.uint32)}),
    ],
)
def test_a_malformed_query_is_refused(place: int, piece: dict[str, Any]) -> None:
    pieces = query()
    pieces[place] = piece
    with pytest.raises(MessageError, match="a piece of a query that is not"):
        read_query(pieces, LAYOUT)


def halved(**changes: Any) -> list[dict[str, Any]]:
    """A query of which half limbs travel."""
    layout = Layout(200)
    assert layout.sends_half
    pieces = [
        {
            name: np.zeros((layout.sent_limbs - 1, count), np.uint32),
            "half": np.zeros(count, np.uint16),
        }
        for name, count in (("rows", 200), ("masks", layout.degree))
    ]
    pieces[0] |= changes
    return pieces


def test_half_limbs_are_read() -> None:
    halves = np.arange(200, dtype=np.uint16)
    read = read_query(halved(half=halves), Layout(200))
    np.testing.assert_array_equal(read.rows[0], halves.astype(np.float64) * 2**16)


@pytest.mark.parametrize(
    "half", [None, 3, np.zeros(199, np.uint16), np.zeros(200, np.uint32), np.zeros((1, 200))]
)
def test_malformed_half_limbs_are_refused(half: Any) -> None:
    with pytest.raises(MessageError, match=r"half limbs are not uint16 \(200,\)"):
        read_query(halved(half=half), Layout(200))


def test_a_query_without_its_half_limbs_is_refused() -> None:
    pieces = halved()
    del pieces[1]["half"]
    with pytest.raises(MessageError, match="a piece of a query that is not masks"):
        read_query(pieces, Layout(200))


@pytest.mark.parametrize("pieces", [[], query()[:2], [*query(), *query()]])
def test_a_query_of_too_few_or_many_pieces_is_refused(pieces: list[dict[str, Any]]) -> None:
    with pytest.raises(MessageError, match=f"a query of {len(pieces)} pieces, not 3"):
        read_query(pieces, LAYOUT)


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
