"""How is a circuit garbled and evaluated? With two ciphertexts an AND, and none for a XOR.

Zahur, Rosulek and Evans, "Two Halves Make a Whole" (Eurocrypt 2015), figure 2. Each bit has two
labels of 128 bits that differ by one secret of the session, whose lowest bit is 1: the lowest bits
of both labels, their colours, differ. Tables leave as they are made, and are evaluated on arrival;
neither side holds more than a piece of them. A half can be pickled between two pieces, without its
schedule; `take_up` restores it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.garbling.machine_gates import Gates, gates, is_available
from fedmq.privacy.garbling.schedule import HALVES, Layer, Schedule, Slots
from fedmq.privacy.oblivious_transfer.extension import BLOCK_WORDS, Permutation, Tweaks

__all__ = ["TABLE_BYTES", "Evaluation", "Garbling", "Labels", "colours"]

Labels = NDArray[np.uint64]
"""(bits, instances, 2)."""

TABLE_BYTES = 32
"""Bytes of an AND's table."""

_ONE = np.uint64(1)
_PIECE_BYTES = 1 << 20
_HALVES = int(HALVES)
_LABELS = 2  # of a bit


def colours(labels: Labels) -> NDArray[np.bool_]:
    """The lowest bits: bool (bits, instances)."""
    lowest: NDArray[np.bool_] = (labels[..., 0] & np.uint64(1)).astype(np.bool_)
    return lowest


