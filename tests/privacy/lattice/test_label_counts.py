"""Ones of a label by bin, counted under encryption; and what a liar reads instead."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.lattice.inner_products import (
    HINT_BYTES,
    ColumnKey,
    Products,
    encrypt_column,
    read_products,
)
from fedmq.privacy.lattice.label_counts import (
    _layout,
    count_ones,
    decrypt_counts,
    encrypt_labels,
)

KEY = ColumnKey(b"p" * 32, b"s" * 32)
SEED = bytes(32)


def counted(encrypted: NDArray[np.uint8], columns: list[NDArray[np.uint16]]) -> list[list[int]]:
    answers = count_ones(KEY.public, encrypted, columns, SEED)
    return [found.tolist() for found in decrypt_counts(KEY, answers, len(columns[0]))]


@pytest.mark.parametrize("rows", [1, 60, 9000])
def test_ones_are_counted_by_bin_of_each_column(rows: int) -> None:
    random = np.random.default_rng(0)
    label = random.random(rows) < 0.4
    columns = [random.integers(bins, size=rows).astype(np.uint16) for bins in (1, 3, 17)]
    for column, ones in zip(columns, counted(encrypt_labels(KEY, label), columns), strict=True):
        assert ones == np.bincount(column[label], minlength=column.max() + 1).tolist()


def test_powers_of_two_for_labels_tell_bins_of_one_person_more_than_the_rows_have_bits() -> None:
    rows = 60
    column = np.random.default_rng(1).integers(4, size=rows).astype(np.uint16)
    lie = np.where(np.arange(rows) < 31, 1 << np.minimum(np.arange(rows), 30), 0)
    found = counted(encrypt_column(KEY, lie, _layout(rows)), [column])[0]
    bits = rows.bit_length()
    for number in range(4):
        read = {row for row in range(rows) if found[number] >> row & 1}
        assert read == {row for row in range(bits) if column[row] == number}
    # Noise is as wide as all that is below half of a count.
    assert _layout(rows).width == 1 << (_layout(rows).offset - 1)


def test_all_that_is_below_half_of_a_count_is_evenly_drawn() -> None:
    column, numbers = np.zeros(60, np.uint16), encrypt_labels(KEY, np.ones(60, np.bool_))
    below, shares = _layout(60).width, []
    for seed in range(40):
        [[answer]] = count_ones(KEY.public, numbers, [column], bytes([seed]) * 32)
        read = Products(
            answer[np.newaxis, :HINT_BYTES], answer[np.newaxis, np.newaxis, HINT_BYTES:]
        )
        [[number]] = read_products([KEY], read)
        shares.append(number % below / below)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.15)
    assert np.std(shares) == pytest.approx(12**-0.5, abs=0.08)


def test_another_seed_masks_other_answers() -> None:
    column = np.zeros(60, np.uint16)
    numbers = encrypt_labels(KEY, np.ones(60, np.bool_))
    [one], [again], [other] = (
        count_ones(KEY.public, numbers, [column], seed) for seed in (SEED, SEED, b"o" * 32)
    )
    assert (one == again).all()
    assert (one != other).mean() > 0.9


def test_as_many_labels_as_rows_are_needed() -> None:
    with pytest.raises(MessageError, match="one encrypted number for each row"):
        counted(encrypt_labels(KEY, np.ones(3, np.bool_)), [np.zeros(4, np.uint16)])
    with pytest.raises(MessageError, match="a count of other than"):
        decrypt_counts(KEY, [np.zeros((2, 7), np.uint8)], 4)
