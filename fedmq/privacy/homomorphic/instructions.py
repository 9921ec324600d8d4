"""By which instructions are eight pairs of residues multiplied at once? By those of this processor.

Numbers are cut into limbs of 52 bits, and a vector holds one limb of each of eight numbers. The
products are those of S. Gueron, V. Krasnov, "Accelerating big integer arithmetic using Intel IFMA
extensions", ARITH 2016, with Montgomery's reduction limb by limb. LLVM, through llvmlite,
translates this code on first use. Time and memory accesses do not depend on the numbers, only on
their places.

*   AVX-512 IFMA (Intel since Ice Lake, AMD since Zen 4): VPMADD52LUQ and VPMADD52HUQ multiply eight
    pairs of 52-bit integers and add the low or high halves of the products to eight 64-bit sums.
*   AVX2 and FMA (Intel since Haswell, AMD since the first Zen): fused multiplications of float64
    give the same halves (N. Emmart, F. Zheng, C. Weems, "Faster modular exponentiation using
    double precision floating point arithmetic on the GPU", ARITH 2018). Rounded towards zero,
    x y + 2^104 has the high half in its last 52 bits, and x y - high 2^52 + 2^52 the low half.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from fedmq.machine_code import features, translated

if TYPE_CHECKING:
    from llvmlite import ir

__all__ = [
    "LANES",
    "LIMB_BITS",
    "PRODUCTS",
    "Multiply",
    "eight_times",
    "is_available",
    "multiplier",
]

LANES = 8
"""Numbers of a vector."""

LIMB_BITS = 52

Multiply = Callable[..., None]
"""``multiply(out, out_at, left, left_at, right, right_at, modulus, negated_inverse, blocks)``.

