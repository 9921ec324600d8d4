"""A query's numbers from products of ring elements, in the processor's own instructions.

What `query` computes array by array is one step for each coefficient here, to the same last bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.machine_code import features, translated
from fedmq.machine_loops import Array, Kept, Kind, Loops, Number
from fedmq.privacy.lattice.parameters import ERROR_BITS, LIMB_BITS, LIMBS, Layout
from fedmq.privacy.lattice.ring import Transform, check_distance, untwist

__all__ = ["FEWEST_BLOCKS", "Encrypting", "can_encrypt", "room", "spread_pairs", "untwisted"]

FEWEST_BLOCKS = 16
"""Translating the code takes 0.2 s, which twenty queries about so many blocks save."""

_WORD = 64
_MASK = (1 << LIMB_BITS) - 1


def can_encrypt(layout: Layout) -> bool:
    """Whether `Encrypting` is there, and worth its translation."""
    return layout.blocks >= FEWEST_BLOCKS and bool(features())


class Encrypting:
    """The numbers of one ring element after the other, under ``secret`` (N/2,)."""

    def __init__(self, layout: Layout, secret: Transform) -> None:
        self._layout = layout
        self._secret = secret
        self._run, _ = _functions(layout)
        shape = LIMBS, layout.degree // 2
        self._product, self._folded = room("product", *shape), room("back", *shape)

    def __call__(
        self, element: Transform, errors: NDArray[np.uint64], pairs: NDArray[np.int64]
    ) -> NDArray[np.uint32]:
        """a·s + e + u of the public ``element`` a (6, N/2): uint32 (sent limbs, N).

        ``errors`` (N,): words that `errors_in` would read. ``pairs`` int64 (2 * nodes, N): g and
        h of each node by row.

        Raises:
            Inexact: a coefficient is not within 1/4 of an integer.
        """
        layout = self._layout
        limbs, farthest = np.empty((layout.sent_limbs, layout.degree), np.uint32), np.empty(1)
        if pairs.shape != (2 * layout.nodes, layout.degree) or pairs.dtype != np.int64:
            raise ValueError(f"{pairs.dtype} {pairs.shape} for {layout.nodes} nodes")
        np.multiply(element, self._secret, out=self._product)
        np.fft.ifft(self._product, axis=-1, out=self._folded)
        turns = untwist(layout.degree)
        arrays = (limbs, farthest, self._folded, turns, errors, np.ascontiguousarray(pairs))
        self._run(*(array.ctypes.data for array in arrays))
        check_distance(farthest[0])
        return limbs


def room(name: str, rows: int, columns: int) -> Transform:
    """An array of this thread, until it asks for the same one: new memory takes longer to get."""
    rooms: dict[Any, Transform] = _ROOMS.__dict__
    key = name, rows, columns
    if key not in rooms:
        rooms[key] = np.empty((rows, columns), np.complex128)
    return rooms[key]


_ROOMS = local()


def spread_pairs(
    sums: NDArray[np.int64], pairs: NDArray[np.int64], rows: NDArray[np.integer], layout: Layout
) -> None:
    """Put ``pairs`` (all rows, 2) of a node's ``rows`` into ``sums`` (2, rows), 0 elsewhere.

    The first column of ``sums`` is row 0. Raises IndexError for a row that is not in both.
    """
    held = min(sums.shape[1], len(pairs))
    if len(rows) and not 0 <= rows.min() <= rows.max() < held:
        raise IndexError("a row that is not in the table")
    if len(rows):
        _, spread = _functions(layout)
        arrays = (sums, np.ascontiguousarray(pairs), np.ascontiguousarray(rows, np.int32))
        spread(*(array.ctypes.data for array in arrays), len(rows), sums.shape[1])


# The code, which is translated once in a process for each layout


@lru_cache
def _functions(layout: Layout) -> tuple[Callable[..., None], Callable[..., None]]:
    loops = Loops()
    # The distance is written as its bits.
    kinds: tuple[Kind, ...] = ("u32", "i64", "f64", "f64", "u64", "i64")
    loops.function("encrypted", kinds, 0, partial(_write_encrypted, layout))
    loops.function("spread", ("i64", "i64", "i32"), 2, _write_spread)
    encrypted, spread = translated(str(loops), "encrypted", "spread", as_vectors=True)
    pointers: list[Any] = [ctypes.c_void_p] * 6
    return (
        ctypes.CFUNCTYPE(None, *pointers)(encrypted),
        ctypes.CFUNCTYPE(None, *pointers[:3], ctypes.c_int64, ctypes.c_int64)(spread),
    )


def _write_encrypted(
    layout: Layout,
    loops: Loops,
    limbs: Array,
    farthest: Array,
    folded: Array,
    untwist: Array,
    errors: Array,
    pairs: Array,
) -> None:
    half, first = layout.degree // 2, LIMBS - layout.sent_limbs
    most = loops.kept(0)
    with loops.each(half) as k:
        products = [
            untwisted(folded, untwist, loops.number(half * limb), k, most) for limb in range(LIMBS)
        ]
        for part, at in enumerate((k, k + half)):
            sums = [product[part] for product in products]
            sums[0] = sums[0] + _error(errors.read(at))
            for node in range(layout.nodes):
                offsets = layout.g_offset(node), layout.h_offset(node)
                for row, offset in enumerate(offsets, start=2 * node):
                    _add_shifted(sums, pairs.read(at + row * layout.degree), offset)
            if layout.dropped_bits:  # round the low bits away
                limb, shift = divmod(layout.dropped_bits - 1, LIMB_BITS)
                sums[limb] = sums[limb] + (1 << shift)
            for limb in range(LIMBS):
                if limb >= first:
                    limbs.write(at + (limb - first) * layout.degree, sums[limb] & _MASK)
                if limb + 1 < LIMBS:
                    sums[limb + 1] = sums[limb + 1] + (sums[limb] >> LIMB_BITS)
    farthest.write(0, most.get())


def _error(word: Number) -> Number:
    """As `errors_in` reads a word."""
    low = (1 << ERROR_BITS) - 1
    return (word & low).ones() - (word.unsigned_shift(ERROR_BITS) & low).ones()


def _add_shifted(sums: list[Number], value: Number, offset: int) -> None:
    """As `add_shifted` of ``parameters``."""
    limb, shift = divmod(offset, LIMB_BITS)
    low = value << shift
    parts = (low & _MASK, low.unsigned_shift(LIMB_BITS), value >> min(_WORD - shift, _WORD - 1))
    for place, part in enumerate(parts, start=limb):
        if place < LIMBS:
            sums[place] = sums[place] + part


def untwisted(
    folded: Array, untwist: Array, start: Number, k: Number, most: Kept
) -> tuple[Number, Number]:
    """Coefficients k and k + n/2, rounded; ``most``: the bits of the farthest distance so far."""
    at = (start + k) << 1
    one, other = folded.read(at), folded.read(at + 1)
    real, imaginary = untwist.read(k << 1), untwist.read((k << 1) + 1)
    found = one * real - other * imaginary, one * imaginary + other * real
    nearest = [part.rounded() for part in found]
    for part, whole in zip(found, nearest, strict=True):
        most.set(most.get().larger((part - whole).magnitude_bits()))
    return nearest[0].whole(), nearest[1].whole()


def _write_spread(
    loops: Loops, sums: Array, pairs: Array, rows: Array, count: Number, width: Number
) -> None:
    with loops.each(count) as place:
        row = rows.read(place)
        sums.write(row, pairs.read(row << 1))
        sums.write(row + width, pairs.read((row << 1) + 1))
