"""How does a label holder learn that a candidate won, and no sum? It evaluates what was garbled."""

from __future__ import annotations

from collections.abc import Generator, Mapping

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.garbling.half_gates import Evaluation, Labels, colours
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.lattice.hidden.field import Field, Shares
from fedmq.privacy.lattice.hidden.gain_circuit import gain_schedule
from fedmq.privacy.lattice.hidden.level import Level, LevelTweaks, named_labels
from fedmq.privacy.lattice.hidden.lift import chosen_carries, offset, receiver_lift
from fedmq.privacy.lattice.hidden.node_inputs import NodeInputs
from fedmq.privacy.lattice.hidden.squares import (
    chosen_shares,
    chosen_totals,
    receiver_squares,
)
from fedmq.privacy.lattice.hidden.tournament import tournament
from fedmq.privacy.oblivious_transfer.correlated import receive
from fedmq.privacy.oblivious_transfer.extension import Extended, ExtensionReceiver
from fedmq.privacy.oblivious_transfer.hashing import Permutation
from fedmq.privacy.oblivious_transfer.tweaks import Tweaks
from fedmq.privacy.oblivious_transfer.wide_integers import Wide, bits_of, wide

__all__ = ["LevelEvaluator"]


class LevelEvaluator:
    """A level of nodes; its methods are called once, in their order, `take` for each piece.

    ``shares`` uint64 (nodes, candidates, 2). ``tweaks`` are the session's. All methods raise
    `MessageError` for malformed messages.
    """

    def __init__(
        self,
        field: Field,
        shares: Shares,
        inputs: NodeInputs,
        receiver: ExtensionReceiver,
        permutation: Permutation,
        tweaks: Tweaks,
    ) -> None:
        nodes, candidates, _ = shares.shape
        self._field = field
        self._level = Level(field, nodes, candidates)
        self._moved = offset(shares.reshape(-1, 2), field)
        self._inputs = inputs
        self._receiver = receiver
        self._permutation = permutation
        self._tweaks = LevelTweaks.take(tweaks, self._level)
        self._lifted: Wide
        self._chosen: list[tuple[NDArray[np.bool_], NDArray[np.uint64]]] = []
        self._reading: Generator[None, object, None]
        self._won: NDArray[np.bool_] | None = None
        self._colours: NDArray[np.bool_]

    def choose_carries(self) -> Extended:
        """The first message."""
        choices = chosen_carries(self._moved, self._field)
        return self._choose(choices, self._tweaks.carry_rows)

    def choose_squares(self, carries: object) -> tuple[Extended, Extended]:
        """The second one, when the first is answered."""
        tweaks = self._tweaks
        own = self._receive(carries, 1, tweaks.carries)
        self._lifted = receiver_lift(self._moved, own, self._field)
        totals = self._inputs.totals[:, 0]
        return (
            self._choose(chosen_shares(self._lifted, self._field), tweaks.share_rows),
            self._choose(chosen_totals(totals, self._field), tweaks.total_rows),
        )

    def choose_labels(self, cross: object, with_totals: object) -> tuple[Extended, Extended]:
        """The third one, when the second is answered."""
        tweaks = self._tweaks
        own_cross = self._receive(cross, 1, tweaks.shares)
        own_totals = self._receive(with_totals, self._level.candidates, tweaks.totals)
        totals = self._inputs.totals[:, 0]
        squares = receiver_squares(self._lifted, totals, own_cross, own_totals, self._field)
        numbers = (*squares, wide(self._moved[:, 1].copy()))
        sizes = self._level.candidate_bits.values()
        of_candidates = np.concatenate(
            [bits_of(number, size) for number, size in zip(numbers, sizes, strict=True)]
        )
        of_nodes = np.concatenate([self._inputs.bits[name] for name in self._level.node_bits])
        messages = (
            self._choose(of_candidates.reshape(-1), tweaks.candidate_rows),
            self._choose(of_nodes.reshape(-1), tweaks.node_rows),
        )
        self._reading = self._read()
        next(self._reading)
        return messages

    def take(self, piece: object) -> None:
        """The next piece of the answer to the third message."""
        if self._won is not None:
            raise MessageError("a piece of garbled tables after the last one")
        try:
            self._reading.send(piece)
        except StopIteration:
            return

    def winners(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which nodes the feature holder won, bool (nodes,), and the last message.

        Raises:
            MessageError: pieces are missing.
        """
        if self._won is None:
            raise MessageError("pieces of garbled tables are missing")
        return self._won, self._colours

    def _choose(self, choices: NDArray[np.bool_], tweaks: Tweaks) -> Extended:
        message, rows = self._receiver.extend(choices, tweaks)
        self._chosen.append((choices, rows))
        return message

    def _receive(self, sent: object, width: int, tweaks: Tweaks) -> Wide:
        """Own shares of what was chosen first and not received yet."""
        choices, rows = self._chosen.pop(0)
        return receive(rows, choices, sent, width, self._permutation, tweaks)

    def _read(self) -> Generator[None, object, None]:
        """All pieces, one after the other."""
        level = self._level
        (_, own), (_, known) = self._chosen
        own = own.reshape(-1, level.instances, 2)
        by_node = named_labels(known.reshape(-1, level.nodes, 2), level.node_bits)
        to_beat = by_node.pop("to beat")
        gains = []
        for batch in level.batches():
            others = _words((yield), (len(own), batch.stop - batch.start, 2))
            inputs = level.gain_inputs(batch, others, own, by_node)
            found = yield from self._evaluate(gain_schedule(self._field), inputs)
            gains.append(found["gain"])
        every = np.concatenate(gains, axis=1)
        best = yield from tournament(every, to_beat, level.nodes, self._evaluate)
        self._colours = colours(np.concatenate([best["won"], best["index"]]))
        unset = _words((yield), (level.nodes,))
        self._won = self._colours[0] ^ (unset & np.uint64(1)).astype(np.bool_)

    def _evaluate(
        self, schedule: Schedule, inputs: Mapping[str, Labels]
    ) -> Generator[None, object, dict[str, Labels]]:
        instances = next(iter(inputs.values())).shape[1]
        tweaks = self._tweaks.circuits.take(instances)
        evaluation = Evaluation(schedule, inputs, self._permutation, tweaks)
        while evaluation.missing:
            evaluation.take((yield))
        return evaluation.outputs


def _words(piece: object, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    if not isinstance(piece, np.ndarray) or piece.dtype != np.uint64 or piece.shape != shape:
        raise MessageError(f"a piece beside garbled tables that is not uint64 {shape}")
    return piece
