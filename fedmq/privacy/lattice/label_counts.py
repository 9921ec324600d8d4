"""How does a party count ones of a label by the bins of its columns without reading a label?

A bin is a column of weights, 1 where a row stands in it (`fedmq.privacy.lattice.inner_products`).
Labels other than 0 and 1 disclose at most one bit more of a bin than the number of rows has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.privacy.lattice.inner_products import (
    HINT_BYTES,
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

__all__ = ["COUNT_BYTES", "count_ones", "decrypt_counts", "encrypt_labels", "numbers_of"]

COUNT_BYTES = HINT_BYTES + NUMBER_BYTES
"""Bytes of a bin's answer."""


def numbers_of(rows: int) -> int:
    """The numbers of so many encrypted labels, with those of masks."""
    return _layout(rows).numbers


def _layout(rows: int) -> ProductsLayout:
    """Noise is below half of a count, so that errors on both sides of it reach no other one."""
    bits = rows.bit_length()
    return ProductsLayout(rows, bits, 1 << ProductsLayout.offset_of(bits + 1))


@computation("EncryptLabels")
def encrypt_labels(key: ColumnKey, ones: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The labels (rows,) as they travel: uint8 (numbers, 12)."""
    return encrypt_column(key, ones.astype(np.int64), _layout(len(ones)))


@computation("CountOnes")
def count_ones(
    public: bytes,
    encrypted: NDArray[np.uint8],
    columns: Sequence[NDArray[np.uint16]],
    seed: bytes,
) -> list[NDArray[np.uint8]]:
    """The ones by bin of each of ``columns``, uint16 (rows,): uint8 (bins, bytes) each.

    ``seed`` must mask no other counts.

    Raises:
        MessageError: the encrypted labels are not as many as the rows.
    """
    layout = _layout(len(columns[0]))
    bins = [int(column.max()) + 1 for column in columns]
    weights = np.zeros((sum(bins), layout.rows), np.uint8)
    first = 0
    for column, count in zip(columns, bins, strict=True):
        weights[first + column.astype(np.intp), np.arange(layout.rows)] = 1
        first += count
    noise = [[drawn] for drawn in even_noise(seed, len(weights), layout.width)]
    found = answer_products(public, [encrypted], weights.T, layout, seed, noise)
    counted = np.concatenate([found.hints, found.numbers[:, 0]], axis=1)
    return np.split(counted, np.cumsum(bins)[:-1])


@computation("DecryptCounts")
def decrypt_counts(
    key: ColumnKey, columns: Sequence[NDArray[np.uint8]], rows: int
) -> list[NDArray[np.int64]]:
    """The ones by bin of each column, int64 (bins,), of so many ``rows``.

    Raises:
        MessageError: an answer has another length.
    """
    layout, found = _layout(rows), []
    for counted in columns:
        if counted.shape[1:] != (COUNT_BYTES,):
            raise MessageError(f"a count of other than {COUNT_BYTES:,} bytes")
        products = Products(counted[:, :HINT_BYTES], counted[:, np.newaxis, HINT_BYTES:])
        counts = [
            (number + layout.width // 2) % (1 << MODULUS_BITS) >> layout.offset
            for [number] in read_products([key], products)
        ]
        found.append(np.array(counts, np.int64))
    return found
