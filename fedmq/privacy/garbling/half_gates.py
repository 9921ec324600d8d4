"""How is a circuit garbled and evaluated? With two ciphertexts an AND, and none for a XOR.

Zahur, Rosulek and Evans, "Two Halves Make a Whole" (Eurocrypt 2015), figure 2. Each bit has two
labels of 128 bits that differ by one secret of the session, whose lowest bit is 1: the lowest bits
of both labels, their colours, differ. Tables leave as they are made, and are evaluated as they
come; neither side holds more of them than a piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.garbling.schedule import Layer, Schedule, Slots
from fedmq.privacy.oblivious_transfer.hashing import BLOCK_WORDS, Permutation
from fedmq.privacy.oblivious_transfer.tweaks import Tweaks

__all__ = ["TABLE_BYTES", "Evaluation", "Garbling", "Labels", "colours"]

Labels = NDArray[np.uint64]
"""(bits, instances, 2)."""

TABLE_BYTES = 32
"""Of an AND."""

_PIECE_BYTES = 1 << 20
_HALVES = 2
_LABELS = 2  # of a bit


def colours(labels: Labels) -> NDArray[np.bool_]:
    """The lowest bits: bool (bits, instances)."""
    lowest: NDArray[np.bool_] = (labels[..., 0] & np.uint64(1)).astype(np.bool_)
    return lowest


class _Run:
    """A circuit over many instances: their labels, and the space in which layers are computed."""

    def __init__(
        self,
        schedule: Schedule,
        inputs: Mapping[str, Labels],
        permutation: Permutation,
        tweaks: Tweaks,
        lanes: int,
    ) -> None:
        [self.instances] = {labels.shape[1] for labels in inputs.values()}
        self.schedule = schedule
        self.permutation = permutation
        self.words = BLOCK_WORDS * self.instances
        self.labels = np.zeros((schedule.slots, self.words), np.uint64)
        for name, place in schedule.inputs.items():
            self.labels[place] = inputs[name].reshape(-1, self.words)
        widest = max(map(len, schedule.layers), default=0)
        self._spaces = [permutation.space(lanes * widest * self.words) for _ in range(3)]
        self._tweaks = np.empty((_HALVES, widest, self.instances, BLOCK_WORDS), np.uint64)
        self._tweaks[..., 1] = tweaks.spend(self.instances)

    def space(self, number: int, *shape: int) -> NDArray[np.uint64]:
        """An array of ``shape`` that lasts until this one is asked for again."""
        size = int(np.prod(shape))
        return self._spaces[number][:size].reshape(shape)

    def hashes(self, blocks: NDArray[np.uint64], layer: Layer) -> NDArray[np.uint64]:
        """Of blocks (2, labels, gates, words), a half of the gates each: of the same shape."""
        gates = len(layer)
        places = np.arange(layer.ands, layer.ands + gates, dtype=np.uint64) * np.uint64(_HALVES)
        tweaks = self._tweaks[:, :gates]
        tweaks[0, ..., 0] = places[:, np.newaxis]
        tweaks[1, ..., 0] = (places + np.uint64(1))[:, np.newaxis]
        permuted = self.permutation.into(blocks, self._spaces[1])
        tweaked = np.bitwise_xor(
            permuted,
            tweaks.reshape(_HALVES, 1, gates, self.words),
            out=self.space(0, *blocks.shape),  # where the blocks were
        )
        result = self.permutation.into(tweaked, self._spaces[2])
        result ^= permuted
        return result

    def exclusive_or(self, layer: Layer) -> None:
        found = self.labels[layer.left.place]
        found ^= self.labels[layer.right.place]
        self.labels[layer.result] = found

    def masks(self, labels: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """All ones where the colour is 1: of the shape (..., words) of ``labels``."""
        pairs = labels.reshape(-1, BLOCK_WORDS)
        masks = np.empty_like(pairs)
        np.bitwise_and(pairs[:, 0], np.uint64(1), out=masks[:, 0])
        np.negative(masks[:, 0], out=masks[:, 0])
        masks[:, 1] = masks[:, 0]
        return masks.reshape(labels.shape)

    def stretches(self, piece_bytes: int) -> Iterator[Sequence[Layer]]:
        """Layers whose tables go together; only a circuit without ANDs has one without tables."""
        stretch: list[Layer] = []
        ands = 0
        for layer in self.schedule.layers:
            more = len(layer) * layer.is_and
            # Only an AND begins another stretch, so that each has tables.
            if ands and more and (ands + more) * TABLE_BYTES * self.instances > piece_bytes:
                yield stretch
                stretch, ands = [], 0
            stretch.append(layer)
            ands += more
        yield stretch

    def tables_of(self, stretch: Sequence[Layer]) -> tuple[int, ...]:
        """The shape of a stretch's tables."""
        ands = sum(len(layer) for layer in stretch if layer.is_and)
        return ands, _HALVES, self.instances, BLOCK_WORDS

    def found(self, slots: Slots) -> Labels:
        return self.labels[slots.place].reshape(-1, self.instances, BLOCK_WORDS)


