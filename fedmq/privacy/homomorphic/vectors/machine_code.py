"""Montgomery's product of eight pairs of residues at once, as machine code for this processor.

The instructions VPMADD52LUQ and VPMADD52HUQ (AVX-512 IFMA: Intel since Ice Lake, AMD since Zen 4)
multiply eight pairs of 52-bit numbers and add the low or high halves of the products to eight
64-bit sums. So numbers are cut into limbs of 52 bits, and a vector holds one limb of each of eight
numbers. The products are those of S. Gueron, V. Krasnov, "Accelerating big integer arithmetic using
Intel IFMA extensions", ARITH 2016, with Montgomery's reduction limb by limb.

LLVM, by way of llvmlite, translates what is written here when it is first used. Time and memory
accesses do not depend on the numbers, only on their places.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llvmlite import ir

__all__ = ["LANES", "LIMB_BITS", "Multiply", "is_available", "multiplier"]

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
