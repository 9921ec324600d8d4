"""By which instructions are points of Curve25519 multiplied? By AVX-512 IFMA, eight in one sweep.

The ladder is that of RFC 7748, section 5, and so X25519's results to the bit. A number modulo
2^255 - 19 is cut into five limbs of 51 bits, and a vector holds one limb of each of eight numbers.
Between two products limbs stay below 2^52, as VPMADD52LUQ and VPMADD52HUQ take them. LLVM, through
llvmlite, translates this code on first use. Time and memory accesses depend neither on the key nor
on points.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmq.machine_code import features, translated

if TYPE_CHECKING:
    from llvmlite import ir

__all__ = ["is_available", "multiples"]

_LANES = 8
_LIMBS = 5
_BITS = 51
_MASK = (1 << _BITS) - 1
_A24 = 121665
"""(A - 2) / 4 of the curve."""
_KEY_BITS = 255

_TWICE_PRIME = (2**52 - 38, *[2**52 - 2] * 4)
"""Limbs of 2 (2^255 - 19): added before a subtraction, so that no limb falls below zero."""


def is_available() -> bool:
    """Whether this processor has the instructions, and llvmlite is installed."""
    return features().get("avx512ifma", False)


def multiples(key: bytes, points: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """X25519 of ``key`` (32 bytes) and each of ``points``; `is_available` only.

    ``points`` and the result: u-coordinates, little-endian, uint8 (points, 32). A point of small
    order becomes zero.
    """
    count = len(points)
    blocks = -(-count // _LANES)
    words = np.zeros((blocks * _LANES, 4), np.uint64)
    words[:count] = np.ascontiguousarray(points).view("<u8")
    limbs = _by_blocks(_limbs(words))
    out = np.empty_like(limbs)
    masks = _swaps(key)
    _ladder()(out.ctypes.data, limbs.ctypes.data, masks.ctypes.data, blocks)
    found = _reduced(out.transpose(0, 2, 1).reshape(-1, _LIMBS)[:count])
    return np.frombuffer(found.astype("<u8", copy=False).tobytes(), np.uint8).reshape(-1, 32)


def _limbs(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Of numbers of four words each; the highest bit is left out (RFC 7748, section 5)."""
    mask = np.uint64(_MASK)
    limbs = np.empty((len(words), _LIMBS), np.uint64)
    limbs[:, 0] = words[:, 0] & mask
    for number in range(1, _LIMBS):
        at = _BITS * number % 64
        limb = words[:, number - 1] >> np.uint64(at)
        if number < _LIMBS - 1:
            limb |= words[:, number] << np.uint64(64 - at)
        limbs[:, number] = limb & mask
    return limbs