class _Run:
    """A circuit over many instances: their labels, and buffers for the computation of layers."""

    schedule: Schedule
    gates: Gates | None
    """What garbles and evaluates layers, if the processor can; else arrays do."""
    results: NDArray[np.uint64]
    """A buffer for its results of a layer."""
    _rooms: list[NDArray[np.uint64]]
    _tweaks: NDArray[np.uint64]

    def __init__(
        self,
        schedule: Schedule,
        inputs: Mapping[str, Labels],
        permutation: Permutation,
        tweaks: Tweaks,
        lanes: int,
        piece_bytes: int,
    ) -> None:
        [self.instances] = {labels.shape[1] for labels in inputs.values()}
        self.permutation = permutation
        self.words = BLOCK_WORDS * self.instances
        self.labels = np.zeros((schedule.slots, self.words), np.uint64)
        for name, place in schedule.inputs.items():
            self.labels[place] = inputs[name].reshape(-1, self.words)
        self._lanes = lanes
        self.numbers = tweaks.spend(self.instances)
        self.stretches = schedule.stretches(piece_bytes / (TABLE_BYTES * self.instances))
        """The remaining stretches of layers; the tables of a stretch are a piece."""
        self.take_up(schedule)

    def __getstate__(self) -> dict[str, Any]:
        left_behind = ("schedule", "gates", "results", "_rooms", "_tweaks")
        return {name: value for name, value in vars(self).items() if name not in left_behind}

    def take_up(self, schedule: Schedule) -> None:
        """Restore the ``schedule``, which does not travel."""
        if hasattr(self, "schedule"):
            return
        self.schedule = schedule
        if not self.labels.flags.writeable:  # they lie in memory shared with another process
            self.labels = self.labels.copy()
        widest = schedule.widest
        self.gates = gates(self.permutation.key) if is_available() else None
        if self.gates is not None:
            self.results = np.empty(widest * self.words, np.uint64)
            return
        self._rooms = [self.permutation.space(self._lanes * widest * self.words) for _ in range(3)]
        self._tweaks = np.empty((_HALVES, widest, self.instances, BLOCK_WORDS), np.uint64)
        self._tweaks[..., 1] = self.numbers

    def shape(self) -> tuple[int, ...] | None:
        """The shape of the next stretch's tables; None if no tables are left."""
        if not self.stretches or not self.schedule.ands:
            return None
        ands = self.schedule.program.ands_of(self.stretches[0])
        return ands, _HALVES, self.instances, BLOCK_WORDS

    def room(self, number: int, *shape: int) -> NDArray[np.uint64]:
        """A buffer of ``shape``, valid until the next call with this ``number``."""
        return self._rooms[number][: math.prod(shape)].reshape(shape)

    def hashes(self, blocks: NDArray[np.uint64], layer: Layer) -> NDArray[np.uint64]:
        """Hashes of blocks (2, labels, gates, words), a half of the gates each; same shape."""
        gates = len(layer)
        tweaks = self._tweaks[:, :gates]
        tweaks[..., 0] = layer.places
        permuted = self.permutation.into(blocks, self._rooms[1])
        tweaked = np.bitwise_xor(
            permuted,
            tweaks.reshape(_HALVES, 1, gates, self.words),
            out=blocks,
        )
        result = self.permutation.into(tweaked, self._rooms[2])
        result ^= permuted
        return result

    def layers_of_ands(
        self, stretch: range, tables: NDArray[np.uint64]
    ) -> Iterator[tuple[Layer, NDArray[np.uint64]]]:
        """Those of a ``stretch``, each with its ``tables``; XORs between them are computed here."""
        rows, done = tables.reshape(-1, _HALVES, self.words), 0
        for layer in self.schedule.layers[stretch.start : stretch.stop]:
            if layer.is_and:
                yield layer, rows[done : done + len(layer)]
                done += len(layer)
                continue
            found = self.labels[layer.left.place]
            found ^= self.labels[layer.right.place]
            self.labels[layer.result] = found

    def masks(self, labels: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """All ones where the colour is 1; of the shape (..., words) of ``labels``."""
        masks = np.empty(labels.shape, np.uint64)
        colour = masks[..., ::BLOCK_WORDS]
        np.bitwise_and(labels[..., ::BLOCK_WORDS], _ONE, out=colour)
        np.negative(colour, out=colour)
        masks[..., 1::BLOCK_WORDS] = colour
        return masks

    def ended(self, found: Callable[[Slots], NDArray[np.uint64]]) -> dict[str, Labels]:
        """The outputs that ``found`` gives; everything else is dropped."""
        outputs = {
            name: found(slots).reshape(-1, self.instances, BLOCK_WORDS)
            for name, slots in self.schedule.outputs.items()
        }
        self.labels = np.empty((0, self.words), np.uint64)
        return outputs


class _Half:
    """The bookkeeping of pieces that both halves of a circuit share."""

    _run: _Run

    def take_up(self, schedule: Schedule) -> None:
        """Restore the ``schedule`` after pickling."""
        self._run.take_up(schedule)

    @property
    def missing(self) -> int:
        """The number of missing pieces."""
        return len(self._run.stretches)

    @property
    def awaited(self) -> tuple[int, ...] | None:
        """The shape of the next piece, (gates, 2, instances, 2); None after the last one."""
        return self._run.shape()


class Garbling(_Half):
    """The garbler's half over the instances of ``inputs``, the labels that stand for 0.

    ``secret`` uint64 (2,), the difference of labels. ``tweaks``: one per instance. `outputs` exist
    once no piece is missing.
    """

    def __init__(
        self,
        schedule: Schedule,
        inputs: Mapping[str, Labels],
        secret: NDArray[np.uint64],
        permutation: Permutation,
        tweaks: Tweaks,
        piece_bytes: int = _PIECE_BYTES,
    ) -> None:
        lanes = _HALVES * _LABELS
        self._run = _Run(schedule, inputs, permutation, tweaks, lanes, piece_bytes)
        self._secret = np.tile(secret, self._run.instances)
        self.outputs: dict[str, Labels]
        if not schedule.ands:
            self.piece_into(np.empty((0, _HALVES, self._run.words), np.uint64))

    def pieces(self) -> Iterator[NDArray[np.uint64]]:
        """Tables in the order of evaluation, each of the shape ``awaited``."""
        while (shape := self.awaited) is not None:
            tables = np.empty(shape, np.uint64)
            self.piece_into(tables)
            yield tables

    def piece_into(self, tables: NDArray[np.uint64]) -> None:
        """Make the next piece in ``tables``, contiguous and of the shape ``awaited``."""
        run = self._run
        stretch = run.stretches.pop(0)
        if run.gates is not None:
            secret, program = self._secret[:BLOCK_WORDS], run.schedule.program
            run.gates.garble(run.labels, program, stretch, secret, run.numbers, tables, run.results)
        else:
            for layer, rows in run.layers_of_ands(stretch, tables):
                self._garble(layer, rows)
        if not run.stretches:
            self.outputs = run.ended(self._zeros)

    def _zeros(self, slots: Slots) -> NDArray[np.uint64]:
        """The labels that stand for 0, inversions included."""
        zeros = self._run.labels[slots.place]
        if len(slots.inverted):
            zeros[slots.inverted] ^= self._secret
        return zeros

    def _garble(self, layer: Layer, tables: NDArray[np.uint64]) -> None:
        run = self._run
        left, right = self._zeros(layer.left), self._zeros(layer.right)
        blocks = run.room(0, _HALVES, _LABELS, len(layer), run.words)
        blocks[0, 0] = left
        blocks[1, 0] = right
        np.bitwise_xor(blocks[:, 0], self._secret, out=blocks[:, 1])
        hashes = run.hashes(blocks, layer)
        zero = hashes[:, 0]
        differences = hashes[:, 1]
        differences ^= zero
        # The garbler's half, for the right input's colour; the evaluator's, for that it will see.
        right_masks = run.masks(right)
        garblers = np.bitwise_and(right_masks, self._secret, out=right)
        garblers ^= differences[0]
        tables[:, 0] = garblers
        np.bitwise_xor(differences[1], left, out=tables[:, 1])
        result = np.bitwise_xor(zero[0], zero[1], out=zero[0])
        garblers &= run.masks(left)
        result ^= garblers
        right_masks &= differences[1]
        result ^= right_masks
        run.labels[layer.result] = result


class Evaluation(_Half):
    """The evaluator's half over the instances of ``inputs``, one label a bit.

    Takes pieces of tables in their order; `outputs` exist once all have arrived.
    """

    def __init__(
        self,
        schedule: Schedule,
        inputs: Mapping[str, Labels],
        permutation: Permutation,
        tweaks: Tweaks,
        piece_bytes: int = _PIECE_BYTES,
    ) -> None:
        self._run = _Run(schedule, inputs, permutation, tweaks, _HALVES, piece_bytes)
        self._outputs: dict[str, Labels] = {}
        if not schedule.ands:
            self._evaluate(np.empty((0, _HALVES, self._run.words), np.uint64))

    @property
    def outputs(self) -> dict[str, Labels]:
        """Raises `MessageError` while pieces are missing."""
        if self.missing:
            raise MessageError(f"{self.missing} pieces of garbled tables are missing")
        return self._outputs

    def take(self, tables: object) -> None:
        """Take the next piece. Raises `MessageError` for another shape or a surplus piece."""
        shape = self.awaited
        if not isinstance(tables, np.ndarray) or tables.dtype != np.uint64 or tables.shape != shape:
            raise MessageError(f"a piece of garbled tables that is not uint64 {shape}")
        self._evaluate(np.ascontiguousarray(tables))

    def _evaluate(self, tables: NDArray[np.uint64]) -> None:
        run = self._run
        stretch = run.stretches.pop(0)
        if run.gates is not None:
            program = run.schedule.program
            run.gates.evaluate(run.labels, program, stretch, run.numbers, tables, run.results)
        else:
            for layer, rows in run.layers_of_ands(stretch, tables):
                self._evaluate_layer(layer, rows)
        if not run.stretches:
            self._outputs = run.ended(lambda slots: run.labels[slots.place])

    def _evaluate_layer(self, layer: Layer, tables: NDArray[np.uint64]) -> None:
        run = self._run
        left, right = run.labels[layer.left.place], run.labels[layer.right.place]
        blocks = run.room(0, _HALVES, 1, len(layer), run.words)
        blocks[0, 0] = left
        blocks[1, 0] = right
        hashes = run.hashes(blocks, layer)
        result = hashes[0, 0]
        result ^= hashes[1, 0]
        masks = run.masks(right)
        right_half = np.bitwise_xor(left, tables[:, 1], out=right)
        right_half &= masks
        result ^= right_half
        masks = run.masks(left)
        masks &= tables[:, 0]
        result ^= masks
        run.labels[layer.result] = result
