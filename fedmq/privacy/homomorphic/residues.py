"""How are many residues of one modulus multiplied by one call? As rows, eight by one instruction.

Between parties ciphertexts travel as rows of bytes, of fixed width each, little-endian.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from gmpy2 import invert, mpz, pack, unpack
from numpy.typing import NDArray

from fedmq.errors import DataError, MessageError

if TYPE_CHECKING:
    from llvmlite import ir

__all__ = [
    "LANES",
    "LIMB_BITS",
    "Multiply",
    "Places",
    "Residues",
    "Rows",
    "from_wire",
    "is_available",
    "multiplier",
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


# Montgomery's product of eight pairs of residues at once, as machine code for this processor.
#
# The instructions VPMADD52LUQ and VPMADD52HUQ (AVX-512 IFMA: Intel since Ice Lake, AMD since Zen 4)
# multiply eight pairs of 52-bit numbers and add the low or high halves of the products to eight
# 64-bit sums. So numbers are cut into limbs of 52 bits, and a vector holds one limb of each of
# eight numbers. The products are those of S. Gueron, V. Krasnov, "Accelerating big integer
# arithmetic using Intel IFMA extensions", ARITH 2016, with Montgomery's reduction limb by limb.
# LLVM, through llvmlite, translates this code on first use. Time and memory
# accesses do not depend on the numbers, only on their places.


LANES = 8
"""Numbers of a vector."""

LIMB_BITS = 52

Multiply = Callable[..., None]
"""``multiply(out, out_at, left, left_at, right, right_at, modulus, negated_inverse, blocks)``.

