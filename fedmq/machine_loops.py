"""How is a loop over arrays written, so that the processor takes many of its steps at once?

A loop is written in Python as one step in terms of the loop's number. LLVM makes vectors of it:
arrays do not overlap, and no step but a sum or a maximum needs what another one found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from llvmlite import ir

__all__ = ["Array", "Kind", "Loops", "Number", "each"]

Kind = Literal["i64", "u64", "i32", "u32", "u16", "u8", "f64"]
"""Of the numbers of an array; whole ones of fewer bits become 64 where they are computed with."""


@contextmanager
def each(build: ir.IRBuilder, first: ir.Value, stop: ir.Value) -> Iterator[ir.Value]:
    """What is written within happens for each number from ``first`` to before ``stop``, at least 1.

    Words, as `Loops.word`.
    """
    before, body, after = build.block, build.append_basic_block(), build.append_basic_block()
    build.branch(body)
    build.position_at_end(body)
    number = build.phi(first.type)
    number.add_incoming(first, before)
    yield number
    following = build.add(number, number.type(1), flags=("nsw", "nuw"))
    number.add_incoming(following, build.block)
    build.cbranch(build.icmp_signed("<", following, stop), body, after)
    build.position_at_end(after)


class Number:
    """A number of one step, 64 bits: whole modulo 2^64, or a float. Operators are those of LLVM."""

    __slots__ = ("build", "value")

    def __init__(self, build: ir.IRBuilder, value: ir.Value) -> None:
        self.build = build
        self.value = value

    @property
    def _is_float(self) -> bool:
        return str(self.value.type) == "double"

    def _other(self, other: Number | float) -> ir.Value:
        return other.value if isinstance(other, Number) else self.value.type(other)

    def _of(self, whole: str, floating: str, other: Number | float) -> Number:
        build = getattr(self.build, floating if self._is_float else whole)
        flags = ("contract",) if self._is_float else ()
        return Number(self.build, build(self.value, self._other(other), flags=flags))

    def __add__(self, other: Number | float) -> Number:
        return self._of("add", "fadd", other)

    def __sub__(self, other: Number | float) -> Number:
        return self._of("sub", "fsub", other)

    def __mul__(self, other: Number | float) -> Number:
        return self._of("mul", "fmul", other)

    def __and__(self, other: Number | int) -> Number:
        return Number(self.build, self.build.and_(self.value, self._other(other)))

    def __or__(self, other: Number | int) -> Number:
        return Number(self.build, self.build.or_(self.value, self._other(other)))

    def __xor__(self, other: Number | int) -> Number:
        return Number(self.build, self.build.xor(self.value, self._other(other)))

    def __lshift__(self, bits: Number | int) -> Number:
        return Number(self.build, self.build.shl(self.value, self._other(bits)))

    def __rshift__(self, bits: int) -> Number:
        """Signed."""
        return Number(self.build, self.build.ashr(self.value, self._other(bits)))

    def unsigned_shift(self, bits: Number | int) -> Number:
        """To the right, with zeros from above."""
        return Number(self.build, self.build.lshr(self.value, self._other(bits)))

    def is_below(self, other: Number | int) -> Number:
        """1 or 0, signed."""
        return self._compared("<", other)

    def is_above(self, other: Number | int) -> Number:
        """1 or 0, signed."""
        return self._compared(">", other)

    def _compared(self, how: str, other: Number | int) -> Number:
        from llvmlite import ir

        found = self.build.icmp_signed(how, self.value, self._other(other))
        return Number(self.build, self.build.zext(found, ir.IntType(64)))

    def less_if_above(self, limit: int, amount: int) -> Number:
        """Less by ``amount``, if it is above ``limit``, signed."""
        is_above = self.build.icmp_signed(">", self.value, self._other(limit))
        return self._chosen(is_above, self - amount, self)

    def more_if_negative(self, amount: int) -> Number:
        """More by ``amount``, if it is below 0."""
        is_below = self.build.icmp_signed("<", self.value, self._other(0))
        return self._chosen(is_below, self + amount, self)

    def zero_if_none(self, flag: Number) -> Number:
        """0 if ``flag`` is, whatever this is."""
        is_none = self.build.icmp_signed("==", flag.value, flag.value.type(0))
        return self._chosen(is_none, Number(self.build, self.value.type(0)), self)

    def _chosen(self, condition: ir.Value, one: Number, other: Number) -> Number:
        return Number(self.build, self.build.select(condition, one.value, other.value))

    def larger(self, other: Number) -> Number:
        """The larger of two whole numbers, without a sign: LLVM keeps no other apart in vectors."""
        is_above = self.build.icmp_unsigned(">", self.value, other.value)
        return self._chosen(is_above, self, other)

    def floating(self) -> Number:
        """A signed whole number as a float."""
        from llvmlite import ir

        return Number(self.build, self.build.sitofp(self.value, ir.DoubleType()))

    def whole(self) -> Number:
        """A float, which is whole or is cut off, as a signed number."""
        from llvmlite import ir

        return Number(self.build, self.build.fptosi(self.value, ir.IntType(64)))

    def rounded(self) -> Number:
        """A float to the nearest whole one."""
        return self._called("llvm.rint")

    def ones(self) -> Number:
        """How many bits of a whole number are 1."""
        return self._called("llvm.ctpop")

    def magnitude_bits(self) -> Number:
        """The bits of a float without its sign: a whole number that grows as the magnitude does."""
        from llvmlite import ir

        bits = self.build.bitcast(self._called("llvm.fabs").value, ir.IntType(64))
        return Number(self.build, bits)

    def _called(self, name: str) -> Number:
        function = self.build.module.declare_intrinsic(name, [self.value.type])
        return Number(self.build, self.build.call(function, [self.value]))


class Array:
    """An array of ``kind``; `read` and `write` take the number of an element."""

    def __init__(self, loops: Loops, pointer: ir.Value, kind: Kind) -> None:
        self._loops = loops
        self._pointer = pointer
        self._kind = kind

    def read(self, place: Number | int) -> Number:
        """The element as a number of 64 bits."""
        build = self._loops.build
        value = build.load(self._at(place))
        if self._kind in ("i64", "u64", "f64"):
            return Number(build, value)
        wider = build.sext if self._kind.startswith("i") else build.zext
        return Number(build, wider(value, self._loops.word))

    def write(self, place: Number | int, number: Number) -> None:
        """Set the element; bits that it has no room for are lost."""
        value = number.value
        if self._kind not in ("i64", "u64", "f64"):
            value = self._loops.build.trunc(value, self._loops.type_of(self._kind))
        self._loops.build.store(value, self._at(place))

    def _at(self, place: Number | int) -> ir.Value:
        at = place.value if isinstance(place, Number) else self._loops.word(place)
        return self._loops.build.gep(self._pointer, [at], inbounds=True)


class Loops:
    """Writes functions of arrays into one module, one after the other."""

    def __init__(self) -> None:
        from llvmlite import ir

        self._ir = ir
        self.word = ir.IntType(64)
        self._module = ir.Module("loops")
        self.build: ir.IRBuilder = ir.IRBuilder()

    def __str__(self) -> str:
        """The module in LLVM's language."""
        return str(self._module)

    def type_of(self, kind: Kind) -> ir.Type:
        """LLVM's type of an element."""
        return self._ir.DoubleType() if kind == "f64" else self._ir.IntType(int(kind[1:]))

    def function(
        self, name: str, kinds: tuple[Kind, ...], numbers: int, write: Callable[..., None]
    ) -> None:
        """The function ``name`` of arrays of ``kinds``, and of so many ``numbers``.

        ``write`` takes these loops, each `Array`, and each `Number`, and writes what is done.
        """
        types = [self.type_of(kind).as_pointer() for kind in kinds] + [self.word] * numbers
        function = self._ir.Function(
            self._module, self._ir.FunctionType(self._ir.VoidType(), types), name=name
        )
        for argument in function.args[: len(kinds)]:
            argument.add_attribute("noalias")
        self.build = self._ir.IRBuilder(function.append_basic_block())
        arrays = [
            Array(self, argument, kind)
            for argument, kind in zip(function.args, kinds, strict=False)
        ]
        write(self, *arrays, *(Number(self.build, value) for value in function.args[len(kinds) :]))
        self.build.ret_void()

    @contextmanager
    def each(self, count: Number | int) -> Iterator[Number]:
        """What is written within happens for each number from 0 to below ``count``, at least 1."""
        stop = count.value if isinstance(count, Number) else self.word(count)
        with each(self.build, self.word(0), stop) as number:
            yield Number(self.build, number)

    def number(self, number: int) -> Number:
        """A constant."""
        return Number(self.build, self.word(number))

    def kept(self, start: int) -> Kept:
        """A whole number that steps may change."""
        return Kept(self, start)


class Kept:
    """A whole number that outlives a step."""

    def __init__(self, loops: Loops, start: int) -> None:
        self._loops = loops
        self._room: Any = loops.build.alloca(loops.word)
        loops.build.store(loops.word(start), self._room)

    def get(self) -> Number:
        """The number."""
        return Number(self._loops.build, self._loops.build.load(self._room))

    def set(self, number: Number) -> None:
        """Change it."""
        self._loops.build.store(number.value, self._room)
