"""How do two parties share a label's sums by bin? One encrypts, the other masks what it adds up.

The active party encrypts two columns: 1 for each person with label 1, and what the person adds to
``d`` of `fedmq.privacy.hidden_screen.steps`. The passive party adds them up by its bins
(`fedmq.privacy.lattice.inner_products`), and to each sum a number E that it draws evenly from all
modulo q. So what the active party decrypts is even, whatever it has encrypted: it is its share, and
-E the passive party's. Both cut off low bits, of which those that errors reach: two bits below a
person are kept, so that one more of them and a cut give the sum itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.privacy.hidden_screen.steps import (
    DIFFERENCE_BITS,
    FRACTION_BITS,
    LABEL_FRACTION_BITS,
    SCALE,
    share_bits,
)
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

__all__ = ["BinShares", "add_shared_label", "encrypt_shared_label", "read_shares", "shared_numbers"]

_COLUMNS = 2
_SUM_BITS = LABEL_FRACTION_BITS + 1
_OFFSET = ProductsLayout.offset_of(_SUM_BITS)
_ONES_PLACE = _OFFSET - 2  # above it errors move a share by one at most
_DIFFERENCE_PLACE = _OFFSET + LABEL_FRACTION_BITS - FRACTION_BITS


class BinShares(NamedTuple):
    """A party's shares of bins, uint64 (bins,) each: of their ones, and of d."""

    ones: NDArray[np.uint64]
    difference: NDArray[np.uint64]


def _layout(rows: int) -> ProductsLayout:
    """Errors stay below a quarter of a unit."""
    return ProductsLayout(rows, _SUM_BITS, 1 << (_OFFSET - 1), masks=True)


def shared_numbers(rows: int) -> int:
    """The numbers of so many encrypted labels, with those of masks."""
    return _COLUMNS * _layout(rows).numbers


def _keys(key: ColumnKey) -> list[ColumnKey]:
    stream = Stream(key.seed, "fedmq shared label columns")
    return [ColumnKey(key.public, stream.read(SEED_BYTES)) for _ in range(_COLUMNS)]


@computation("EncryptSharedLabel")
def encrypt_shared_label(key: ColumnKey, values: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The label as it travels: uint8 (numbers, 12).

    ``values`` (rows,), eight of either kind at least. ``key`` must encrypt nothing else.
    """
    ones = int(values.sum())
    unit = SCALE * 2**LABEL_FRACTION_BITS
    adds = np.where(values, round(unit / ones), -round(unit / (len(values) - ones)))
    columns = values.astype(np.int64), adds.astype(np.int64)
    layout = _layout(len(values))
    encrypted = [encrypt_column(*each, layout) for each in zip(_keys(key), columns, strict=True)]
    return np.concatenate(encrypted)


@computation("AddSharedLabel")
def add_shared_label(
    public: bytes, encrypted: NDArray[np.uint8], columns: Sequence[NDArray[np.uint16]], seed: bytes
) -> tuple[list[NDArray[np.uint8]], list[BinShares]]:
    """The encrypted, masked sums by bin of each of ``columns``, and this party's shares of them.

    ``columns`` uint16 (rows,); sums uint8 (bins, bytes) each. ``seed`` must mask no other sums.

    Raises:
        MessageError: the encrypted labels are not as many as the rows.
    """
    layout = _layout(len(columns[0]))
    if len(encrypted) != shared_numbers(layout.rows):
        raise MessageError("one encrypted number for each row is needed, and those of masks")
    bins = [int(column.max()) + 1 for column in columns]
    weights = np.zeros((layout.rows, sum(bins)), np.uint8)
    first = 0
    for column, count in zip(columns, bins, strict=True):
        weights[np.arange(layout.rows), first + column.astype(np.intp)] = 1
        first += count
    drawn = even_noise(seed, _COLUMNS * sum(bins), 1 << MODULUS_BITS)
    noise = [drawn[place : place + _COLUMNS] for place in range(0, len(drawn), _COLUMNS)]
    masks = Stream(seed, "fedmq shared label masks")
    seeds = [masks.read(SEED_BYTES) for _ in noise]
    together = np.split(encrypted, _COLUMNS)
    found = answer_products(public, together, weights, layout, seeds, noise)
    sums = np.concatenate([found.hints, found.numbers.reshape(len(noise), -1)], axis=1)
    shares = BinShares(
        _share([-(one >> _ONES_PLACE) for one, _ in noise], share_bits(layout.rows)),
        _share([-(moved >> _DIFFERENCE_PLACE) for _, moved in noise], DIFFERENCE_BITS),
    )
    ends = np.cumsum(bins)[:-1]
    ones, differences = np.split(shares.ones, ends), np.split(shares.difference, ends)
    return np.split(sums, ends), [BinShares(*each) for each in zip(ones, differences, strict=True)]


@computation("ReadScreenShares")
def read_shares(key: ColumnKey, columns: Sequence[NDArray[np.uint8]], rows: int) -> list[BinShares]:
    """The active party's shares of each column's bins, by the sums that came.

    Raises:
        MessageError: an answer has another length.
    """
    keys, layout, found = _keys(key), _layout(rows), list[BinShares]()
    hint_bytes = layout.hint_bytes
    for answered in columns:
        if answered.shape != (len(answered), hint_bytes + NUMBER_BYTES * _COLUMNS):
            raise MessageError("a sum of another length than a shared label has")
        numbers = answered[:, hint_bytes:].reshape(len(answered), _COLUMNS, NUMBER_BYTES)
        read = read_products(keys, Products(answered[:, :hint_bytes], numbers), layout)
        found.append(
            BinShares(
                # One more, for errors may have taken one: the two lowest bits are cut off.
                _share([(one >> _ONES_PLACE) + 1 for one, _ in read], share_bits(rows)),
                _share([moved >> _DIFFERENCE_PLACE for _, moved in read], DIFFERENCE_BITS),
            )
        )
    return found


def _share(numbers: Sequence[int], bits: int) -> NDArray[np.uint64]:
    return np.array([number % (1 << bits) for number in numbers], np.uint64)