All are int, and all but the last two addresses: of arrays of numbers, of int64 places in them, and
of the modulus. For each block of eight, ``out[out_at] = left[left_at] · right[right_at] / R``,
block after block, with R = 2^(52·limbs) above four times the modulus; numbers stay below twice it.
"""

_COMPILING = Lock()


@lru_cache(maxsize=1)
def is_available() -> bool:
    """Whether this processor has the instructions, and llvmlite is installed."""
    if find_spec("llvmlite") is None:
        return False
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("avx512ifma", False))


def multiplier(limbs: int) -> Multiply:
    """The product of numbers of ``limbs`` limbs, stored in whole vectors; `is_available` only."""
    with _COMPILING:
        return _compiled(limbs)


@lru_cache(maxsize=4)
def _compiled(limbs: int) -> Multiply:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=3,
    )
    module = binding.parse_assembly(_Product(limbs).written())
    module.verify()
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _ENGINES.append(engine)  # the code lives as long
    addresses = [ctypes.c_void_p] * 7
    signature = ctypes.CFUNCTYPE(None, *addresses, ctypes.c_uint64, ctypes.c_int64)
    return signature(engine.get_function_address("multiply"))


_ENGINES: list[object] = []


class _Product:
    """Writes the function ``multiply`` for numbers of ``limbs`` limbs."""

    def __init__(self, limbs: int) -> None:
        from llvmlite import ir

        self._ir = ir
        self._limbs = limbs
        self._stride = -(-limbs // LANES) * LANES
        self._word = ir.IntType(64)
        self._vector = ir.VectorType(self._word, LANES)
        self._module = ir.Module("residues")
        three = ir.FunctionType(self._vector, [self._vector] * 3)
        self._add_low, self._add_high = (
            ir.Function(self._module, three, f"llvm.x86.avx512.vpmadd52{half}.uq.512")
            for half in "lh"
        )

    def written(self) -> str:
        """The module in LLVM's language."""
        ir, word = self._ir, self._word
        arguments = [word.as_pointer()] * 7 + [word] * 2
        function = ir.Function(
            self._module, ir.FunctionType(ir.VoidType(), arguments), name="multiply"
        )
        out, out_at, left, left_at, right, right_at, modulus, inverse, blocks = function.args
        entry, block, limb, store, end = (function.append_basic_block() for _ in range(5))

        build = ir.IRBuilder(entry)
        a, b, n = (build.alloca(self._vector, self._stride) for _ in range(3))
        for memory in (a, b, n):
            memory.align = 64
        for j in range(self._limbs):
            self._put(build, n, j, self._splat(build, build.load(self._at(build, modulus, j))))
        inverses = self._splat(build, inverse)
        build.cbranch(build.icmp_signed(">", blocks, word(0)), block, end)

        build = ir.IRBuilder(block)
        number = build.phi(word)
        number.add_incoming(word(0), entry)
        for numbers, places, memory in ((left, left_at, a), (right, right_at, b)):
            self._gather(build, self._addresses(build, numbers, places, number), memory)
        build.branch(limb)

        build = ir.IRBuilder(limb)
        i = build.phi(word)
        i.add_incoming(word(0), block)
        sums = [build.phi(self._vector) for _ in range(self._limbs)]
        for vector in sums:
            vector.add_incoming(self._constant(0), block)
        added = self._one_limb(build, sums, a, self._get(build, b, i), n, inverses)
        following = build.add(i, word(1))
        i.add_incoming(following, limb)
        for vector, value in zip(sums, added, strict=True):
            vector.add_incoming(value, limb)
        build.cbranch(build.icmp_signed("<", following, word(self._limbs)), limb, store)

        build = ir.IRBuilder(store)
        self._scatter(
            build, self._carried(build, added), self._addresses(build, out, out_at, number)
        )
        later = build.add(number, word(1))
        number.add_incoming(later, store)
        build.cbranch(build.icmp_signed("<", later, blocks), block, end)
        ir.IRBuilder(end).ret_void()
        return str(self._module)

    def _one_limb(
        self,
        build: ir.IRBuilder,
        sums: Sequence[ir.Value],
        a: ir.Value,
        b: ir.Value,
        n: ir.Value,
        inverses: ir.Value,
    ) -> list[ir.Value]:
        """(sums + a·b + n·m) / 2^52 with the m that makes it whole; ``b`` is one limb."""

        def low(total: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
            return build.call(self._add_low, [total, x, y])

        def high(total: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
            return build.call(self._add_high, [total, x, y])

        zero = self._constant(0)
        factors = [self._get(build, a, j) for j in range(self._limbs)]
        moduli = [self._get(build, n, j) for j in range(self._limbs)]
        lowest = low(sums[0], factors[0], b)
        m = low(zero, lowest, inverses)
        carry = build.lshr(low(lowest, moduli[0], m), self._constant(LIMB_BITS))
        halves = [
            low(low(total, factor, b), modulus, m)
            for total, factor, modulus in zip(sums[1:], factors[1:], moduli[1:], strict=True)
        ]
        added = [
            high(high(total, factor, b), modulus, m)
            for total, factor, modulus in zip([*halves, zero], factors, moduli, strict=True)
        ]
        return [build.add(added[0], carry), *added[1:]]

    def _carried(self, build: ir.IRBuilder, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Limbs of 52 bits, and zeros up to whole vectors."""
        limbs, carry = [], self._constant(0)
        for vector in sums:
            total = build.add(vector, carry)
            carry = build.lshr(total, self._constant(LIMB_BITS))
            limbs.append(build.and_(total, self._constant((1 << LIMB_BITS) - 1)))
        return limbs + [self._constant(0)] * (self._stride - self._limbs)

    def _gather(self, build: ir.IRBuilder, addresses: Sequence[ir.Value], memory: ir.Value) -> None:
        for first in range(0, self._stride, LANES):
            rows = [build.load(self._cell(build, address, first), align=8) for address in addresses]
            for j, vector in enumerate(self._transposed(build, rows)):
                self._put(build, memory, first + j, vector)

    def _scatter(
        self, build: ir.IRBuilder, limbs: Sequence[ir.Value], addresses: Sequence[ir.Value]
    ) -> None:
        for first in range(0, self._stride, LANES):
            rows = self._transposed(build, limbs[first : first + LANES])
            for address, row in zip(addresses, rows, strict=True):
                build.store(row, self._cell(build, address, first), align=8)

    def _addresses(
        self, build: ir.IRBuilder, numbers: ir.Value, places: ir.Value, block: ir.Value
    ) -> list[ir.Value]:
        """Where the eight numbers of a block begin."""
        first = build.mul(block, self._word(LANES))
        found = []
        for lane in range(LANES):
            place = build.load(self._at(build, places, build.add(first, self._word(lane))))
            found.append(self._at(build, numbers, build.mul(place, self._word(self._stride))))
        return found

    def _transposed(self, build: ir.IRBuilder, rows: Sequence[ir.Value]) -> list[ir.Value]:
        """Eight vectors as columns: blocks of 4, 2 and 1 change sides."""
        columns = list(rows)
        for distance in (4, 2, 1):
            lower = [p + LANES - distance if p & distance else p for p in range(LANES)]
            upper = [p + LANES if p & distance else p + distance for p in range(LANES)]
            for i in range(LANES):
                if not i & distance:
                    pair = columns[i], columns[i + distance]
                    columns[i] = self._shuffled(build, *pair, lower)
                    columns[i + distance] = self._shuffled(build, *pair, upper)
        return columns

    def _shuffled(
        self, build: ir.IRBuilder, x: ir.Value, y: ir.Value, lanes: Sequence[int]
    ) -> ir.Value:
        mask = self._ir.Constant(self._ir.VectorType(self._ir.IntType(32), LANES), list(lanes))
        return build.shuffle_vector(x, y, mask)

    def _splat(self, build: ir.IRBuilder, value: ir.Value) -> ir.Value:
        nothing = self._ir.Constant(self._vector, self._ir.Undefined)
        one = build.insert_element(nothing, value, self._ir.IntType(32)(0))
        return self._shuffled(build, one, one, [0] * LANES)

    def _constant(self, value: int) -> ir.Value:
        return self._ir.Constant(self._vector, [value] * LANES)

    def _at(self, build: ir.IRBuilder, base: ir.Value, place: ir.Value | int) -> ir.Value:
        return build.gep(base, [self._word(place) if isinstance(place, int) else place])

    def _cell(self, build: ir.IRBuilder, address: ir.Value, first: int) -> ir.Value:
        return build.bitcast(self._at(build, address, first), self._vector.as_pointer())

    def _get(self, build: ir.IRBuilder, memory: ir.Value, place: ir.Value | int) -> ir.Value:
        return build.load(self._at(build, memory, place), align=64)

    def _put(
        self, build: ir.IRBuilder, memory: ir.Value, place: ir.Value | int, value: ir.Value
    ) -> None:
        build.store(value, self._at(build, memory, place), align=64)


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