All are int, and all but the last two addresses: of arrays of numbers, of int64 places in them, and
of the modulus. For each block of eight, ``out[out_at] = left[left_at] · right[right_at] / R``,
block after block, with R = 2^(52·limbs) above four times the modulus; numbers stay below twice it.
"""


@lru_cache(maxsize=1)
def is_available() -> bool:
    """Whether this processor has the instructions, and llvmlite is installed."""
    return _product() is not None


def eight_times() -> float:
    """Eight products at once take the time of so many made one by one, measured at 2048 bits."""
    product = _product()
    return LANES if product is None else product.eight_times


@lru_cache(maxsize=1)
def _product() -> type[_Product] | None:
    """The fastest of those that this processor can."""
    return next((way for way in PRODUCTS if all(map(features().get, way.needs))), None)


@lru_cache(maxsize=4)
def multiplier(limbs: int) -> Multiply:
    """The product of numbers of ``limbs`` limbs, stored in whole vectors; `is_available` only."""
    product = _product()
    assert product is not None, "a processor without the instructions"
    [address] = translated(product(limbs).written(), "multiply")
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 7, ctypes.c_uint64, ctypes.c_int64)
    return signature(address)


class _Product(ABC):
    """Writes the function ``multiply`` for numbers of ``limbs`` limbs.

    Operands lie in memory as the processor multiplies them, of the type ``_operand``.
    """

    needs: ClassVar[tuple[str, ...]]
    """Features of a processor, by LLVM's names."""
    eight_times: ClassVar[float]
    """As of the function of this name."""

    def __init__(self, limbs: int) -> None:
        from llvmlite import ir

        self._ir = ir
        self._limbs = limbs
        self._stride = -(-limbs // LANES) * LANES
        self._word = ir.IntType(64)
        self._vector = ir.VectorType(self._word, LANES)
        self._operand = self._vector
        self._module = ir.Module("residues")

    def written(self) -> str:
        """The module in LLVM's language."""
        ir, word = self._ir, self._word
        arguments = [word.as_pointer()] * 7 + [word] * 2
        function = ir.Function(
            self._module, ir.FunctionType(ir.VoidType(), arguments), name="multiply"
        )
        out, out_at, left, left_at, right, right_at, modulus, inverse, blocks = function.args
        entry, block, end = (function.append_basic_block() for _ in range(3))

        build = ir.IRBuilder(entry)
        a, b, n = (self._memory(build, self._operand) for _ in range(3))
        self._begin(build)
        for j in range(self._limbs):
            limb = self._splat(build, build.load(self._at(build, modulus, j)))
            self._put(build, n, j, self._loaded(build, limb))
        inverses = self._loaded(build, self._splat(build, inverse))
        build.cbranch(build.icmp_signed(">", blocks, word(0)), block, end)

        build = ir.IRBuilder(block)
        number = build.phi(word)
        number.add_incoming(word(0), entry)
        for numbers, places, memory in ((left, left_at, a), (right, right_at, b)):
            self._gather(build, self._addresses(build, numbers, places, number), memory)
        build, sums = self._sums(build, a, b, n, inverses)
        self._scatter(
            build, self._carried(build, sums), self._addresses(build, out, out_at, number)
        )
        later = build.add(number, word(1))
        number.add_incoming(later, build.block)
        build.cbranch(build.icmp_signed("<", later, blocks), block, end)
        build = ir.IRBuilder(end)
        self._end(build)
        build.ret_void()
        return str(self._module)

    def _begin(self, build: ir.IRBuilder) -> None:
        """What comes before all products."""
        return

    def _end(self, build: ir.IRBuilder) -> None:
        """What comes after them."""
        return

    def _loaded(self, build: ir.IRBuilder, limbs: ir.Value) -> ir.Value:
        """``limbs``, integers below 2^52, as an operand."""
        return limbs

    @abstractmethod
    def _sums(
        self, build: ir.IRBuilder, a: ir.Value, b: ir.Value, n: ir.Value, inverses: ir.Value
    ) -> tuple[ir.IRBuilder, list[ir.Value]]:
        """a·b / R as sums of limbs that are not carried yet, and where the code goes on.

        For each limb of b: (sums + a·limb + n·m) / 2^52 with the m that makes it whole.
        """

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
                self._put(build, memory, first + j, self._loaded(build, vector))

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
        return self._ir.Constant(self._vector, [value % (1 << 64)] * LANES)

    def _memory(self, build: ir.IRBuilder, kind: ir.Type) -> ir.Value:
        """Room for a number's limbs."""
        memory = build.alloca(kind, self._stride)
        memory.align = 64
        return memory

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


class _IntegerProduct(_Product):
    """By AVX-512 IFMA. All sums stay in registers, and the code of a limb has no loop."""

    needs = ("avx512ifma",)
    eight_times = 1.4

    def __init__(self, limbs: int) -> None:
        super().__init__(limbs)
        three = self._ir.FunctionType(self._vector, [self._vector] * 3)
        self._add_low, self._add_high = (
            self._ir.Function(self._module, three, f"llvm.x86.avx512.vpmadd52{half}.uq.512")
            for half in "lh"
        )

    def _sums(
        self, build: ir.IRBuilder, a: ir.Value, b: ir.Value, n: ir.Value, inverses: ir.Value
    ) -> tuple[ir.IRBuilder, list[ir.Value]]:
        word, before = self._word, build.block
        limb, after = (build.function.append_basic_block() for _ in range(2))
        build.branch(limb)

        build = self._ir.IRBuilder(limb)
        i = build.phi(word)
        i.add_incoming(word(0), before)
        sums = [build.phi(self._vector) for _ in range(self._limbs)]
        for vector in sums:
            vector.add_incoming(self._constant(0), before)
        added = self._one_limb(build, sums, a, self._get(build, b, i), n, inverses)
        following = build.add(i, word(1))
        i.add_incoming(following, limb)
        for vector, value in zip(sums, added, strict=True):
            vector.add_incoming(value, limb)
        build.cbranch(build.icmp_signed("<", following, word(self._limbs)), limb, after)
        return self._ir.IRBuilder(after), added

    def _one_limb(
        self,
        build: ir.IRBuilder,
        sums: Sequence[ir.Value],
        a: ir.Value,
        b: ir.Value,
        n: ir.Value,
        inverses: ir.Value,
    ) -> list[ir.Value]:
        """``b`` is one limb."""

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


_HIGH_UNIT = 2.0**104
_LOW_UNIT = 2.0**52
_HIGH_BITS = 0x467 << 52
"""Of 2^104 as a float64: a sum of ``high`` halves has so much more for each."""
_LOW_BITS = 0x433 << 52
"""The same of 2^52, and of ``low`` halves."""

_TOWARDS_ZERO = 0x6000
"""What the control register of the processor's floating point says of rounding."""

_PLACES_AT_ONCE = 2  # of a limb's products: more would need more registers than there are


class _FloatProduct(_Product):
    """By fused multiplications of float64. Sums lie in memory, two places in a turn of a loop.

    Halves are added up as the bits of their float64, whose surplus is known beforehand: sums begin
    by so much less that the one which is cut off next is always right, and end by what is left.
    """

    needs = ("avx2", "fma")
    eight_times = 2.8

    def __init__(self, limbs: int) -> None:
        super().__init__(limbs)
        ir = self._ir
        self._operand = ir.VectorType(ir.DoubleType(), LANES)
        three = ir.FunctionType(self._operand, [self._operand] * 3)
        self._fused = ir.Function(self._module, three, "llvm.fma.v8f64")
        bytes_ = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
        self._read_control, self._write_control = (
            ir.Function(self._module, bytes_, f"llvm.x86.sse.{name}mxcsr") for name in ("st", "ld")
        )

    def _begin(self, build: ir.IRBuilder) -> None:
        kind = self._ir.IntType(32)
        self._total = self._memory(build, self._vector)
        self._control, changed = build.alloca(kind), build.alloca(kind)
        self._call(build, self._read_control, self._control)
        build.store(build.or_(build.load(self._control), kind(_TOWARDS_ZERO)), changed)
        self._call(build, self._write_control, changed)

    def _end(self, build: ir.IRBuilder) -> None:
        self._call(build, self._write_control, self._control)

    def _call(self, build: ir.IRBuilder, function: ir.Function, memory: ir.Value) -> None:
        build.call(function, [build.bitcast(memory, self._ir.IntType(8).as_pointer())])

    def _loaded(self, build: ir.IRBuilder, limbs: ir.Value) -> ir.Value:
        number = build.bitcast(build.or_(limbs, self._constant(_LOW_BITS)), self._operand)
        return build.fsub(number, self._float(_LOW_UNIT))

    def _sums(
        self, build: ir.IRBuilder, a: ir.Value, b: ir.Value, n: ir.Value, inverses: ir.Value
    ) -> tuple[ir.IRBuilder, list[ir.Value]]:
        word, before, surplus = self._word, build.block, 2 * (_HIGH_BITS + _LOW_BITS)
        limb, rest, after = (build.function.append_basic_block() for _ in range(3))
        for j in range(self._limbs):
            self._put(build, self._total, j, self._constant(-j * surplus))
        build.branch(limb)

        build = self._ir.IRBuilder(limb)
        i = build.phi(word)
        i.add_incoming(word(0), before)
        factor = self._get(build, b, i)
        high, low, _ = self._halves(build, self._get(build, a, 0), factor)
        lowest = self._added(build, self._get(build, self._total, 0), low, -_LOW_BITS)
        digit = self._loaded(build, build.and_(lowest, self._constant((1 << LIMB_BITS) - 1)))
        m = build.fsub(self._halves(build, digit, inverses)[2], self._float(_LOW_UNIT))
        other, low, _ = self._halves(build, self._get(build, n, 0), m)
        whole = self._added(build, lowest, low, -_LOW_BITS)
        carried = build.lshr(whole, self._constant(LIMB_BITS))
        high = build.add(build.add(high, other), carried)

        turns, left = divmod(self._limbs - 1, _PLACES_AT_ONCE)
        if turns:
            turn, before = build.function.append_basic_block(), build.block
            build.branch(turn)
            build = self._ir.IRBuilder(turn)
            j, below = build.phi(word), build.phi(self._vector)
            j.add_incoming(word(1), before)
            below.add_incoming(high, before)
            high = below
            for place in range(_PLACES_AT_ONCE):
                high = self._place(build, a, factor, n, m, build.add(j, word(place)), high)
            following = build.add(j, word(_PLACES_AT_ONCE))
            j.add_incoming(following, turn)
            below.add_incoming(high, turn)
            end = word(1 + turns * _PLACES_AT_ONCE)
            build.cbranch(build.icmp_signed("<", following, end), turn, rest)
            build = self._ir.IRBuilder(rest)
        else:
            build.branch(rest)
            build = self._ir.IRBuilder(rest)
        for place in range(self._limbs - left, self._limbs):
            high = self._place(build, a, factor, n, m, word(place), high)
        self._put(build, self._total, self._limbs - 1, high)
        following = build.add(i, word(1))
        i.add_incoming(following, rest)
        build.cbranch(build.icmp_signed("<", following, word(self._limbs)), limb, after)

        build = self._ir.IRBuilder(after)
        found = []
        for place in range(self._limbs):
            steps = self._limbs - place
            more = 2 * (steps * _HIGH_BITS + (steps - 1) * _LOW_BITS)
            total = self._get(build, self._total, place)
            found.append(build.add(total, self._constant(-more)))
        return build, found

    def _place(
        self,
        build: ir.IRBuilder,
        a: ir.Value,
        factor: ir.Value,
        n: ir.Value,
        m: ir.Value,
        place: ir.Value,
        below: ir.Value,
    ) -> ir.Value:
        """Sum up the low halves of a place and the high ones ``below`` it; its own high ones."""
        high, low, _ = self._halves(build, self._get(build, a, place), factor)
        other, more, _ = self._halves(build, self._get(build, n, place), m)
        total = build.add(self._get(build, self._total, place), build.add(low, more))
        at = build.sub(place, self._word(1))
        self._put(build, self._total, at, build.add(total, below))
        return build.add(high, other)

    def _halves(
        self, build: ir.IRBuilder, x: ir.Value, y: ir.Value
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Of a product: bits of the high half and of the low one, which also as it is."""
        high = build.call(self._fused, [x, y, self._float(_HIGH_UNIT)])
        less = build.fsub(self._float(_HIGH_UNIT + _LOW_UNIT), high)
        low = build.call(self._fused, [x, y, less])
        return build.bitcast(high, self._vector), build.bitcast(low, self._vector), low

    def _added(self, build: ir.IRBuilder, left: ir.Value, right: ir.Value, number: int) -> ir.Value:
        return build.add(build.add(left, right), self._constant(number))

    def _float(self, value: float) -> ir.Value:
        return self._ir.Constant(self._operand, [value] * LANES)


PRODUCTS: tuple[type[_Product], ...] = (_IntegerProduct, _FloatProduct)
"""The fastest first."""
