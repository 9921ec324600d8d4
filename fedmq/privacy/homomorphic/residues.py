"""How are many residues of one modulus multiplied by one call? As rows, eight at once.

Between parties ciphertexts travel as rows of bytes, of fixed width each, little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from gmpy2 import invert, mpz, pack, unpack
from numpy.typing import NDArray

from fedmq.errors import DataError, MessageError
from fedmq.privacy.homomorphic.instructions import LANES, LIMB_BITS, is_available, multiplier

__all__ = [
    "Places",
    "Residues",
    "Rows",
    "from_wire",
    "numbers",
    "residues_of",
    "to_wire",
    "width",
]


def width(modulus: mpz) -> int:
    """Bytes that a ciphertext takes on the wire."""
    return (int(modulus.bit_length()) + 7) // 8


def to_wire(ciphertexts: Sequence[mpz], modulus: mpz) -> NDArray[np.uint8]:
    """Ciphertexts in [0, modulus) as uint8 of shape (count, width)."""
    row = width(modulus)
    shape = (len(ciphertexts), row)
    # One integer of all of them: a copy of limbs, four times faster than row by row.
    joined = pack(list(ciphertexts), 8 * row).to_bytes(shape[0] * row, "little")
    return np.frombuffer(joined, dtype=np.uint8).reshape(shape)


def numbers(data: bytes, size: int) -> list[mpz]:
    """The little-endian numbers, of ``size`` bytes each, that ``data`` is made of."""
    count = len(data) // size
    # GMP does not unpack zeros at the end, but unpacks nothing as one zero.
    found: list[mpz] = unpack(mpz.from_bytes(data, "little"), 8 * size)[:count]
    return found + [mpz(0)] * (count - len(found))


def from_wire(rows: NDArray[np.uint8], modulus: mpz) -> list[mpz]:
    """Ciphertexts of a uint8 array of shape (count, width).

    Raises `MessageError` if the shape does not fit the key, or a row is not in (0, modulus).
    """
    row = width(modulus)
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != row:
        raise MessageError(
            f"ciphertexts: expected uint8 rows of {row} bytes, got {rows.dtype} of shape "
            f"{rows.shape}; both parties must use the same key"
        )
    if not len(rows):
        return []
    ciphertexts = numbers(rows.tobytes(), row)
    if min(ciphertexts) <= 0 or max(ciphertexts) >= modulus:
        bad = next(i for i, c in enumerate(ciphertexts) if not 0 < c < modulus)
        raise MessageError(
            f"ciphertexts: row {bad} is no residue of the key; both parties must use the same key"
        )
    return ciphertexts


# Residues of one modulus as rows of an array, so that many are multiplied by one call.
#
# A row holds x·R mod n, Montgomery's form, in limbs of 52 bits and zeros up to whole vectors; R is
# a power of two above 4n. Between products a row lies below 2n. Where products of rows of the same
# numbers are compared, compare `to_bytes`.


Rows = NDArray[np.uint64]
"""Numbers in Montgomery's form, of shape (…, words)."""

Places = NDArray[np.int64]
"""Numbers of rows."""

_ALL_BITS = (1 << 64) - 1
_MASK = np.uint64((1 << LIMB_BITS) - 1)
_PAIR_BYTES = 2 * LIMB_BITS // 8
_POWERS_AT_ONCE = 64  # of each, a row for every two bits of the exponent


