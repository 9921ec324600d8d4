"""Several pairs (g, h) in one plaintext.

A pair is one number v = g·2^w + h, so that a sum of pairs is the pair of sums. After summing, k of
them are shifted beside each other into one ciphertext, v_0 + v_1·2^s + v_2·2^2s + …, and decrypted
at once. Since g is signed, slots are balanced digits: -2^(s-1) < v < 2^(s-1).

Narrow pairs leave room for several rows in one ciphertext: v_0 + v_1·2^s + …, the row at *place* p
in slot p. Rows are summed by place. Packing shifts the sum of the last place least, that of the
first place most: their slots meet in one, which then holds the sum over all rows. The slots around
it hold partial sums, which would tell which rows were added. `masks` cover these slots with random
numbers, 2^-40 from uniform; slots are wider by that much.

Where sums are hidden, `masks` cover the slots of sums as well. A slot holds v = g·2^F + h with the
F of a `Field`, so |v| < 2^(2F - 2), and gets a mask r: one of 2^(2F + 62) - 2^(2F) numbers around
0. What is decrypted is v + r, whose distribution is |v| over that number, less than 2^-63, from
that of r: a statistical mask, as of Catrina and de Hoogh (SCN 2010). A million sums stay 2^-43 from
telling anything. v + r does not leave the slot, whatever v and r are, so that no neighbour gets a
carry. As the number of masks is a multiple of 2^(2F), the shares -r and v + r modulo 2^(2F) are
uniform.

A row of several outputs has a pair for each. They lie in slots of as few ciphertexts as hold them,
its parts; sums are made by part, and packed with those of the same part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from gmpy2 import mpz, powmod
from numpy.typing import NDArray

from fedmq.errors import ConfigError, DataError, MessageError
from fedmq.privacy.homomorphic.scheme import SeededBytes

__all__ = ["MOST_SHARED", "SlotLayout"]

MOST_SHARED = 4
"""The most rows of a ciphertext."""

# A sum must fit int64.
_LARGEST_BOUND = 2**63 - 1

# Masked slots hold up to two sums, and a mask 2^40 times as wide.
_GUARD_BITS = 41

# A mask over a sum is that much wider, so that noise and masks are about as far from uniform.
_HIDING_GUARD_BITS = 63

# Bytes of a mask beyond its width: it is 2^-64 from uniform.
_EXTRA_BYTES = 8


@dataclass(frozen=True)
class SlotLayout:
    """Where g and h lie in a slot, and how many sums and rows share a plaintext."""

    h_bits: int
    slot_bits: int
    capacity: int
    rows: int = 1
    """Rows of a broadcast ciphertext."""
    outputs: int = 1
    """Pairs of a row; where there are several, no rows share a ciphertext."""
    pairs: int = 1
    """Pairs in a ciphertext."""
    hidden: bool = False
    """Whether masks cover sums, so that only shares of them are decrypted."""

    @classmethod
    def for_sums(
        cls, g_bound: int, h_bound: int, plaintext_bits: int, rows: int = 1, outputs: int = 1
    ) -> SlotLayout:
        """The tightest layout for any sums with |Σg| <= ``g_bound`` and 0 <= Σh <= ``h_bound``.

        ``plaintext_bits`` is the public key's, ``rows`` go into one ciphertext, or one row's
        ``outputs`` into as few as hold them. Raises
        `ConfigError` if a sum could exceed int64, or not even one sum fits the key.
        """
        if not (0 <= g_bound <= _LARGEST_BOUND and 0 <= h_bound <= _LARGEST_BOUND):
            raise ConfigError("sums of gradients exceed 63 bits; use fewer fraction bits")
        h_bits = h_bound.bit_length()
        slot_bits = g_bound.bit_length() + h_bits + 1
        if rows > 1:
            slot_bits += _GUARD_BITS
        return cls._filled(h_bits, slot_bits, plaintext_bits, rows, outputs)

    @classmethod
    def for_shares(cls, field_bits: int, plaintext_bits: int, rows: int = 1) -> SlotLayout:
        """The tightest layout for shares of any sums |Σg|, Σh < 2^(``field_bits`` - 2).

        Raises `ConfigError` if not even one sum fits the key.
        """
        slot_bits = 2 * field_bits - 1 + _HIDING_GUARD_BITS
        return replace(cls._filled(field_bits, slot_bits, plaintext_bits, rows), hidden=True)

    @classmethod
    def _filled(
        cls, h_bits: int, slot_bits: int, plaintext_bits: int, rows: int, outputs: int = 1
    ) -> SlotLayout:
        """As many sums in a plaintext as it has room for."""
        # |Σ v_i 2^(si)| < 2^(ks - 1), which is what a plaintext of ks bits holds. Between two sums
        # lie rows - 1 masked slots, and as many at either end.
        capacity = (
            (plaintext_bits // slot_bits + 1) // rows - 1
            if rows > 1
            else (plaintext_bits // slot_bits)
        )
        if not capacity:
            raise ConfigError(
                f"key_bits: a key for plaintexts of {plaintext_bits} bits has no room for sums of "
                f"{slot_bits} bits; use a longer key, or fewer fraction bits"
            )
        pairs = -(-outputs // -(-outputs // capacity))
        return cls(h_bits, slot_bits, capacity // pairs, rows, outputs, pairs)

    @property
    def parts(self) -> int:
        """Ciphertexts of a row."""
        return -(-self.outputs // self.pairs)

    @property
    def places(self) -> int:
        """Ciphertexts in which a sum is kept: one for each place of a row, or part."""
        return self.rows * self.parts

    @property
    def sum_bits(self) -> int:
        """Bits of a sum in its slot; the rest guards masks."""
        if self.hidden:
            return self.slot_bits - _HIDING_GUARD_BITS
        return self.slot_bits - (_GUARD_BITS if self.rows > 1 else 0)

    @property
    def masked(self) -> bool:
        """Whether packed sums get `masks` before they leave."""
        return self.rows > 1 or self.hidden

    def join(self, g: NDArray[np.int64], h: NDArray[np.int64]) -> list[int]:
        """Plaintexts v = g·2^w + h of two int64 arrays of the same length, `rows` in each.

        Of several outputs the arrays are (rows, outputs), and each row's parts follow one another.
        Raises `DataError` if a row exceeds its slot by itself, or its h is negative.
        """
        g_bound = (1 << (self.sum_bits - self.h_bits - 1)) - 1
        h_bound = (1 << self.h_bits) - 1
        outside = (g < -g_bound) | (g > g_bound) | (h < 0) | (h > h_bound)
        if outside.any():
            row = tuple(np.argwhere(outside)[0].tolist())
            raise DataError(
                f"row {row[0]}: gradient {g[row]} with hessian {h[row]} exceeds its slot, "
                f"{g_bound} and {h_bound} at most and no negative hessian; use fewer fraction bits"
            )
        shift = self.h_bits
        pairs = [
            (a << shift) + b for a, b in zip(g.ravel().tolist(), h.ravel().tolist(), strict=True)
        ]
        if self.rows == self.outputs == 1:
            return pairs
        if self.rows > 1:
            return [
                self._beside(pairs[start : start + self.rows])
                for start in range(0, len(pairs), self.rows)
            ]
        return [
            self._beside(pairs[start + part : start + min(part + self.pairs, self.outputs)])
            for start in range(0, len(pairs), self.outputs)
            for part in range(0, self.outputs, self.pairs)
        ]

    def _beside(self, pairs: Sequence[int]) -> int:
        """``pairs`` in slots of one plaintext, the first one lowest."""
        return sum(v << place * self.slot_bits for place, v in enumerate(pairs))

    def by_place(self, sums: Sequence[Sequence[mpz]]) -> list[mpz]:
        """``sums`` of the rows at each place, `rows` sequences, in the order that `pack` takes.

        The shifts of `pack` bring all places of a sum into one slot.
        """
        return [c for places in zip(*reversed(sums), strict=True) for c in places]

    def masks(self, count: int, random: SeededBytes | None = None) -> list[int]:
        """Plaintexts that cover all slots but those of ``count`` packed sums; if hidden, these too.

        Fresh every time, or what ``random`` draws.
        """
        return [
            sum(
                digit << slot * self.slot_bits
                for slot, digit in enumerate(digits)
                if self.hidden or (slot + 1) % self.rows
            )
            for digits in self._drawn(count, random or SeededBytes())
        ]

    def kept_shares(self, count: int, random: SeededBytes) -> NDArray[np.uint64]:
        """The other shares of ``count`` sums under the masks of ``random``, (count, 2): fields."""
        field = (1 << self.h_bits) - 1
        kept = [
            (-digit >> self.h_bits & field, -digit & field)
            for digits in self._drawn(count, random)
            for digit in digits[self.rows - 1 :: self.rows]
        ]
        return np.array(kept, np.uint64).reshape(count, 2)

    def _drawn(self, count: int, random: SeededBytes) -> Iterator[list[int]]:
        """A mask for every slot of the ciphertexts of ``count`` packed sums."""
        largest = (1 << (self.slot_bits - 1)) - (1 << self.sum_bits)
        size = -(-self.slot_bits // 8) + _EXTRA_BYTES
        for index, start in enumerate(range(0, count, self.capacity)):
            slots = (min(self.capacity, count - start) + 1) * self.rows - 1
            drawn = random.draw(b"masks", index, slots * size)
            yield [_below(2 * largest, drawn, slot, size) - largest for slot in range(slots)]

    def packed_count(self, count: int) -> int:
        """Ciphertexts that ``count`` sums are packed into."""
        return -(-count // self.capacity) * self.parts

    def whole_parts(self, ciphertexts: int) -> int:
        """The most ciphertexts that hold whole sums, up to ``ciphertexts``; at least one."""
        return max(1, ciphertexts // self.parts) * self.parts

    def pack(self, ciphertexts: Sequence[mpz], modulus: mpz) -> list[mpz]:
        """Ciphertexts of up to `capacity` consecutive sums each, by Horner's scheme.

        A sum is `rows` ciphertexts, in the order of `by_place`; of several parts each is packed by
        itself.
        """
        shift, capacity = mpz(1) << self.slot_bits * self.pairs, self.capacity * self.rows
        packed = []
        for start in range(0, len(ciphertexts), capacity):
            *lower, accumulated = ciphertexts[start : start + capacity]
            for c in reversed(lower):
                accumulated = powmod(accumulated, shift, modulus) * c % modulus
            packed.append(accumulated)
        return packed

    def unpack(
        self, plaintexts: Sequence[mpz], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first ``count`` sums of g and h, int64, from decrypted packed ciphertexts.

        Of several outputs (count, outputs); the parts of a sum follow one another. Raises
        `MessageError` if there are not as many plaintexts as ``count`` sums fill, or one holds more
        than its slots: then keys or layouts differ.
        """
        self._check_count(plaintexts, count)
        if self.outputs > 1:
            return self._unpack_parts(plaintexts, count)
        if not count:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if self.rows > 1:
            return self._unpack_masked(plaintexts, count)
        # Half a slot added to each digit makes all digits non-negative: cutting bits suffices.
        last = count - (len(plaintexts) - 1) * self.capacity
        joined = [
            self._lifted(plaintext, last if index == len(plaintexts) - 1 else self.capacity, index)
            for index, plaintext in enumerate(plaintexts)
        ]
        slots = _bits(joined, self.capacity * self.slot_bits)
        slots = slots.reshape(-1, self.slot_bits)[:count]
        g = _numbers(slots[:, self.h_bits :])
        half = np.uint64(1 << (self.slot_bits - self.h_bits - 1))
        return (g - half).view(np.int64), _numbers(slots[:, : self.h_bits]).view(np.int64)

    def unpack_shares(self, plaintexts: Sequence[mpz], count: int) -> NDArray[np.uint64]:
        """The first ``count`` shares, (count, 2): fields, from decrypted packed ciphertexts.

        Errors as of `unpack`.
        """
        self._check_count(plaintexts, count)
        if not count:
            return np.empty((0, 2), np.uint64)
        last = count - (len(plaintexts) - 1) * self.capacity
        sums = [self.capacity] * (len(plaintexts) - 1) + [last]
        # Half a slot added to each digit is a multiple of what shares are numbers modulo.
        joined = [
            self._lifted(plaintext, (held + 1) * self.rows - 1, index)
            for index, (plaintext, held) in enumerate(zip(plaintexts, sums, strict=True))
        ]
        slots = self.capacity * self.rows + self.rows
        bits = _bits(joined, slots * self.slot_bits).reshape(-1, slots, self.slot_bits)
        shares = bits[:, self.rows - 1 :: self.rows][:, : self.capacity]
        shares = shares.reshape(-1, self.slot_bits)[:count]
        upper = shares[:, self.h_bits : 2 * self.h_bits]
        return np.stack([_numbers(upper), _numbers(shares[:, : self.h_bits])], axis=-1)

    def _check_count(self, plaintexts: Sequence[mpz], count: int) -> None:
        if len(plaintexts) != self.packed_count(count):
            raise MessageError(
                f"sums: expected {self.packed_count(count)} packed ciphertexts for {count} sums, "
                f"got {len(plaintexts)}; both parties must use the same slot layout"
            )

    def _unpack_parts(
        self, plaintexts: Sequence[mpz], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        beside = SlotLayout(self.h_bits, self.slot_bits, self.capacity * self.pairs)
        parts = [
            beside.unpack(plaintexts[part :: self.parts], count * self.pairs)
            for part in range(self.parts)
        ]
        g, h = (
            np.concatenate([column.reshape(count, self.pairs) for column in columns], axis=1)
            for columns in zip(*parts, strict=True)
        )
        return g[:, : self.outputs], h[:, : self.outputs]

    def _unpack_masked(
        self, plaintexts: Sequence[mpz], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        bits, rows = self.slot_bits, self.rows
        half, bound = 1 << (bits - 1), 1 << (self.sum_bits - 1)
        pairs = np.empty((count, 2), np.int64)
        for index, plaintext in enumerate(plaintexts):
            first = index * self.capacity
            sums = min(self.capacity, count - first)
            lifted = self._lifted(plaintext, (sums + 1) * rows - 1, index)
            for place in range(sums):
                digit = (lifted >> ((place + 1) * rows - 1) * bits) & ((1 << bits) - 1)
                value = digit - half
                if not -bound <= value < bound:
                    raise MessageError(
                        f"sums: packed ciphertext {index} holds more than its slots; both parties "
                        "must use the same key and slot layout"
                    )
                pairs[first + place] = value >> self.h_bits, value & ((1 << self.h_bits) - 1)
        return pairs[:, 0], pairs[:, 1]

    def _lifted(self, plaintext: mpz, slots: int, index: int) -> int:
        """The first ``slots`` digits, none of them negative; `MessageError` if there are more."""
        bits = self.slot_bits
        ones = ((1 << bits * slots) - 1) // ((1 << bits) - 1)
        lifted = int(plaintext) + (ones << (bits - 1))
        if not 0 <= lifted < 1 << bits * slots:
            raise MessageError(
                f"sums: packed ciphertext {index} holds more than its slots; both parties must "
                "use the same key and slot layout"
            )
        return lifted


def _below(limit: int, drawn: bytes, index: int, size: int) -> int:
    """Number ``index`` of ``size`` random bytes each, less than ``limit``."""
    return int.from_bytes(drawn[index * size : (index + 1) * size], "little") % limit


def _bits(numbers: Sequence[int], count: int) -> NDArray[np.uint8]:
    """The lowest ``count`` bits of each number, the lowest first: (numbers, count)."""
    size = -(-count // 8)
    rows = np.frombuffer(b"".join(number.to_bytes(size, "little") for number in numbers), np.uint8)
    return np.unpackbits(rows.reshape(-1, size), axis=1, bitorder="little")[:, :count]


def _numbers(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Rows of up to 64 bits, the lowest first, as numbers."""
    padded = np.zeros((len(bits), 64), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u8")[:, 0].astype(np.uint64)
