"""By which instructions are ANDs garbled and evaluated at once? By AES-NI, a gate in one sweep.

The arithmetic is that of `half_gates`, to the bit: the hash of `Permutation`, H(x, t) =
P(P(x) ⊕ t) ⊕ P(x), where P is AES-128 under a public key, and both halves of an AND. Labels are
read once and results written once, where arrays would be gone through a dozen times. Time and
memory accesses do not depend on labels.
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

__all__ = ["Gates", "gates", "is_available"]

_NEEDS = ("aes", "sse2")
"""By LLVM's names; ARM's processors have an "aes" of their own, by other instructions."""
_ROUNDS = 10
_ROUND_CONSTANTS = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1B, 0x36)

Words = NDArray[np.uint64]
Places = NDArray[np.intp]


def is_available() -> bool:
    """Whether this processor has the instructions, and llvmlite is installed."""
    return all(map(features().get, _NEEDS))


@lru_cache(maxsize=8)
def gates(key: bytes) -> Gates:
    """The gates whose hash is AES under ``key``; `is_available` only."""
    return Gates(key)


class Gates:
    """ANDs of instances side by side. Arrays are contiguous; labels are uint64 (slots, words).

    ``left`` and ``right``: slots of a layer's inputs, intp (gates,); ``first``: the number of the
    layer's first AND among all; ``numbers`` uint64 (instances,): the instances' tweaks. Results are
    written into ``out`` (gates, words).
    """

    def __init__(self, key: bytes) -> None:
        expand, self._garble, self._evaluate = _functions()
        self._keys = np.empty((_ROUNDS + 1, 2), np.uint64)
        whole = np.frombuffer(key, np.uint64).copy()
        expand(whole.ctypes.data, self._keys.ctypes.data)

    def garble(
        self,
        labels: Words,
        left: Places,
        right: Places,
        turned: NDArray[np.uint8],
        secret: Words,
        numbers: Words,
        first: int,
        tables: Words,
        out: Words,
    ) -> None:
        """Labels of 0 of the results, and ``tables`` (gates, 2, words).

        ``turned`` uint8 (gates, 2): whether inputs are inverted; ``secret`` (2,).
        """
        arrays = (labels, left, right, turned, secret, numbers, tables, out, self._keys)
        self._garble(*(array.ctypes.data for array in arrays), first, len(left), len(numbers))

    def evaluate(
        self,
        labels: Words,
        left: Places,
        right: Places,
        numbers: Words,
        first: int,
        tables: Words,
        out: Words,
    ) -> None:
        """Labels of the results by ``tables`` (gates, 2, words)."""
        arrays = (labels, left, right, numbers, tables, out, self._keys)
        self._evaluate(*(array.ctypes.data for array in arrays), first, len(left), len(numbers))


@lru_cache(maxsize=1)
def _functions() -> Sequence[Callable[..., None]]:
    names = {"expand": 2, "garble": 9, "evaluate": 7}
    addresses = translated(_Writer().written(), *names)
    found = []
    for (name, arrays), address in zip(names.items(), addresses, strict=True):
        more = [] if name == "expand" else [ctypes.c_int64] * 3
        found.append(ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arrays, *more)(address))
    return found


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
        self._write_gates("garble", 9, self._garbled)
        self._write_gates("evaluate", 7, self._evaluated)
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

    def _write_gates(self, name: str, arrays: int, gate: Callable[..., Any]) -> None:
        """A loop over gates, and within it one over instances, of which ``gate`` is the body."""
        ir, word, function = self._ir, self._word, self._function(name, arrays, 3)
        *pointers, first, gate_count, instances = function.args
        entry, outer, inner, next_gate, end = (function.append_basic_block() for _ in range(5))
        build = ir.IRBuilder(entry)
        keys = [self._load(build, pointers[-1], word(number)) for number in range(_ROUNDS + 1)]
        build.branch(outer)

        build = ir.IRBuilder(outer)
        number = build.phi(word)
        number.add_incoming(word(0), entry)
        body = gate(build, pointers, keys, number, build.add(first, number), instances)
        build.branch(inner)

        build = ir.IRBuilder(inner)
        instance = build.phi(word)
        instance.add_incoming(word(0), outer)
        body(build, instance)
        following = build.add(instance, word(1))
        instance.add_incoming(following, inner)
        build.cbranch(build.icmp_signed("<", following, instances), inner, next_gate)

        build = ir.IRBuilder(next_gate)
        later = build.add(number, word(1))
        number.add_incoming(later, next_gate)
        build.cbranch(build.icmp_signed("<", later, gate_count), outer, end)
        ir.IRBuilder(end).ret_void()

    def _garbled(
        self,
        build: ir.IRBuilder,
        pointers: Sequence[ir.Value],
        keys: Sequence[ir.Value],
        number: ir.Value,
        place: ir.Value,
        instances: ir.Value,
    ) -> Callable[[ir.IRBuilder, ir.Value], None]:
        labels, left, right, turned, secrets, numbers, tables, out, _ = pointers
        secret = self._load(build, secrets, self._word(0))
        rows = [
            build.mul(build.load(build.gep(slots, [number])), instances) for slots in (left, right)
        ]
        flags = build.bitcast(turned, self._ir.IntType(8).as_pointer())
        moved = []
        for side in range(2):
            at = build.add(build.mul(number, self._word(2)), self._word(side))
            flag = build.zext(build.load(build.gep(flags, [at])), self._word)
            moved.append(build.and_(self._masks(build, flag), secret))
        table = build.mul(build.mul(number, self._word(2)), instances)
        tweaks = self._tweaks(build, place)
        result = build.mul(number, instances)

        def body(build: ir.IRBuilder, instance: ir.Value) -> None:
            zeros = [
                build.xor(self._load(build, labels, build.add(row, instance)), more)
                for row, more in zip(rows, moved, strict=True)
            ]
            blocks = [*zeros, *(build.xor(zero, secret) for zero in zeros)]
            tweaked = self._numbered(build, tweaks, numbers, instance)
            hashes = self._hashes(build, keys, blocks, tweaked * 2)
            of_left, of_right = (build.xor(hashes[side], hashes[side + 2]) for side in range(2))
            left_mask, right_mask = (self._colours(build, zero) for zero in zeros)
            garblers = build.xor(build.and_(right_mask, secret), of_left)
            at = build.add(table, instance)
            self._store(build, tables, at, garblers)
            self._store(build, tables, build.add(at, instances), build.xor(of_right, zeros[0]))
            found = build.xor(build.xor(hashes[0], hashes[1]), build.and_(garblers, left_mask))
            found = build.xor(found, build.and_(of_right, right_mask))
            self._store(build, out, build.add(result, instance), found)

        return body

    def _evaluated(
        self,
        build: ir.IRBuilder,
        pointers: Sequence[ir.Value],
        keys: Sequence[ir.Value],
        number: ir.Value,
        place: ir.Value,
        instances: ir.Value,
    ) -> Callable[[ir.IRBuilder, ir.Value], None]:
        labels, left, right, numbers, tables, out, _ = pointers
        rows = [
            build.mul(build.load(build.gep(slots, [number])), instances) for slots in (left, right)
        ]
        table = build.mul(build.mul(number, self._word(2)), instances)
        tweaks = self._tweaks(build, place)
        result = build.mul(number, instances)

        def body(build: ir.IRBuilder, instance: ir.Value) -> None:
            active = [self._load(build, labels, build.add(row, instance)) for row in rows]
            tweaked = self._numbered(build, tweaks, numbers, instance)
            hashes = self._hashes(build, keys, active, tweaked)
            left_mask, right_mask = (self._colours(build, label) for label in active)
            at = build.add(table, instance)
            garblers = self._load(build, tables, at)
            evaluators = self._load(build, tables, build.add(at, instances))
            found = build.xor(build.xor(*hashes), build.and_(garblers, left_mask))
            more = build.and_(build.xor(evaluators, active[0]), right_mask)
            self._store(build, out, build.add(result, instance), build.xor(found, more))

        return body

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
        number = build.load(build.gep(numbers, [at]))
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

    def _load(self, build: ir.IRBuilder, pointer: ir.Value, at: ir.Value) -> ir.Value:
        blocks = build.bitcast(pointer, self._block.as_pointer())
        return build.load(build.gep(blocks, [at]), align=8)

    def _store(self, build: ir.IRBuilder, pointer: ir.Value, at: ir.Value, block: ir.Value) -> None:
        blocks = build.bitcast(pointer, self._block.as_pointer())
        build.store(block, build.gep(blocks, [at]), align=8)