def _by_blocks(limbs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(limbs.reshape(-1, _LANES, _LIMBS).transpose(0, 2, 1))


def _reduced(limbs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The four words of each number, below 2^255 - 19."""
    bits, mask = np.uint64(_BITS), np.uint64(_MASK)
    limbs = limbs.copy()

    def carry() -> None:
        for number in range(_LIMBS - 1):
            limbs[:, number + 1] += limbs[:, number] >> bits
            limbs[:, number] &= mask

    for _ in range(2):
        carry()
        limbs[:, 0] += np.uint64(19) * (limbs[:, -1] >> bits)
        limbs[:, -1] &= mask
    carry()  # now below 2^255
    over = limbs[:, 0] + np.uint64(19)
    for number in range(1, _LIMBS):
        over = limbs[:, number] + (over >> bits)
    limbs[:, 0] += np.uint64(19) * (over >> bits)  # one if it is 2^255 - 19 or more
    carry()
    limbs[:, -1] &= mask
    words = np.empty((len(limbs), 4), np.uint64)
    for number in range(4):
        at = _BITS - (64 - _BITS) * number  # where the next limb begins in this word
        words[:, number] = limbs[:, number] >> np.uint64(_BITS - at)
        words[:, number] |= limbs[:, number + 1] << np.uint64(at)
    return words


def _swaps(key: bytes) -> NDArray[np.uint64]:
    """For each step of the ladder, all ones if its two points change places before it.

    One more for the end. The key's bits are clamped as X25519's.
    """
    scalar = np.frombuffer(key, np.uint8).copy()
    scalar[0] &= 248
    scalar[31] &= 127
    scalar[31] |= 64
    bits = np.unpackbits(scalar, bitorder="little")[:_KEY_BITS][::-1].astype(np.uint64)
    around = np.concatenate([[np.uint64(0)], bits, [np.uint64(0)]])
    swaps: NDArray[np.uint64] = np.uint64(0) - (around[1:] ^ around[:-1])
    return swaps


@lru_cache(maxsize=1)
def _ladder() -> Callable[..., None]:
    [address] = translated(_Ladder().written(), "ladder")
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    return signature(address)


Number = Sequence[Any]
"""Five vectors: the limbs of eight numbers."""


class _Ladder:
    """Writes ``ladder(out, points, swaps, blocks)``: limbs in blocks of eight, uint64 (5, 8)."""

    def __init__(self) -> None:
        from llvmlite import ir

        self._ir = ir
        self._word = ir.IntType(64)
        self._vector = ir.VectorType(self._word, _LANES)
        self._module = ir.Module("curve")
        three = ir.FunctionType(self._vector, [self._vector] * 3)
        self._add_low, self._add_high = (
            ir.Function(self._module, three, f"llvm.x86.avx512.vpmadd52{half}.uq.512")
            for half in "lh"
        )

    def written(self) -> str:
        """The module in LLVM's language."""
        ir, word = self._ir, self._word
        pointer = word.as_pointer()
        function = ir.Function(
            self._module, ir.FunctionType(ir.VoidType(), [pointer] * 3 + [word]), name="ladder"
        )
        out, points, swaps, blocks = function.args
        entry, block, end = (function.append_basic_block() for _ in range(3))
        build = ir.IRBuilder(entry)
        x1, x2, z2, x3, z3, *rooms = (self._room(build) for _ in range(9))
        build.cbranch(build.icmp_signed(">", blocks, word(0)), block, end)

        build = ir.IRBuilder(block)
        number = build.phi(word)
        number.add_incoming(word(0), entry)
        at = build.mul(number, word(_LIMBS * _LANES))
        point = self._read(build, build.gep(points, [at]))
        one, zero = self._small(1), self._small(0)
        for room, value in ((x1, point), (x2, one), (z2, zero), (x3, point), (z3, one)):
            self._write(build, room, value)
        build = self._repeated(
            build, _KEY_BITS, lambda inner, step: self._step(inner, swaps, step, x1, x2, z2, x3, z3)
        )
        mask = self._splat(build, build.load(build.gep(swaps, [word(_KEY_BITS)])))
        x, _ = self._swapped(build, mask, self._read(build, x2), self._read(build, x3))
        z, _ = self._swapped(build, mask, self._read(build, z2), self._read(build, z3))
        self._write(build, x2, x)
        build = self._inverted(build, z, z2, rooms)
        product = self._product(build, self._read(build, x2), self._read(build, z2))
        self._write(build, build.gep(out, [at]), product)
        later = build.add(number, word(1))
        number.add_incoming(later, build.block)
        build.cbranch(build.icmp_signed("<", later, blocks), block, end)
        ir.IRBuilder(end).ret_void()
        return str(self._module)

    def _step(
        self,
        build: ir.IRBuilder,
        swaps: ir.Value,
        step: ir.Value,
        *rooms: ir.Value,
    ) -> None:
        """One bit of the key, in the names of RFC 7748."""
        x1, x2, z2, x3, z3 = (self._read(build, room) for room in rooms)
        mask = self._splat(build, build.load(build.gep(swaps, [step])))
        x2, x3 = self._swapped(build, mask, x2, x3)
        z2, z3 = self._swapped(build, mask, z2, z3)
        a, b = self._sum(build, x2, z2), self._difference(build, x2, z2)
        c, d = self._sum(build, x3, z3), self._difference(build, x3, z3)
        da, cb = self._product(build, d, a), self._product(build, c, b)
        aa, bb = self._square(build, a), self._square(build, b)
        e = self._difference(build, aa, bb)
        inner = self._sum(build, aa, self._product(build, e, self._small(_A24)[:1]))
        x3 = self._square(build, self._sum(build, da, cb))
        z3 = self._product(build, x1, self._square(build, self._difference(build, da, cb)))
        x2, z2 = self._product(build, aa, bb), self._product(build, e, inner)
        for room, value in zip(rooms[1:], (x2, z2, x3, z3), strict=True):
            self._write(build, room, value)

    def _inverted(
        self, build: ir.IRBuilder, z: Number, out: ir.Value, rooms: Sequence[ir.Value]
    ) -> ir.IRBuilder:
        """z^(2^255 - 21), the inverse of z or zero, into ``out``: 254 squares, 11 products."""
        of_z, eleven, ones, running = rooms

        def squares(times: int) -> None:
            nonlocal build
            build = self._repeated(
                build,
                times,
                lambda inner, _: self._write(
                    inner, running, self._square(inner, self._read(inner, running))
                ),
            )

        def times(room: ir.Value) -> None:
            value = self._product(build, self._read(build, running), self._read(build, room))
            self._write(build, running, value)

        def keep(room: ir.Value) -> None:
            self._write(build, room, self._read(build, running))

        self._write(build, of_z, z)
        self._write(build, running, z)
        squares(1)
        keep(ones)  # z^2
        squares(2)
        times(of_z)  # z^9
        keep(of_z)
        times(ones)
        keep(eleven)  # z^11
        squares(1)
        times(of_z)  # z^31: five ones
        keep(of_z)
        squares(5)
        times(of_z)  # ten ones
        keep(of_z)
        squares(10)
        times(of_z)  # 20 ones
        keep(ones)
        squares(20)
        times(ones)  # 40 ones
        squares(10)
        times(of_z)  # 50 ones
        keep(of_z)
        squares(50)
        times(of_z)  # 100 ones
        keep(ones)
        squares(100)
        times(ones)  # 200 ones
        squares(50)
        times(of_z)  # 250 ones
        squares(5)
        times(eleven)
        self._write(build, out, self._read(build, running))
        return build

    def _repeated(
        self,
        build: ir.IRBuilder,
        times: int,
        body: Callable[[ir.IRBuilder, ir.Value], None],
    ) -> ir.IRBuilder:
        """``body`` so many times, and where the code goes on."""
        word, before = self._word, build.block
        loop, after = (build.function.append_basic_block() for _ in range(2))
        build.branch(loop)
        inner = self._ir.IRBuilder(loop)
        turn = inner.phi(word)
        turn.add_incoming(word(0), before)
        body(inner, turn)
        following = inner.add(turn, word(1))
        turn.add_incoming(following, loop)
        inner.cbranch(inner.icmp_signed("<", following, word(times)), loop, after)
        return self._ir.IRBuilder(after)

    # Arithmetic: operands' limbs are below 2^52, and so are results'

    def _sum(self, build: ir.IRBuilder, a: Number, b: Number) -> Number:
        return self._carried(build, [build.add(x, y) for x, y in zip(a, b, strict=True)])

    def _difference(self, build: ir.IRBuilder, a: Number, b: Number) -> Number:
        """Every difference is of products or carried sums, whose limbs are below 2^52 - 38."""
        return self._carried(
            build,
            [
                build.sub(build.add(x, self._constant(surplus)), y)
                for x, y, surplus in zip(a, b, _TWICE_PRIME, strict=True)
            ],
        )

    def _product(self, build: ir.IRBuilder, a: Number, b: Number) -> Number:
        low, high = self._halves(
            build, [(a[i], b[j], i + j) for i in range(len(a)) for j in range(len(b))]
        )
        return self._folded(build, low, high)

    def _square(self, build: ir.IRBuilder, a: Number) -> Number:
        crossed = self._halves(
            build, [(a[i], a[j], i + j) for i in range(_LIMBS) for j in range(i + 1, _LIMBS)]
        )
        doubled = [[build.add(x, x) for x in half] for half in crossed]
        low, high = self._halves(build, [(x, x, 2 * i) for i, x in enumerate(a)], doubled)
        return self._folded(build, low, high)

    def _halves(
        self,
        build: ir.IRBuilder,
        factors: Sequence[tuple[ir.Value, ir.Value, int]],
        begun: Sequence[Sequence[ir.Value]] | None = None,
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Sums of the low and of the high 52 bits of products, by place."""
        places = 2 * _LIMBS - 1
        low, high = (list(half) for half in begun or [[self._constant(0)] * places] * 2)
        for x, y, place in factors:
            low[place] = build.call(self._add_low, [low[place], x, y])
            high[place] = build.call(self._add_high, [high[place], x, y])
        return low, high

    def _folded(
        self, build: ir.IRBuilder, low: Sequence[ir.Value], high: Sequence[ir.Value]
    ) -> Number:
        """Modulo 2^255 - 19. High halves count 2^52 = 2 · 2^51, so twice in the next place.

        A place has at most 15 · 2^52, and with 19 times another one stays below 2^61.
        """
        twice = [build.add(half, half) for half in high]
        sums = [low[0], *map(build.add, low[1:], twice[:-1]), twice[-1]]
        return self._carried(
            build,
            [
                build.add(sums[place], self._nineteen(build, sums[place + _LIMBS]))
                for place in range(_LIMBS)
            ],
        )

    def _carried(self, build: ir.IRBuilder, sums: Sequence[ir.Value]) -> Number:
        """Sums below 2^61 become limbs below 2^51 + 2^15: each passes on what it has above 51."""
        over = [build.lshr(total, self._constant(_BITS)) for total in sums]
        kept = [build.and_(total, self._constant(_MASK)) for total in sums]
        passed = [self._nineteen(build, over[-1]), *over[:-1]]
        return [build.add(x, y) for x, y in zip(kept, passed, strict=True)]

    def _nineteen(self, build: ir.IRBuilder, value: ir.Value) -> ir.Value:
        sixteen = build.shl(value, self._constant(4))
        return build.add(build.add(sixteen, build.add(value, value)), value)

    def _swapped(
        self, build: ir.IRBuilder, mask: ir.Value, a: Number, b: Number
    ) -> tuple[Number, Number]:
        changes = [build.and_(mask, build.xor(x, y)) for x, y in zip(a, b, strict=True)]
        return (
            [build.xor(x, change) for x, change in zip(a, changes, strict=True)],
            [build.xor(y, change) for y, change in zip(b, changes, strict=True)],
        )

    # Memory

    def _room(self, build: ir.IRBuilder) -> ir.Value:
        room = build.alloca(self._vector, _LIMBS)
        room.align = 64
        return build.bitcast(room, self._word.as_pointer())

    def _read(self, build: ir.IRBuilder, address: ir.Value) -> Number:
        return [build.load(self._cell(build, address, limb), align=8) for limb in range(_LIMBS)]

    def _write(self, build: ir.IRBuilder, address: ir.Value, value: Number) -> None:
        for limb, vector in enumerate(value):
            build.store(vector, self._cell(build, address, limb), align=8)

    def _cell(self, build: ir.IRBuilder, address: ir.Value, limb: int) -> ir.Value:
        place = build.gep(address, [self._word(limb * _LANES)])
        return build.bitcast(place, self._vector.as_pointer())

    def _splat(self, build: ir.IRBuilder, value: ir.Value) -> ir.Value:
        nothing = self._ir.Constant(self._vector, self._ir.Undefined)
        one = build.insert_element(nothing, value, self._ir.IntType(32)(0))
        lanes = self._ir.Constant(self._ir.VectorType(self._ir.IntType(32), _LANES), [0] * _LANES)
        return build.shuffle_vector(one, one, lanes)

    def _constant(self, value: int) -> ir.Value:
        return self._ir.Constant(self._vector, [value] * _LANES)

    def _small(self, value: int) -> Number:
        return [self._constant(value), *[self._constant(0)] * (_LIMBS - 1)]
