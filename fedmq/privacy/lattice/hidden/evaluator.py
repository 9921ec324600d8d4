"""How does the active party learn that a candidate won? It evaluates what is garbled."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.engine import ALONE, Place
from fedmq.privacy.garbling.half_gates import Evaluation, Labels, colours
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.lattice.hidden.circuits import NodeInputs, link_schedule, taken_bits, tournament
from fedmq.privacy.lattice.hidden.gains import EvaluateGains, EvaluateMore
from fedmq.privacy.lattice.hidden.level import HiddenLevel, LevelTweaks, Unpacked, named_labels
from fedmq.privacy.lattice.hidden.shares import (
    Field,
    Shares,
    chosen_carries,
    chosen_shares,
    chosen_totals,
    offset,
    receiver_lift,
    receiver_squares,
)
from fedmq.privacy.oblivious_transfer.correlated import Wide, bits_of, integers_of, receive, wide
from fedmq.privacy.oblivious_transfer.extension import (
    Extended,
    ExtensionReceiver,
    Permutation,
    Tweaks,
)
from fedmq.privacy.plan import Values

__all__ = ["LevelEvaluator"]

Reading = Generator[tuple[int, ...], object, None]
"""Yields the shape of the next piece, and takes it."""


class LevelEvaluator:
    """A level of nodes; call each method once, in their order, and `take` for each piece.

    Skip `follow` with the first passive party of a chain, `leader` with the last one, and `owners`
    with all but the last one. ``shares`` uint64 (nodes, candidates, 2). ``tweaks`` are those of a
    session with the passive party. All methods raise `MessageError` for malformed messages.
    """

    def __init__(
        self,
        field: Field,
        shares: Shares,
        inputs: NodeInputs,
        receiver: ExtensionReceiver,
        permutation: Permutation,
        tweaks: Tweaks,
        place: Place = ALONE,
    ) -> None:
        nodes, candidates, _ = shares.shape
        self._field = field
        self.level = HiddenLevel(field, nodes, candidates, place)
        self._moved = offset(shares.reshape(-1, 2), field)
        self._inputs = inputs
        self._receiver = receiver
        self._permutation = permutation
        self._tweaks = LevelTweaks.take(tweaks, self.level)
        self._lifted: Wide
        self._chosen: list[tuple[NDArray[np.bool_], NDArray[np.uint64]]] = []
        self._own: Labels
        self._by_node: dict[str, Labels]
        self._taken: dict[str, Labels]
        self._unread: Callable[[], Reading]
        self._reading: Reading | None = None
        self._awaits_piece = False
        self._best: dict[str, Labels]
        self._found: dict[str, Labels] | None = None
        self._unset: NDArray[np.uint64]

    def choose_carries(self) -> Extended:
        """The first message."""
        choices = chosen_carries(self._moved, self._field)
        return self._choose(choices, self._tweaks.carry_rows)

    def choose_squares(self, carries: object) -> tuple[Extended, Extended]:
        """The second message, after the answer to the first."""
        tweaks = self._tweaks
        own = self._receive(carries, 1, tweaks.carries)
        self._lifted = receiver_lift(self._moved, own, self._field)
        totals = self._inputs.totals[:, 0]
        return (
            self._choose(chosen_shares(self._lifted, self._field), tweaks.share_rows),
            self._choose(chosen_totals(totals, self._field), tweaks.total_rows),
        )

    def choose_labels(self, cross: object, with_totals: object) -> tuple[Extended, Extended]:
        """The third message, after the answer to the second."""
        tweaks = self._tweaks
        own_cross = self._receive(cross, 1, tweaks.shares)
        own_totals = self._receive(with_totals, self.level.candidates, tweaks.totals)
        totals = self._inputs.totals[:, 0]
        squares = receiver_squares(self._lifted, totals, own_cross, own_totals, self._field)
        numbers = (*squares, wide(self._moved[:, 1].copy()))
        sizes = self.level.candidate_bits.values()
        of_candidates = np.concatenate(
            [bits_of(number, size) for number, size in zip(numbers, sizes, strict=True)]
        )
        of_nodes = np.concatenate([self._inputs.bits[name] for name in self.level.node_bits])
        messages = (
            self._choose(of_candidates.reshape(-1), tweaks.candidate_rows),
            self._choose(of_nodes.reshape(-1), tweaks.node_rows),
        )
        (_, own), (_, known) = self._chosen
        self._chosen.clear()
        self._own = own.reshape(-1, self.level.instances, 2)
        self._by_node = named_labels(known.reshape(-1, self.level.nodes, 2), self.level.node_bits)
        bits = taken_bits(self.level.place)
        self._taken = {name: self._by_node.pop(name) for name in bits if name in self._by_node}
        self._begin(self._read)
        return messages

    def batch(self, batch: slice, parcel: Sequence[Values] | NDArray[np.uint64]) -> EvaluateGains:
        """The computation that begins to evaluate the gains of ``batch``; batches in order."""
        return EvaluateGains(
            self.level,
            batch,
            parcel,
            self._own,
            self._by_node,
            self._permutation,
            self._tweaks.circuits.take(batch.stop - batch.start),
        )

    def more(
        self, evaluation: Evaluation, parcel: Sequence[Values] | NDArray[np.uint64]
    ) -> EvaluateMore:
        """The computation that continues a batch."""
        return EvaluateMore(self.level, evaluation, parcel)

    def close(self, gains: Sequence[Labels], parcel: Unpacked) -> None:
        """Finish after all batches gave their ``gains``, by the rest of the tables."""
        self._read_all(self._close(gains), parcel)

    def close_link(self, parcel: Unpacked) -> None:
        """Finish after `follow`, by the tables of the link."""
        self._read_all(self._link(), parcel)

    def _read_all(self, reading: Reading, parcel: Unpacked) -> None:
        with suppress(StopIteration):
            shape = next(reading)
            while True:
                shape = reading.send(parcel.take(np.uint64, shape))
        parcel.end()
        self._awaits_piece = False

    @property
    def awaits_piece(self) -> bool:
        """Whether a piece of the answer to the last message is missing."""
        return self._awaits_piece

    def take(self, piece: object) -> None:
        """Take the next piece of the answer to the third or fourth message."""
        if not self._awaits_piece:
            raise MessageError("a piece of garbled tables after the last one")
        if self._reading is None:
            self._reading = self._unread()
            next(self._reading)
        try:
            self._reading.send(piece)
        except StopIteration:
            self._awaits_piece, self._reading = False, None

    def follow(self, leader: NDArray[np.bool_]) -> Extended:
        """The fourth message; ``leader``: the shares from the previous passive party's link."""
        self._check_read()
        message = self._choose(leader.reshape(-1), self._tweaks.taken_rows)
        _, rows = self._chosen.pop()
        labels = rows.reshape(*leader.shape, 2)
        self._taken = named_labels(labels, taken_bits(self.level.place))
        self._begin(self._link)
        return message

    def leader(self) -> NDArray[np.bool_]:
        """This party's shares of the best so far, for `follow` of the next: bool (bits, nodes)."""
        found = self._linked()
        return colours(np.concatenate([found["gain"], found["owner"]]))

    def owners(self) -> NDArray[np.int64]:
        """The winners' numbers in the chain: int64 (nodes,), 0 for the active party."""
        bits = colours(self._linked()["owner"]) ^ (self._unset & np.uint64(1)).astype(np.bool_)
        return integers_of(bits)

    def claim(self, won: NDArray[np.bool_]) -> Labels:
        """The last message, if the passive party ``won`` these nodes, bool (nodes,)."""
        found = self._linked()
        labels = np.concatenate([found["won"], found["index"]])
        return np.where(won[:, np.newaxis], labels, np.uint64(0))

    def winners(self) -> tuple[NDArray[np.bool_], Labels]:
        """Which nodes the only passive party won, bool (nodes,), and the last message.

        Raises:
            MessageError: pieces are missing.
        """
        won = self.owners() == 1
        return won, self.claim(won)

    def _begin(self, reading: Callable[[], Reading]) -> None:
        self._unread = reading
        self._awaits_piece = True

    def _check_read(self) -> None:
        if self._awaits_piece:
            raise MessageError("pieces of garbled tables are missing")

    def _linked(self) -> dict[str, Labels]:
        self._check_read()
        assert self._found is not None, "a link that was not followed"
        return self._found

    def _choose(self, choices: NDArray[np.bool_], tweaks: Tweaks) -> Extended:
        message, rows = self._receiver.extend(choices, tweaks)
        self._chosen.append((choices, rows))
        return message

    def _receive(self, sent: object, width: int, tweaks: Tweaks) -> Wide:
        """Own shares of the oldest choices not received yet."""
        choices, rows = self._chosen.pop(0)
        return receive(rows, choices, sent, width, self._permutation, tweaks)

    def _read(self) -> Reading:
        """All pieces, one after the other."""
        gains = []
        for batch in self.level.batches():
            evaluation = self.batch(batch, _words((yield ()), None)).run()
            while evaluation.missing:
                evaluation = self.more(evaluation, _words((yield ()), None)).run()
            gains.append(evaluation.outputs["gain"])
        yield from self._close(gains)

    def _close(self, gains: Sequence[Labels]) -> Reading:
        every = np.concatenate(gains, axis=1)
        self._best = yield from tournament(every, self.level.nodes, self._evaluate)
        if self.level.place.is_first:
            yield from self._link()

    def _link(self) -> Reading:
        """The pieces of the passive party's link."""
        level = self.level
        schedule = link_schedule(level.place, len(self._best["index"]))
        found = yield from self._evaluate(schedule, {**self._best, **self._taken})
        if level.place.is_last:
            shape = found["owner"].shape[:2]
            self._unset = _words((yield shape), shape)
        self._found = found

    def _evaluate(
        self, schedule: Schedule, inputs: Mapping[str, Labels]
    ) -> Generator[tuple[int, ...], object, dict[str, Labels]]:
        instances = next(iter(inputs.values())).shape[1]
        tweaks = self._tweaks.circuits.take(instances)
        evaluation = Evaluation(schedule, inputs, self._permutation, tweaks)
        while (shape := evaluation.awaited) is not None:
            evaluation.take((yield shape))
        return evaluation.outputs


def _words(piece: object, shape: tuple[int, ...] | None) -> NDArray[np.uint64]:
    if (
        not isinstance(piece, np.ndarray)
        or piece.dtype != np.uint64
        or (shape is not None and piece.shape != shape)
    ):
        raise MessageError(f"a piece beside garbled tables that is not uint64 {shape or ''}")
    return piece
