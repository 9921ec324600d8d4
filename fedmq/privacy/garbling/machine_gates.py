"""By which instructions are layers of gates garbled and evaluated at once? By AES-NI.

The arithmetic is that of `half_gates`, to the bit: the hash of `Permutation`, H(x, t) =
P(P(x) ⊕ t) ⊕ P(x), where P is AES-128 under a public key, and both halves of an AND. Labels are
read once and results written twice, where arrays would be gone through a dozen times: results of a
layer lie beside the labels until all its gates have read theirs. Small circuits have hundreds of
layers, so one call goes through many. Time and memory accesses do not depend on labels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmq.machine_code import address, features, translated
from fedmq.machine_loops import each
from fedmq.privacy.garbling.schedule import Program

if TYPE_CHECKING:
    from llvmlite import ir

__all__ = ["Gates", "gates", "is_available"]

_NEEDS = ("aes", "sse2")
"""By LLVM's names; ARM's processors have an "aes" of their own, by other instructions."""
_ROUNDS = 10
_ROUND_CONSTANTS = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1B, 0x36)

Words = NDArray[np.uint64]


def is_available() -> bool:
    """Whether this processor has the instructions, and llvmlite is installed."""
    return all(map(features().get, _NEEDS))


@lru_cache(maxsize=8)
def gates(key: bytes) -> Gates:
    """The gates whose hash is AES under ``key``; `is_available` only."""
    return Gates(key)


class Gates:
    """Gates of instances side by side. Arrays are contiguous; labels are uint64 (slots, words).

    ``stretch``: neighbouring layers of a ``program``; ``numbers`` uint64 (instances,): the
    instances' tweaks; ``tables`` (ANDs of the stretch, 2, words); ``room`` (gates of the largest
    layer, words) is overwritten. Results are written into ``labels``.
    """

    def __init__(self, key: bytes) -> None:
        expand, self._garble, self._evaluate = _functions()
        self._keys = np.empty((_ROUNDS + 1, 2), np.uint64)
        whole = np.frombuffer(key, np.uint64).copy()
        expand(whole.ctypes.data, self._keys.ctypes.data)

    def garble(
        self,
        labels: Words,
        program: Program,
        stretch: range,
        secret: Words,
        numbers: Words,
        tables: Words,
        room: Words,
    ) -> None:
        """Labels of 0 of the results, and the ``tables``; ``secret`` (2,)."""
        arrays = (labels, *_of_gates(program), numbers, tables, room, self._keys, secret)
        _go_through(self._garble, arrays, stretch, numbers)

    def evaluate(
        self,
        labels: Words,
        program: Program,
        stretch: range,
        numbers: Words,
        tables: Words,
        room: Words,
    ) -> None:
        """Labels of the results by ``tables``."""
        arrays = (labels, *_of_gates(program), numbers, tables, room, self._keys)
        _go_through(self._evaluate, arrays, stretch, numbers)


_OF_GATES = tuple(field.name for field in fields(Program))
_EVALUATED = ("labels", *_OF_GATES, "numbers", "tables", "room", "keys")
_GARBLED = (*_EVALUATED, "secret")
"""The arrays that the functions take, in their order."""


def _of_gates(program: Program) -> Iterator[NDArray[Any]]:
    return (getattr(program, name) for name in _OF_GATES)


def _go_through(
    function: Callable[..., None],
    arrays: Sequence[NDArray[Any]],
    stretch: range,
    numbers: Words,
) -> None:
    if stretch:  # a circuit without gates has no layers
        function(*map(address, arrays), stretch.start, stretch.stop, len(numbers))


@lru_cache(maxsize=1)
def _functions() -> Sequence[Callable[..., None]]:
    arrays = {"expand": 2, "garble": len(_GARBLED), "evaluate": len(_EVALUATED)}
    addresses = translated(_Writer().written(), *arrays)
    found = []
    for (name, count), begin in zip(arrays.items(), addresses, strict=True):
        more = [] if name == "expand" else [ctypes.c_int64] * 3
        found.append(ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count, *more)(begin))
    return found


class _And(NamedTuple):
    """An AND in LLVM's language. ``number``: among all gates; ``place``: among all ANDs.

    The others are the blocks at which the labels of its inputs, its table and its result begin.
    """

    number: ir.Value
    place: ir.Value
    inputs: tuple[ir.Value, ir.Value]
    table: ir.Value
    result: ir.Value


class _Writer:
    """Writes the functions in LLVM's language."""

    def __init__(self) -> None:
        from llvmlite import ir

        self._ir = ir
        self._word = ir.IntType(64)
        self._block = ir.VectorType(self._word, 2)
        self._module = ir.Module("gates")
        two = ir.FunctionType(self._block, [self._block] * 2)
        self._round, self._last_round = (
            ir.Function(self._module, two, f"llvm.x86.aesni.{name}")
            for name in ("aesenc", "aesenclast")
        )
        assist = ir.FunctionType(self._block, [self._block, ir.IntType(8)])
        self._assist = ir.Function(self._module, assist, "llvm.x86.aesni.aeskeygenassist")

    def written(self) -> str:
        """The module."""
        self._write_expand()
        self._write_layers("garble", _GARBLED, self._garbled)
        self._write_layers("evaluate", _EVALUATED, self._evaluated)
        return str(self._module)

    def _function(self, name: str, arrays: int, numbers: int) -> ir.Function:
        ir = self._ir
        arguments = [self._word.as_pointer()] * arrays + [self._word] * numbers
        return ir.Function(self._module, ir.FunctionType(ir.VoidType(), arguments), name=name)

    def _write_expand(self) -> None:
        """AES-128's round keys (FIPS 197, section 5.2)."""
        llvm, function = self._ir, self._function("expand", 2, 0)
        key, keys = function.args
        build = llvm.IRBuilder(function.append_basic_block())
        four = llvm.VectorType(llvm.IntType(32), 4)
        zeros = llvm.Constant(four, [0] * 4)

        def shuffled(x: ir.Value, y: ir.Value, lanes: Sequence[int]) -> ir.Value:
            return build.shuffle_vector(x, y, llvm.Constant(four, list(lanes)))

        held = self._load(build, key, self._word(0))
        self._store(build, keys, self._word(0), held)
        for number, constant in enumerate(_ROUND_CONSTANTS, start=1):
            made = build.call(self._assist, [held, llvm.IntType(8)(constant)])
            last = shuffled(build.bitcast(made, four), zeros, [3, 3, 3, 3])
            words = build.bitcast(held, four)
            for _ in range(3):  # each word is the XOR of itself and all below
                moved = shuffled(build.bitcast(held, four), zeros, [4, 0, 1, 2])
                held = build.bitcast(moved, self._block)
                words = build.xor(words, moved)
            held = build.bitcast(build.xor(words, last), self._block)
            self._store(build, keys, self._word(number), held)
        build.ret_void()

    def _write_layers(self, name: str, names: Sequence[str], and_gate: Callable[..., None]) -> None:
        """A loop over layers; in it first one over gates, each of all instances.

        Then results go to their slots: until then another gate of the layer may read these.
        """
        ir, word = self._ir, self._word
        function = self._function(name, len(names), 3)
        *pointers, first, stop, instances = function.args
        arrays = dict(zip(names, pointers, strict=True))
        build = ir.IRBuilder(function.append_basic_block())
        keys = [self._load(build, arrays["keys"], word(number)) for number in range(_ROUNDS + 1)]
        tables_before = self._number(build, arrays["ands"], first)
        with each(build, first, stop) as layer:
            after = build.add(layer, word(1))
            start, end = (self._number(build, arrays["gates"], at) for at in (layer, after))
            are_ands = self._flag(build, arrays["are_ands"], layer)
            with build.if_else(build.icmp_signed("!=", are_ands, word(0))) as (ands, others):
                with ands:
                    before = self._number(build, arrays["ands"], layer)
                    with each(build, start, end) as number:
                        place = build.add(before, build.sub(number, start))
                        table = build.mul(build.sub(place, tables_before), word(2))
                        gate = _And(
                            number,
                            place,
                            self._inputs(build, arrays, number, instances),
                            build.mul(table, instances),
                            build.mul(build.sub(number, start), instances),
                        )
                        and_gate(build, arrays, keys, gate, instances)
                with others, each(build, start, end) as number:
                    inputs = self._inputs(build, arrays, number, instances)
                    found = build.mul(build.sub(number, start), instances)
                    with each(build, word(0), instances) as instance:
                        left, right = self._labels(build, arrays, inputs, instance)
                        at = build.add(found, instance)
                        self._store(build, arrays["room"], at, build.xor(left, right))
            with each(build, start, end) as number:
                found = build.mul(build.sub(number, start), instances)
                result = build.mul(self._number(build, arrays["result"], number), instances)
                with each(build, word(0), instances) as instance:
                    label = self._load(build, arrays["room"], build.add(found, instance))
                    self._store(build, arrays["labels"], build.add(result, instance), label)
        build.ret_void()

    def _garbled(
        self,
        build: ir.IRBuilder,
        arrays: Mapping[str, ir.Value],
        keys: Sequence[ir.Value],
        gate: _And,
        instances: ir.Value,
    ) -> None:
        secret = self._load(build, arrays["secret"], self._word(0))
        first = build.mul(gate.number, self._word(2))
        turned = [
            build.and_(self._masks(build, self._flag(build, arrays["turned"], at)), secret)
            for at in (first, build.add(first, self._word(1)))
        ]
        tweaks = self._tweaks(build, gate.place)
        with each(build, self._word(0), instances) as instance:
            labels = self._labels(build, arrays, gate.inputs, instance)
            zeros = [build.xor(*pair) for pair in zip(labels, turned, strict=True)]
            blocks = [*zeros, *(build.xor(zero, secret) for zero in zeros)]
            tweaked = self._numbered(build, tweaks, arrays["numbers"], instance)
            hashes = self._hashes(build, keys, blocks, tweaked * 2)
            of_left, of_right = (build.xor(hashes[side], hashes[side + 2]) for side in range(2))
            left_mask, right_mask = (self._colours(build, zero) for zero in zeros)
            garblers = build.xor(build.and_(right_mask, secret), of_left)
            tables, at = arrays["tables"], build.add(gate.table, instance)
            self._store(build, tables, at, garblers)
            self._store(build, tables, build.add(at, instances), build.xor(of_right, zeros[0]))
            found = build.xor(build.xor(hashes[0], hashes[1]), build.and_(garblers, left_mask))
            found = build.xor(found, build.and_(of_right, right_mask))
            self._store(build, arrays["room"], build.add(gate.result, instance), found)

    def _evaluated(
        self,
        build: ir.IRBuilder,
        arrays: Mapping[str, ir.Value],
        keys: Sequence[ir.Value],
        gate: _And,
        instances: ir.Value,
    ) -> None:
        tweaks = self._tweaks(build, gate.place)
        with each(build, self._word(0), instances) as instance:
            active = self._labels(build, arrays, gate.inputs, instance)
            tweaked = self._numbered(build, tweaks, arrays["numbers"], instance)
            hashes = self._hashes(build, keys, active, tweaked)
            left_mask, right_mask = (self._colours(build, label) for label in active)
            tables, at = arrays["tables"], build.add(gate.table, instance)
            garblers = self._load(build, tables, at)
            evaluators = self._load(build, tables, build.add(at, instances))
            found = build.xor(build.xor(*hashes), build.and_(garblers, left_mask))
            more = build.and_(build.xor(evaluators, active[0]), right_mask)
            result = build.add(gate.result, instance)
            self._store(build, arrays["room"], result, build.xor(found, more))

    def _inputs(
        self,
        build: ir.IRBuilder,
        arrays: Mapping[str, ir.Value],
        number: ir.Value,
        instances: ir.Value,
    ) -> tuple[ir.Value, ir.Value]:
        """The blocks at which the labels of both inputs of a gate begin."""
        left, right = (
            build.mul(self._number(build, arrays[side], number), instances)
            for side in ("left", "right")
        )
        return left, right

    def _labels(
        self,
        build: ir.IRBuilder,
        arrays: Mapping[str, ir.Value],
        inputs: Sequence[ir.Value],
        instance: ir.Value,
    ) -> list[ir.Value]:
        """The labels of a gate's inputs."""
        return [self._load(build, arrays["labels"], build.add(at, instance)) for at in inputs]

    def _hashes(
        self,
        build: ir.IRBuilder,
        keys: Sequence[ir.Value],
        blocks: Sequence[ir.Value],
        tweaks: Sequence[ir.Value],
    ) -> list[ir.Value]:
        permuted = self._permuted(build, keys, blocks)
        tweaked = [build.xor(*pair) for pair in zip(permuted, tweaks, strict=True)]
        again = self._permuted(build, keys, tweaked)
        return [build.xor(*pair) for pair in zip(again, permuted, strict=True)]

    def _permuted(
        self, build: ir.IRBuilder, keys: Sequence[ir.Value], blocks: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """AES of each block, round by round of all: rounds of one block wait for each other."""
        held = [build.xor(block, keys[0]) for block in blocks]
        for key in keys[1:-1]:
            held = [build.call(self._round, [block, key]) for block in held]
        return [build.call(self._last_round, [block, keys[-1]]) for block in held]

    def _tweaks(self, build: ir.IRBuilder, place: ir.Value) -> list[ir.Value]:
        """The words of both halves of an AND at ``place``."""
        first = build.mul(place, self._word(2))
        return [first, build.add(first, self._word(1))]

    def _numbered(
        self, build: ir.IRBuilder, places: Sequence[ir.Value], numbers: ir.Value, at: ir.Value
    ) -> list[ir.Value]:
        """Tweaks of an instance: places beside its number."""
        number = self._number(build, numbers, at)
        return [self._pair(build, place, number) for place in places]

    def _pair(self, build: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
        nothing, index = self._ir.Constant(self._block, self._ir.Undefined), self._ir.IntType(32)
        return build.insert_element(build.insert_element(nothing, low, index(0)), high, index(1))

    def _masks(self, build: ir.IRBuilder, bit: ir.Value) -> ir.Value:
        """All ones where ``bit`` is 1."""
        mask = build.sub(self._word(0), bit)
        return self._pair(build, mask, mask)

    def _colours(self, build: ir.IRBuilder, label: ir.Value) -> ir.Value:
        lowest = build.extract_element(label, self._ir.IntType(32)(0))
        return self._masks(build, build.and_(lowest, self._word(1)))

    def _number(self, build: ir.IRBuilder, pointer: ir.Value, at: ir.Value) -> ir.Value:
        return build.load(build.gep(pointer, [at]))

    def _flag(self, build: ir.IRBuilder, pointer: ir.Value, at: ir.Value) -> ir.Value:
        """The byte ``at`` a place, as a word."""
        flags = build.bitcast(pointer, self._ir.IntType(8).as_pointer())
        return build.zext(build.load(build.gep(flags, [at])), self._word)

    def _load(self, build: ir.IRBuilder, pointer: ir.Value, at: ir.Value) -> ir.Value:
        blocks = build.bitcast(pointer, self._block.as_pointer())
        return build.load(build.gep(blocks, [at]), align=8)

    def _store(self, build: ir.IRBuilder, pointer: ir.Value, at: ir.Value, block: ir.Value) -> None:
        blocks = build.bitcast(pointer, self._block.as_pointer())
        build.store(block, build.gep(blocks, [at]), align=8)