class Residues:
    """Products modulo the odd number ``modulus``.

    A processor without the instructions multiplies one by one, three times slower than plain
    numbers: a fallback for a worker on another machine that receives rows.
    """

    def __init__(self, modulus: mpz) -> None:
        limbs = -(-(modulus.bit_length() + 2) // LIMB_BITS)
        self.modulus = modulus
        self.words = -(-limbs // LANES) * LANES
        """Words of a row."""
        base = mpz(1) << (LIMB_BITS * limbs)
        self._multiply = multiplier(limbs) if is_available() else None
        self._size = self.words // 2 * _PAIR_BYTES
        self._inverse_of_base = invert(base, modulus)
        self._negated_inverse = int(-invert(modulus, mpz(1) << LIMB_BITS) % (1 << LIMB_BITS))
        self._modulus = self._limbs(_bytes([modulus], self._size))
        self._square = self._limbs(to_wire([base * base % modulus], modulus))
        self._unit = self._limbs(to_wire([mpz(1)], modulus))
        self._one = self._limbs(to_wire([base % modulus], modulus))

    def ones(self, *shape: int) -> Rows:
        """Rows of the number 1, of shape (\\*shape, words)."""
        return np.broadcast_to(self._one[0], (*shape, self.words)).copy()

    def from_bytes(self, wire: NDArray[np.uint8]) -> Rows:
        """The numbers of the wire (count, bytes) as rows; raises MessageError as `from_wire`."""
        from_wire(wire, self.modulus)
        return self.product(self._limbs(wire), self._square)

    def from_numbers(self, residues: Sequence[mpz]) -> Rows:
        """Numbers in [0, modulus) as rows."""
        return self.product(self._limbs(to_wire(residues, self.modulus)), self._square)

    def to_bytes(self, rows: Rows) -> NDArray[np.uint8]:
        """Rows (count, words) as numbers of the wire, below the modulus."""
        reduced = self.product(rows, self._unit)
        # Montgomery's reduction leaves the modulus in place of 0; GMP writes 0.
        reduced[(reduced == self._modulus).all(axis=1)] = 0
        whole = self._bytes_of(reduced)
        return np.ascontiguousarray(whole[:, : width(self.modulus)])

    def to_numbers(self, rows: Rows) -> list[mpz]:
        """Rows (count, words) as numbers below the modulus."""
        return numbers(self.to_bytes(rows).tobytes(), width(self.modulus))

    def product(self, left: Rows, right: Rows) -> Rows:
        """Row by row, left · right; ``right`` may be one row for all."""
        out = np.empty(left.shape, np.uint64)
        every = np.arange(len(left))
        self.multiply(
            out, every, left, every, right, every if len(right) == len(left) else 0 * every
        )
        return out

    def in_eights(self, rows: Rows) -> Rows:
        """The rows (count, words) and ones, up to whole eights: a copy."""
        padded = self.ones(-(-len(rows) // LANES) * LANES)
        padded[: len(rows)] = rows
        return padded

    def square(self, rows: Rows, times: int) -> None:
        """Each of the rows (count, words) becomes its power 2^times."""
        # One call: its start and end take longer than its products.
        whole = self.in_eights(rows) if len(rows) % LANES else rows
        every = np.tile(np.arange(len(whole)), times)
        self.multiply(whole, every, whole, every, whole, every)
        rows[:] = whole[: len(rows)]

    def power(self, rows: Rows, exponent: mpz) -> Rows:
        """Each of the rows (count, words) to the power of a secret exponent.

        Time, and which memory is read, depend on the exponent's length alone: all powers that two
        bits can select are read, and masks choose.
        """
        parts = [
            self._power(self.in_eights(rows[first : first + _POWERS_AT_ONCE]), exponent)
            for first in range(0, len(rows), _POWERS_AT_ONCE)
        ]
        return np.concatenate([*parts, rows[:0]])[: len(rows)]

    def _power(self, rows: Rows, exponent: mpz) -> Rows:
        places = range(0, exponent.bit_length(), 2)
        asked = np.array([int(exponent >> place & 3) for place in reversed(places)])
        square = self.product(rows, rows)
        powers = (self.ones(len(rows)), rows, square, self.product(square, rows))
        # First the results, then of each place the factors.
        held = np.zeros((1 + len(asked), *rows.shape), np.uint64)
        held[0] = powers[0]
        for digit, power in enumerate(powers):
            masks = np.where(asked == digit, np.uint64(_ALL_BITS), np.uint64(0))
            held[1:] |= power & masks[:, None, None]
        result_at = np.arange(len(rows))
        factor_at = result_at + len(rows) * np.arange(1, 1 + len(asked))[:, None, None]
        right_at = np.broadcast_to(result_at, (len(asked), 3, len(rows))).copy()
        right_at[:, 2:] = factor_at
        left_at = np.tile(result_at, 3 * len(asked))
        flat = held.reshape(-1, self.words)
        self.multiply(flat, left_at, flat, left_at, flat, right_at.ravel())
        result: Rows = held[0]
        return result

    def inverses(self, rows: Rows) -> Rows:
        """One modular inverse for all, and three products a row (Montgomery's trick, as a tree).

        Raises `MessageError` if a number shares a factor with the modulus.
        """
        levels = [rows]
        while len(levels[-1]) > 1:
            below = levels[-1]
            if len(below) % 2:
                levels[-1] = below = np.concatenate((below, self.ones(1)))
            levels.append(self.product(below[::2].copy(), below[1::2].copy()))
        try:
            found = self.from_numbers(
                [invert(number, self.modulus) for number in self.to_numbers(levels[-1])]
            )
        except ZeroDivisionError:
            raise MessageError(
                "ciphertexts: a sum shares a factor with the key; ask the key's owner to encrypt "
                "again"
            ) from None
        for below in reversed(levels[:-1]):
            above, found = found[: len(below) // 2], np.empty_like(below)
            found[::2] = self.product(above, below[1::2].copy())
            found[1::2] = self.product(above, below[::2].copy())
        return found[: len(rows)]

    def multiply(
        self,
        out: Rows,
        out_at: Places,
        left: Rows,
        left_at: Places,
        right: Rows,
        right_at: Places,
    ) -> None:
        """``out[out_at] = left[left_at] · right[right_at]``, eight places after eight.

        Places of the same eight must differ in ``out_at``; a later eight reads what earlier ones
        wrote. Raises `DataError` for places beyond an array.
        """
        operands = ((out, out_at), (left, left_at), (right, right_at))
        for rows, places in operands:
            self._check(rows, places, len(out_at))
        blocks, rest = divmod(len(out_at), LANES)
        if blocks:
            self._call(operands, blocks)
        if rest:
            lanes = np.arange(LANES)
            tail = [np.zeros((LANES, self.words), np.uint64) for _ in operands]
            for copied, (rows, places) in zip(tail[1:], operands[1:], strict=True):
                copied[:rest] = rows[places[-rest:]]
            self._call([(rows, lanes) for rows in tail], 1)
            out[out_at[-rest:]] = tail[0][:rest]

    def _call(self, operands: Sequence[tuple[Rows, Places]], blocks: int) -> None:
        if self._multiply is None:
            out, left, right = ((rows, places[: blocks * LANES]) for rows, places in operands)
            self._multiply_one_by_one(out, left, right)
            return
        held = [(rows, np.ascontiguousarray(places, np.int64)) for rows, places in operands]
        addresses = [array.ctypes.data for pair in held for array in pair]
        self._multiply(*addresses, self._modulus.ctypes.data, self._negated_inverse, blocks)

    def _multiply_one_by_one(
        self, out: tuple[Rows, Places], left: tuple[Rows, Places], right: tuple[Rows, Places]
    ) -> None:
        held = {
            id(rows): numbers(self._bytes_of(rows).tobytes(), self._size)
            for rows, _ in (out, left, right)
        }
        products, lefts, rights = (held[id(rows)] for rows, _ in (out, left, right))
        triples = zip(*(places.tolist() for _, places in (out, left, right)), strict=True)
        for place, one, other in triples:
            product = lefts[one] * rights[other] % self.modulus * self._inverse_of_base
            products[place] = product % self.modulus
        out[0][:] = self._limbs(_bytes(products, self._size))

    def _check(self, rows: Rows, places: Places, count: int) -> None:
        if (
            rows.dtype != np.uint64
            or rows.ndim != 2
            or rows.shape[1] != self.words
            or not rows.flags.c_contiguous
            or places.shape != (count,)
        ):
            raise DataError(f"residues: rows of shape {rows.shape} for {count} products")
        if count and (places.min() < 0 or places.max() >= len(rows)):
            raise DataError(f"residues: a place beyond {len(rows)} rows")

    def _limbs(self, wire: NDArray[np.uint8]) -> Rows:
        """Little-endian numbers (count, bytes) cut into limbs of 52 bits."""
        padded = np.zeros((len(wire), self._size), np.uint8)
        padded[:, : wire.shape[1]] = wire
        pairs = np.zeros((len(wire), self.words // 2, 16), np.uint8)
        pairs[..., :_PAIR_BYTES] = padded.reshape(len(wire), self.words // 2, _PAIR_BYTES)
        lower, upper = pairs.view("<u8")[..., 0], pairs.view("<u8")[..., 1]
        limbs = np.empty((len(wire), self.words), np.uint64)
        limbs[:, ::2] = lower & _MASK
        limbs[:, 1::2] = (lower >> np.uint64(LIMB_BITS)) | (upper << np.uint64(64 - LIMB_BITS))
        return limbs

    def _bytes_of(self, limbs: Rows) -> NDArray[np.uint8]:
        """Limbs of 52 bits as little-endian numbers (count, bytes)."""
        lower, upper = limbs[:, ::2], limbs[:, 1::2]
        pairs = np.empty((*lower.shape, _PAIR_BYTES), np.uint8)
        pairs[..., :8] = _as_bytes(lower | (upper << np.uint64(LIMB_BITS)))
        pairs[..., 8:] = _as_bytes(upper >> np.uint64(64 - LIMB_BITS))[..., : _PAIR_BYTES - 8]
        return pairs.reshape(len(limbs), self._size)


@lru_cache(maxsize=4)
def residues_of(modulus: mpz) -> Residues:
    """The products modulo ``modulus``, made once in a process."""
    return Residues(modulus)


def _as_bytes(words: Rows) -> NDArray[np.uint8]:
    return np.ascontiguousarray(words).astype("<u8").view(np.uint8).reshape(*words.shape, 8)


def _bytes(whole: Sequence[mpz], size: int) -> NDArray[np.uint8]:
    joined = b"".join(number.to_bytes(size, "little") for number in whole)
    return np.frombuffer(joined, np.uint8).reshape(-1, size)
