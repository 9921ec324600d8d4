"""A label added by bin under encryption, ones, classes or numbers; and what a liar reads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.standard_columns import standardised
from fedmq.errors import MessageError
from fedmq.privacy.lattice.inner_products import (
    ColumnKey,
    Products,
    encrypt_column,
    read_products,
)
from fedmq.privacy.lattice.label_sums import (
    _keys,
    _layout,
    add_label,
    decrypt_label,
    encrypt_label,
    told_bits,
)

KEY = ColumnKey(b"p" * 32, b"s" * 32)
SEED = bytes(32)
ROWS = 60


def columns(rows: int = ROWS) -> list[NDArray[np.uint16]]:
    random = np.random.default_rng(0)
    return [random.integers(bins, size=rows).astype(np.uint16) for bins in (1, 3, 7)]


def summed(
    encrypted: NDArray[np.uint8], bins: list[NDArray[np.uint16]], classes: int
) -> list[NDArray[np.generic]]:
    counts = [np.bincount(column) for column in bins]
    answers = add_label(KEY.public, encrypted, bins, classes, SEED)
    return decrypt_label(KEY, answers, counts, classes)


def apart(answers: NDArray[np.uint8]) -> Products:
    """The hints, and the numbers of one column, of bins' answers."""
    hint = _layout(ROWS, 2).hint_bytes
    return Products(answers[:, :hint], answers[:, np.newaxis, hint:])


@pytest.mark.parametrize("rows", [7, 60, 9000])
def test_ones_are_counted_by_bin(rows: int) -> None:
    label = np.random.default_rng(1).random(rows) < 0.4
    found = summed(encrypt_label(KEY, label, 2), columns(rows), 2)
    for column, ones in zip(columns(rows), found, strict=True):
        assert ones.tolist() == np.bincount(column[label], minlength=column.max() + 1).tolist()


@pytest.mark.parametrize("classes", [3, 11])
def test_people_of_each_class_are_counted_by_bin(classes: int) -> None:
    label = np.random.default_rng(1).integers(classes, size=ROWS).astype(np.uint8)
    found = summed(encrypt_label(KEY, label, classes), columns(), classes)
    for column, people in zip(columns(), found, strict=True):
        wanted = np.zeros((column.max() + 1, classes), int)
        np.add.at(wanted, (column, label), 1)
        assert people.tolist() == wanted.tolist()


def test_a_label_of_numbers_is_added_by_bin_in_fixed_point() -> None:
    skewed = np.append(np.random.default_rng(1).normal(size=ROWS - 1), 1e6)
    label = standardised(skewed[:, None])[:, 0]
    found = summed(encrypt_label(KEY, label, 0), columns(), 0)
    for column, sums in zip(columns(), found, strict=True):
        np.testing.assert_allclose(sums, np.bincount(column, label), atol=ROWS * 2**-12)
    assert found[2].min() < 0 < found[2].max()


def test_the_largest_sums_of_a_standardised_label_fit() -> None:
    for rows in (62, 63, 64):
        half = (np.arange(rows) < rows // 2).astype(np.uint16)
        label = standardised(np.where(half, 1.0, -1.0)[:, None])[:, 0]
        [sums] = summed(encrypt_label(KEY, label, 0), [half], 0)
        np.testing.assert_allclose(sums, np.bincount(half, label), atol=rows * 2**-12)


def test_powers_of_two_for_labels_tell_the_bins_of_as_many_people_as_an_answer_has_bits() -> None:
    column, layout = columns()[1], _layout(ROWS, 2)
    lie = np.where(np.arange(ROWS) < 31, 1 << np.minimum(np.arange(ROWS), 30), 0)
    [key] = _keys(KEY, 2)
    [answers] = add_label(KEY.public, encrypt_column(key, lie, layout), [column], 2, SEED)
    products = apart(answers)
    for number, [read] in enumerate(read_products([key], products, layout)):
        honest = sum(1 << row for row in range(31) if column[row] == number)
        assert (read >> layout.offset) - honest % (1 << layout.sum_bits) in (0, 1 - 2**6)
        # Beside these bits and one more there is nothing but noise.
        assert layout.width == 1 << (layout.offset - 1)


def test_all_that_is_below_half_of_a_count_is_evenly_drawn() -> None:
    column, encrypted = np.zeros(ROWS, np.uint16), encrypt_label(KEY, np.ones(ROWS, np.bool_), 2)
    below, shares = _layout(ROWS, 2).width, []
    for seed in range(40):
        [answer] = add_label(KEY.public, encrypted, [column], 2, bytes([seed]) * 32)
        products = apart(answer)
        [[number]] = read_products(_keys(KEY, 2), products, _layout(ROWS, 2))
        shares.append(number % below / below)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.15)
    assert np.std(shares) == pytest.approx(12**-0.5, abs=0.08)


def test_another_seed_masks_other_answers() -> None:
    column, encrypted = np.zeros(ROWS, np.uint16), encrypt_label(KEY, np.ones(ROWS, np.bool_), 2)
    [one], [again], [other] = (
        add_label(KEY.public, encrypted, [column], 2, seed) for seed in (SEED, SEED, b"o" * 32)
    )
    assert (one == again).all()
    assert (one != other).mean() > 0.9


def test_answers_have_as_many_bits_as_the_page_of_screens_says() -> None:
    told = [told_bits(100_000, classes) for classes in (2, 3, 10, 50, 0)]
    assert told == [18, 36, 162, 882, 29]


def test_as_many_labels_as_rows_are_needed_and_no_more_people_than_rows() -> None:
    encrypted = encrypt_label(KEY, np.ones(4, np.uint8), 3)
    with pytest.raises(MessageError, match="one encrypted number for each row"):
        summed(encrypted, [np.zeros(5, np.uint16)], 3)
    column = np.array([0, 0, 0, 1], np.uint16)
    added = add_label(KEY.public, encrypted, [column], 3, SEED)
    with pytest.raises(MessageError, match="more people"):
        decrypt_label(KEY, added, [np.array([2, 2])], 3)
    with pytest.raises(MessageError, match="another length"):
        decrypt_label(KEY, added, [np.array([3, 1])], 2)
