"""How does a party add up a label by the bins of its columns without reading a label?

A bin is a column of weights, 1 where a row stands in it (`fedmq.privacy.lattice.inner_products`). A
label of two classes is a column of 0 and 1. Of more classes it is such a column for each but class
0, the people of which are those that remain. Of numbers it is the standardised label in fixed
point. Columns of other contents disclose at most :func:`told_bits` bits of a bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.privacy.lattice.inner_products import (
    MODULUS_BITS,
    NUMBER_BYTES,
    ColumnKey,
    Products,
    ProductsLayout,
    answer_products,
    encrypt_column,
    even_noise,
    read_products,
)
from fedmq.privacy.random_stream import SEED_BYTES, Stream

__all__ = ["add_label", "decrypt_label", "encrypt_label", "numbers_of", "told_bits"]

_FRACTION_BITS = 11  # of a standard deviation of the label


def told_bits(rows: int, classes: int) -> int:
    """Bits of an answer for a bin of so many ``rows`` at most; ``classes`` 0: of numbers."""
    return _columns(classes) * (_layout(rows, classes).sum_bits + 1)


def numbers_of(rows: int, classes: int) -> int:
    """The numbers of so many encrypted labels, with those of masks."""
    return _columns(classes) * _layout(rows, classes).numbers


def _columns(classes: int) -> int:
    return max(1, classes - 1)


def _layout(rows: int, classes: int) -> ProductsLayout:
    """Noise is below half of a unit, so that errors on both sides of it reach no other sum."""
    # With its sign: the labels of a part of standardised rows add up to half of their number.
    bits = rows.bit_length() + (0 if classes else _FRACTION_BITS)
    return ProductsLayout(rows, bits, 1 << ProductsLayout.offset_of(bits + 1))


def _keys(key: ColumnKey, classes: int) -> list[ColumnKey]:
    """A key for each column."""
    stream = Stream(key.seed, "fedmq label columns")
    return [ColumnKey(key.public, stream.read(SEED_BYTES)) for _ in range(_columns(classes))]


@computation("EncryptLabel")
def encrypt_label(key: ColumnKey, values: NDArray[Any], classes: int) -> NDArray[np.uint8]:
    """The label as it travels: uint8 (numbers, 12).

    ``values`` (rows,): from 0 on of so many ``classes``, or with 0 of them standardised float64.
    ``key`` must encrypt nothing else.
    """
    layout, keys = _layout(len(values), classes), _keys(key, classes)
    if classes:
        columns = [(values == number).astype(np.int64) for number in range(1, classes)]
    else:
        columns = [np.rint(values * 2**_FRACTION_BITS).astype(np.int64)]
    encrypted = [encrypt_column(*each, layout) for each in zip(keys, columns, strict=True)]
    return np.concatenate(encrypted)


@computation("AddLabel")
def add_label(
    public: bytes,
    encrypted: NDArray[np.uint8],
    columns: Sequence[NDArray[np.uint16]],
    classes: int,
    seed: bytes,
) -> list[NDArray[np.uint8]]:
    """The encrypted sums by bin of each of ``columns``, uint16 (rows,): uint8 (bins, bytes) each.

    ``seed`` must mask no other sums.

    Raises:
        MessageError: the encrypted labels are not as many as the rows.
    """
    layout = _layout(len(columns[0]), classes)
    if len(encrypted) != numbers_of(layout.rows, classes):
        raise MessageError("one encrypted number for each row is needed, and those of masks")
    bins = [int(column.max()) + 1 for column in columns]
    weights = np.zeros((sum(bins), layout.rows), np.uint8)
    first = 0
    for column, count in zip(columns, bins, strict=True):
        weights[first + column.astype(np.intp), np.arange(layout.rows)] = 1
        first += count
    together = np.split(encrypted, _columns(classes))
    drawn = even_noise(seed, len(weights) * len(together), layout.width)
    noise = [drawn[place :: len(weights)] for place in range(len(weights))]
    masks = Stream(seed, "fedmq label masks")
    seeds = [masks.read(SEED_BYTES) for _ in weights]
    found = answer_products(public, together, weights.T, layout, seeds, noise)
    sums = np.concatenate([found.hints, found.numbers.reshape(len(weights), -1)], axis=1)
    return np.split(sums, np.cumsum(bins)[:-1])


@computation("DecryptLabel")
def decrypt_label(
    key: ColumnKey,
    columns: Sequence[NDArray[np.uint8]],
    counts: Sequence[NDArray[np.integer]],
    classes: int,
) -> list[NDArray[Any]]:
    """The label by the bins of each column; ``counts``: the rows of each bin.

    int64 (bins,) ones of two classes, int64 (bins, classes) people of more, or of numbers float64
    (bins,) sums.

    Raises:
        MessageError: an answer has another length, or a bin has more people than rows.
    """
    keys, found = _keys(key, classes), list[NDArray[Any]]()
    for answered, held in zip(columns, counts, strict=True):
        layout = _layout(int(held.sum()), classes)
        hint_bytes = layout.hint_bytes
        if answered.shape != (len(held), hint_bytes + NUMBER_BYTES * len(keys)):
            raise MessageError("a sum of another length than the label has columns")
        numbers = answered[:, hint_bytes:].reshape(len(held), len(keys), NUMBER_BYTES)
        products = Products(answered[:, :hint_bytes], numbers)
        sums = [
            [(each + layout.width // 2) % (1 << MODULUS_BITS) >> layout.offset for each in own]
            for own in read_products(keys, products, layout)
        ]
        read = np.array(sums, np.int64)
        if not classes:
            half = 1 << (layout.sum_bits - 1)
            signed = (read[:, 0] + half) % (2 * half) - half
            found.append(signed / 2**_FRACTION_BITS)
            continue
        first = held.astype(np.int64) - read.sum(axis=1)
        if (first < 0).any():
            raise MessageError("more people of all classes than rows in a bin")
        found.append(read[:, 0] if classes == 2 else np.column_stack([first, read]))
    return found
