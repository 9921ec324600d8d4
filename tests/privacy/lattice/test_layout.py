"""Bounds hold for every number of rows that is let in, and no other is."""

from __future__ import annotations

from math import log2

import pytest

from fedmq.errors import DataError
from fedmq.privacy.lattice.parameters import LIMB_BITS, LIMBS, MOST_ROWS, Layout

SIZES = [1, 2, 8191, 8192, 8193, 30_000, 2**15, 2**15 + 1, 2**17, 10**6, 2**20, MOST_ROWS]


@pytest.mark.parametrize("value_bits", [*range(1, 16), 40])
@pytest.mark.parametrize("rows", SIZES)
def test_the_noise_of_the_worst_case_stays_below_the_fields(rows: int, value_bits: int) -> None:
    layout = Layout(rows, value_bits=value_bits)
    assert layout.largest_noise < 2 ** (layout.noise_bits - 1)
    assert layout.noise_bits + 2 * layout.nodes * layout.field_bits == LIMBS * LIMB_BITS
    assert rows * 2**value_bits < 2 ** (layout.field_bits - 1)
    assert layout.most_answers > 2**21
    assert layout.most_answers >= 2**26 or (layout.nodes, layout.dropped_bits) == (1, 0)


@pytest.mark.parametrize(
    ("rows", "value_bits", "nodes", "limbs"),
    [
        (2**15, 40, 1, 5.5),
        (40_000, 40, 1, 6),
        (30_000, 7, 2, 5),
        (30_000, 3, 3, 6),
        (30_000, 15, 1, 4),
        (10**6, 7, 2, 6),
    ],
)
def test_few_bits_leave_room_for_nodes_or_need_fewer_limbs(
    rows: int, value_bits: int, nodes: int, limbs: float
) -> None:
    layout = Layout(rows, value_bits=value_bits)
    assert layout.nodes == nodes
    assert layout.sent_limbs - layout.sends_half / 2 == limbs


@pytest.mark.parametrize("value_bits", [*range(1, 16), 40])
@pytest.mark.parametrize("rows", SIZES)
def test_errors_put_one_hidden_sum_of_2_to_the_36_in_doubt(rows: int, value_bits: int) -> None:
    layout = Layout(rows, value_bits=value_bits, hidden=True)
    assert layout.flood_uniforms == 1
    assert layout.flood_bits == layout.noise_bits
    assert layout.noise_bits + 2 * layout.field_bits == LIMBS * LIMB_BITS
    assert 2 * layout.largest_error <= 2 ** (layout.noise_bits - 36)


@pytest.mark.parametrize(
    ("rows", "value_bits", "size", "limbs"),
    [
        (1000, 40, 163_840, 5),
        (30_000, 40, 180_224, 5.5),
        (150_000, 40, 180_224, 5.5),
        (10**6, 40, 180_224, 6),
        (MOST_ROWS, 40, 196_608, 6),
        (30_000, 7, 114_688, 3.5),
    ],
)
def test_the_length_of_hints_and_queries_where_sums_are_hidden(
    rows: int, value_bits: int, size: int, limbs: float
) -> None:
    layout = Layout(rows, value_bits=value_bits, hidden=True)
    assert layout.hint_bytes == size
    assert layout.sent_limbs - layout.sends_half / 2 == limbs


@pytest.mark.parametrize("rows", [0, 2**21, 10**7])
def test_more_rows_than_are_summed_exactly_are_refused(rows: int) -> None:
    with pytest.raises(DataError, match=rf"{rows:,} rows; engine 'lattice' sums 2,097,151 at most"):
        Layout(rows)


@pytest.mark.parametrize(("rows", "bits"), [(30_000, 27), (150_000, 38), (10**6, 27)])
def test_the_budget_of_answers(rows: int, bits: int) -> None:
    assert round(log2(Layout(rows).most_answers)) == bits


@pytest.mark.parametrize(("rows", "size"), [(1000, 131_072), (30_000, 131_072), (10**6, 147_456)])
def test_the_length_of_a_hint(rows: int, size: int) -> None:
    assert Layout(rows).hint_bytes == size


def test_blocks_hold_all_rows() -> None:
    for rows in (1, 63, 64, 65, 200):
        layout = Layout(rows, 64)
        held = [row for block in range(layout.blocks) for row in range(rows)[layout.rows_of(block)]]
        assert held == list(range(rows))
