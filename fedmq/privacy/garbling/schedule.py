"""In which order are gates computed, many at once, and where do their results lie?

Gates form layers; no layer reads a result of its own. An AND waits for as few layers of ANDs as its
inputs allow. A layer of XORs comes as late as possible, and holds all XORs computable by then. A
result lies in a slot, reused after its last read, so that the working set stays small and in a fast
cache.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.circuit import Circuit

__all__ = ["CONSTANT_SLOT", "Layer", "Program", "Schedule", "Slots", "in_the_clear"]

CONSTANT_SLOT = 0

HALVES = np.uint64(2)
"""Halves of an AND, in the order of their hashes."""

_LAYER_GATES = 64
"""The most gates of a layer, so that the labels it reads and writes stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """The slots of a word's bits, intp (bits,), and the numbers of the inverted bits."""

    place: NDArray[np.intp]
    inverted: NDArray[np.intp]


_NO_PLACES = np.empty((2, 0, 1), np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Gates of one kind. In a layer of ANDs, ``ands`` counts the ANDs of earlier layers."""

    is_and: bool
    left: Slots
    right: Slots
    result: NDArray[np.intp]
    ands: int
    places: NDArray[np.uint64] = field(init=False)
    """The places of both halves of each AND among all: uint64 (2, ANDs, 1)."""

    def __post_init__(self) -> None:
        if not self.is_and:
            object.__setattr__(self, "places", _NO_PLACES)
            return
        first = np.arange(self.ands, self.ands + len(self.result), dtype=np.uint64) * HALVES
        places = np.stack([first, first + np.uint64(1)])[..., np.newaxis]
        object.__setattr__(self, "places", places)

    def __len__(self) -> int:
        return len(self.result)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The gates of all layers, one behind the other, as machine code goes through them.

    ``gates`` and ``ands`` int64 (layers + 1,): the gates and the ANDs before each layer, and all.
    ``are_ands`` uint8 (layers,): which layers are of ANDs. By gate: ``left``, ``right`` and
    ``result`` int64 (gates,), its slots, and ``turned`` uint8 (gates, 2), whether inputs are
    inverted.
    """

    gates: NDArray[np.int64]
    ands: NDArray[np.int64]
    are_ands: NDArray[np.uint8]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    result: NDArray[np.int64]
    turned: NDArray[np.uint8]

    @classmethod
    def of(cls, layers: Sequence[Layer]) -> Program:
        """The program of ``layers``."""
        are_ands = [layer.is_and for layer in layers]
        gates = [0, *accumulate(map(len, layers))]
        ands = [0, *(layer.ands + len(layer) * layer.is_and for layer in layers)]
        turned = np.zeros((gates[-1], 2), np.uint8)
        for layer, first in zip(layers, gates, strict=False):
            for side, slots in enumerate((layer.left, layer.right)):
                turned[first + slots.inverted, side] = 1
        return cls(
            np.array(gates, np.int64),
            np.array(ands, np.int64),
            np.array(are_ands, np.uint8),
            _in_one(layer.left.place for layer in layers),
            _in_one(layer.right.place for layer in layers),
            _in_one(layer.result for layer in layers),
            turned,
        )

    def ands_of(self, stretch: range) -> int:
        """The number of ANDs in a ``stretch`` of layers."""
        return int(self.ands[stretch.stop] - self.ands[stretch.start])


def _in_one(places: Iterable[NDArray[np.intp]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *places])


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A circuit that is ready to run on many instances at once.

    Inputs lie in slots from 1 on, in the order in which they were named.
    """

    layers: Sequence[Layer]
    inputs: Mapping[str, slice]
    outputs: Mapping[str, Slots]
    slots: int
    program: Program

    @property
    def widest(self) -> int:
        """The gates of the largest layer."""
        return int(np.diff(self.program.gates).max(initial=0))

    @property
    def ands(self) -> int:
        """The number of its ANDs."""
        return int(self.program.ands[-1])

    @classmethod
    def of(cls, circuit: Circuit) -> Schedule:
        """The schedule of the gates that the outputs need, and no others."""
        order = _layers(circuit)
        ends = _last_uses(circuit, order)
        places = _Places(circuit)
        layers, ands = [], 0
        for number, (is_and, nodes) in enumerate(order):
            gates = [circuit.gates[node] for node in nodes]
            left = places.slots(gate.left for gate in gates)
            right = places.slots(gate.right for gate in gates)
            places.free(ends.get(number, ()))
            layers.append(Layer(is_and, left, right, places.take(nodes), ands))
            ands += len(nodes) * is_and
        outputs = {name: places.slots(word) for name, word in circuit.outputs.items()}
        return cls(layers, places.inputs, outputs, places.count, Program.of(layers))

    def stretches(self, most_ands: float) -> list[range]:
        """Ranges of layers of at most ``most_ands`` ANDs; each has some if the circuit has."""
        before, found, start = self.program.ands, [], 0
        while True:
            least = np.searchsorted(before, before[start], side="right")  # behind a layer of ANDs
            most = max(before[start] + most_ands, before[min(least, len(self.layers))])
            # Only an AND begins another stretch.
            stop = int(np.searchsorted(before, most, side="right")) - 1
            found.append(range(start, stop))
            if stop == len(self.layers):
                return found
            start = stop


class _Places:
    """The slot of each node's result."""

    def __init__(self, circuit: Circuit) -> None:
        self.inputs = {}
        last = max(
            [0, *circuit.gates, *(node for nodes in circuit.inputs.values() for node in nodes)]
        )
        self._place = np.full(last + 1, CONSTANT_SLOT)
        self.count = 1
        for name, nodes in circuit.inputs.items():
            self.inputs[name] = slice(self.count, self.count + len(nodes))
            for node in nodes:
                self._place[node] = self.count
                self.count += 1
        self._free: list[int] = []

    def slots(self, wires: Iterable[int]) -> Slots:
        listed = np.fromiter(wires, np.intp)
        return Slots(self._place[listed >> 1], np.flatnonzero(listed & 1))

    def free(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            heapq.heappush(self._free, int(self._place[node]))

    def take(self, nodes: Sequence[int]) -> NDArray[np.intp]:
        taken = []
        for _ in nodes:
            if not self._free:
                heapq.heappush(self._free, self.count)
                self.count += 1
            taken.append(heapq.heappop(self._free))
        found = np.array(taken, np.intp)
        self._place[nodes] = found
        return found


def _layers(circuit: Circuit) -> list[tuple[bool, list[int]]]:
    """Nodes of the gates that outputs need, layer by layer, and whether these are ANDs."""
    order = _Order(circuit)
    ands_by_depth: dict[int, list[int]] = {}
    depths: dict[int, int] = {}
    for node, gate in order.gates.items():
        depths[node] = max(depths.get(wire >> 1, 0) for wire in (gate.left, gate.right))
        if gate.kind == "and":
            depths[node] += 1
            ands_by_depth.setdefault(depths[node], []).append(node)
    for _, nodes in sorted(ands_by_depth.items()):
        order.exclusive_ors_for(nodes)
        order.add(True, nodes)
    order.exclusive_ors_for([wire >> 1 for word in circuit.outputs.values() for wire in word])
    return order.layers


class _Order:
    """The layers so far. A layer of XORs takes all XORs with available inputs."""

    def __init__(self, circuit: Circuit) -> None:
        needed = _needed(circuit)
        self.gates = {node: gate for node, gate in circuit.gates.items() if node in needed}
        self.layers: list[tuple[bool, list[int]]] = []
        self._readers: dict[int, list[int]] = {}
        self._awaited: dict[int, int] = {}
        """The number of missing inputs, by gate."""
        for node in self.gates:
            awaited = 0
            for before in self._inputs(node):  # never twice the same: no gate is of one wire
                if before in self.gates:
                    self._readers.setdefault(before, []).append(node)
                    awaited += 1
            self._awaited[node] = awaited
        self._done: set[int] = set()
        self._ready = [node for node in self.gates if self._is_ready(node)]

    def add(self, is_and: bool, nodes: list[int]) -> None:
        """Add gates of one kind, whose inputs are all available."""
        for start in range(0, len(nodes), _LAYER_GATES):
            self.layers.append((is_and, nodes[start : start + _LAYER_GATES]))
        self._done.update(nodes)
        for node in nodes:
            for reader in self._readers.get(node, ()):
                self._awaited[reader] -= 1
                if self._is_ready(reader):
                    self._ready.append(reader)

    def exclusive_ors_for(self, nodes: list[int]) -> None:
        """Add the layers of XORs that ``nodes`` need."""
        wanted: set[int] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node in self.gates and node not in self._done and node not in wanted:
                wanted.add(node)
                waiting += self._inputs(node)
        wanted = {node for node in wanted if self.gates[node].kind != "and"}
        while not wanted <= self._done:
            ready, self._ready = self._ready, []
            self.add(False, ready)

    def _inputs(self, node: int) -> list[int]:
        gate = self.gates[node]
        return [gate.left >> 1, gate.right >> 1]

    def _is_ready(self, node: int) -> bool:
        return not self._awaited[node] and self.gates[node].kind != "and"


def _needed(circuit: Circuit) -> set[int]:
    waiting = [wire >> 1 for word in circuit.outputs.values() for wire in word]
    needed: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            if node in circuit.gates:
                waiting += [circuit.gates[node].left >> 1, circuit.gates[node].right >> 1]
    return needed


def _last_uses(circuit: Circuit, order: Sequence[tuple[bool, list[int]]]) -> dict[int, list[int]]:
    """By layer number: the nodes that no later layer and no output reads."""
    last: dict[int, int] = {}
    for number, (_, nodes) in enumerate(order):
        for node in nodes:
            gate = circuit.gates[node]
            last[gate.left >> 1] = last[gate.right >> 1] = number
    for word in circuit.outputs.values():
        for wire in word:
            last.pop(wire >> 1, None)
    last.pop(0, None)
    ends: dict[int, list[int]] = {}
    for node, number in last.items():
        ends.setdefault(number, []).append(node)
    return ends


_INSTANCES_AT_ONCE = 1 << 16  # 8 kB a slot


def in_the_clear(
    schedule: Schedule, inputs: Mapping[str, NDArray[np.bool_]]
) -> dict[str, NDArray[np.bool_]]:
    """Outputs by name, bool (bits, instances), of inputs of the same shape."""
    [instances] = {bits.shape[1] for bits in inputs.values()}
    parts = []
    for start in range(0, instances, _INSTANCES_AT_ONCE):
        here = slice(start, start + _INSTANCES_AT_ONCE)
        packed = {name: np.packbits(bits[:, here], axis=1) for name, bits in inputs.items()}
        parts.append(_evaluated(schedule, packed))
    return {
        name: np.unpackbits(
            np.concatenate([part[name] for part in parts], axis=1), axis=1, count=instances
        ).astype(np.bool_)
        for name in schedule.outputs
    }


def _evaluated(
    schedule: Schedule, inputs: Mapping[str, NDArray[np.uint8]]
) -> dict[str, NDArray[np.uint8]]:
    """The same with eight instances a byte."""
    width = next(iter(inputs.values())).shape[1]
    values = np.zeros((schedule.slots, width), np.uint8)
    for name, bits in inputs.items():
        values[schedule.inputs[name]] = bits
    for layer in schedule.layers:
        operation = np.bitwise_and if layer.is_and else np.bitwise_xor
        values[layer.result] = operation(_read(values, layer.left), _read(values, layer.right))
    return {name: _read(values, slots) for name, slots in schedule.outputs.items()}


def _read(values: NDArray[np.uint8], slots: Slots) -> NDArray[np.uint8]:
    read = values[slots.place]
    read[slots.inverted] ^= np.uint8(255)
    return read