class Garbling:
    """The garbler's half over the instances of ``inputs``, the labels that stand for 0.

    ``secret`` uint64 (2,), the difference of labels. ``tweaks``: as many as instances. `pieces` is
    iterated over once; `outputs` are there when it ends.
    """

    def __init__(
        self,
        schedule: Schedule,
        inputs: Mapping[str, Labels],
        secret: NDArray[np.uint64],
        permutation: Permutation,
        tweaks: Tweaks,
    ) -> None:
        self._run = _Run(schedule, inputs, permutation, tweaks, _HALVES * _LABELS)
        self._secret = np.tile(secret, self._run.instances)
        self.outputs: dict[str, Labels]

    def pieces(self, piece_bytes: int = _PIECE_BYTES) -> Iterator[NDArray[np.uint64]]:
        """Tables in the order in which they are needed: uint64 (gates, 2, instances, 2)."""
        run = self._run
        for stretch in run.stretches(piece_bytes):
            tables = np.empty(run.tables_of(stretch), np.uint64)
            rows = tables.reshape(-1, _HALVES, run.words)
            done = 0
            for layer in stretch:
                if layer.is_and:
                    self._garble(layer, rows[done : done + len(layer)])
                    done += len(layer)
                else:
                    run.exclusive_or(layer)
            if len(tables):
                yield tables
        self.outputs = {
            name: self._zeros(slots).reshape(-1, run.instances, BLOCK_WORDS)
            for name, slots in run.schedule.outputs.items()
        }

    def _zeros(self, slots: Slots) -> NDArray[np.uint64]:
        """The labels that stand for 0 where inversions have been counted in."""
        zeros = self._run.labels[slots.place]
        if slots.any_inverted:
            zeros[slots.inverted] ^= self._secret
        return zeros

    def _garble(self, layer: Layer, tables: NDArray[np.uint64]) -> None:
        run = self._run
        blocks = run.space(0, _HALVES, _LABELS, len(layer), run.words)
        blocks[0, 0] = left = self._zeros(layer.left)
        blocks[1, 0] = right = self._zeros(layer.right)
        np.bitwise_xor(blocks[:, 0], self._secret, out=blocks[:, 1])
        hashes = run.hashes(blocks, layer)
        zero = hashes[:, 0]
        differences = hashes[:, 1]
        differences ^= zero
        # The garbler's half, for the right input's colour; the evaluator's, for that it will see.
        right_masks = run.masks(right)
        tables[:, 0] = differences[0] ^ (right_masks & self._secret)
        tables[:, 1] = differences[1] ^ left
        result = zero[0]
        result ^= zero[1]
        left_masks = run.masks(left)
        left_masks &= tables[:, 0]
        result ^= left_masks
        right_masks &= differences[1]
        result ^= right_masks
        run.labels[layer.result] = result


class Evaluation:
    """The evaluator's half over the instances of ``inputs``, one label a bit.

    Takes pieces of tables in their order; `outputs` are there once all have come.
    """

    def __init__(
        self,
        schedule: Schedule,
        inputs: Mapping[str, Labels],
        permutation: Permutation,
        tweaks: Tweaks,
        piece_bytes: int = _PIECE_BYTES,
    ) -> None:
        self._run = _Run(schedule, inputs, permutation, tweaks, _HALVES)
        self._stretches = list(self._run.stretches(piece_bytes))
        if not schedule.ands:
            self._evaluate(
                self._stretches.pop(), np.empty((0, _HALVES, self._run.words), np.uint64)
            )

    @property
    def missing(self) -> int:
        """So many pieces have not come yet."""
        return len(self._stretches)

    @property
    def awaited(self) -> tuple[int, ...] | None:
        """The shape of the next piece; None when all have come."""
        return self._run.tables_of(self._stretches[0]) if self._stretches else None

    @property
    def outputs(self) -> dict[str, Labels]:
        """Raises `MessageError` while pieces are missing."""
        if self._stretches:
            raise MessageError(f"{len(self._stretches)} pieces of garbled tables are missing")
        return {name: self._run.found(slots) for name, slots in self._run.schedule.outputs.items()}

    def take(self, tables: object) -> None:
        """The next piece. Raises `MessageError` where it is of another shape or too many."""
        shape = self.awaited
        if not isinstance(tables, np.ndarray) or tables.dtype != np.uint64 or tables.shape != shape:
            raise MessageError(f"a piece of garbled tables that is not uint64 {shape}")
        rows = tables.reshape(-1, _HALVES, self._run.words)
        self._evaluate(self._stretches.pop(0), rows)

    def _evaluate(self, stretch: Sequence[Layer], tables: NDArray[np.uint64]) -> None:
        run = self._run
        done = 0
        for layer in stretch:
            if not layer.is_and:
                run.exclusive_or(layer)
                continue
            rows = tables[done : done + len(layer)]
            done += len(layer)
            blocks = run.space(0, _HALVES, 1, len(layer), run.words)
            blocks[0, 0] = left = run.labels[layer.left.place]
            blocks[1, 0] = right = run.labels[layer.right.place]
            hashes = run.hashes(blocks, layer)
            result = hashes[0, 0]
            result ^= hashes[1, 0]
            masks = run.masks(right)
            right_half = np.bitwise_xor(left, rows[:, 1], out=right)
            masks &= right_half
            result ^= masks
            masks = run.masks(left)
            masks &= rows[:, 0]
            result ^= masks
            run.labels[layer.result] = result
