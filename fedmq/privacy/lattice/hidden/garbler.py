"""How does a feature holder learn which of its candidates won? It garbles the circuits of gains."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.garbling.half_gates import Garbling, Labels, colours
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.lattice.hidden.field import Field, Shares
from fedmq.privacy.lattice.hidden.gain_circuit import gain_schedule
from fedmq.privacy.lattice.hidden.level import Level, LevelTweaks, named_labels
from fedmq.privacy.lattice.hidden.lift import carries_to_offer, sender_lift
from fedmq.privacy.lattice.hidden.squares import (
    sender_squares,
    shares_to_offer,
    totals_to_offer,
)
from fedmq.privacy.lattice.hidden.tournament import tournament
from fedmq.privacy.oblivious_transfer.correlated import offer
from fedmq.privacy.oblivious_transfer.extension import Extended, ExtensionSender
from fedmq.privacy.oblivious_transfer.hashing import Permutation
from fedmq.privacy.oblivious_transfer.tweaks import Tweaks
from fedmq.privacy.oblivious_transfer.wide_integers import Wide, bits_of, wide
from fedmq.privacy.random_stream import Stream

__all__ = ["LevelGarbler"]


class LevelGarbler:
    """A level of nodes; its methods are called once, in their order.

    ``shares`` uint64 (nodes, candidates, 2), candidates in canonical order. ``tweaks`` are the
    session's. ``seed``, of 32 bytes and fresh, is that of all labels. All methods raise
    `MessageError` for malformed messages, or transfers that were not the same in all columns.
    """

    def __init__(
        self,
        field: Field,
        shares: Shares,
        sender: ExtensionSender,
        permutation: Permutation,
        tweaks: Tweaks,
        seed: bytes,
    ) -> None:
        nodes, candidates, _ = shares.shape
        self._field = field
        self._level = Level(field, nodes, candidates)
        self._shares = shares.reshape(-1, 2)
        self._sender = sender
        self._permutation = permutation
        self._tweaks = LevelTweaks.take(tweaks, self._level)
        self._labels = Stream(seed, "fedmq labels of a level")
        self._lifted: Wide
        self._squares: tuple[Wide, Wide]
        self._colours: NDArray[np.bool_]

    def offer_carries(self, sent: Extended) -> Wide:
        """The answer to the label holder's first message."""
        numbers = carries_to_offer(self._shares, self._field)
        tweaks = self._tweaks
        own, message = self._offer(sent, numbers, tweaks.carry_rows, tweaks.carries)
        self._lifted = sender_lift(self._shares, own, self._field)
        return message

    def offer_squares(self, of_shares: Extended, of_totals: Extended) -> tuple[Wide, Wide]:
        """The answer to its second one."""
        tweaks = self._tweaks
        numbers = shares_to_offer(self._lifted, self._field)
        own_cross, cross = self._offer(of_shares, numbers, tweaks.share_rows, tweaks.shares)
        numbers = totals_to_offer(self._lifted, self._level.nodes, self._field)
        own_total, total = self._offer(of_totals, numbers, tweaks.total_rows, tweaks.totals)
        self._squares = sender_squares(self._lifted, own_cross, own_total, self._field)
        return cross, total

    def pieces(
        self, of_candidates: Extended, of_nodes: Extended
    ) -> Generator[NDArray[np.uint64], None, None]:
        """The answer to its third one: labels of this party's inputs, and tables, as they are made.

        The last piece holds the colours by which the label holder reads which nodes were won.
        """
        level, tweaks = self._level, self._tweaks
        others = self._rows(of_candidates, level.candidate_labels, tweaks.candidate_rows)
        others = others.reshape(-1, level.instances, 2)
        known = self._rows(of_nodes, level.node_labels, tweaks.node_rows)
        by_node = named_labels(known.reshape(-1, level.nodes, 2), level.node_bits)
        to_beat = by_node.pop("to beat")
        bits = self._input_bits()
        gains = []
        for batch in level.batches():
            zeros = self._labels.words(len(bits), batch.stop - batch.start, 2)
            secret = self._sender.secret
            yield zeros ^ np.where(bits[:, batch, np.newaxis], secret, np.uint64(0))
            inputs = level.gain_inputs(batch, zeros, others, by_node)
            found = yield from self._garble(gain_schedule(self._field), inputs)
            gains.append(found["gain"])
        every = np.concatenate(gains, axis=1)
        best = yield from tournament(every, to_beat, level.nodes, self._garble)
        self._colours = colours(np.concatenate([best["won"], best["index"]]))
        yield self._colours[0].astype(np.uint64)

    def winners(self, seen: object) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which nodes were won, and by which candidate (0 elsewhere); ``seen``: the last message.

        bool (nodes,) and int64 (nodes,).
        """
        shape = self._colours.shape
        if not isinstance(seen, np.ndarray) or seen.dtype != np.bool_ or seen.shape != shape:
            raise MessageError(f"colours of winners that are not bool {shape}")
        won, *index = seen ^ self._colours
        numbers = sum(
            (bit.astype(np.int64) << place for place, bit in enumerate(index)),
            np.zeros(self._level.nodes, np.int64),
        )
        if (numbers >= self._level.candidates).any():
            raise MessageError(f"a winner that is none of {self._level.candidates} candidates")
        return won, numbers

    def _offer(
        self, sent: Extended, numbers: Wide, row_tweaks: Tweaks, tweaks: Tweaks
    ) -> tuple[Wide, Wide]:
        rows = self._rows(sent, len(numbers), row_tweaks)
        return offer(rows, self._sender.secret, numbers, self._permutation, tweaks)

    def _rows(self, sent: Extended, count: int, tweaks: Tweaks) -> NDArray[np.uint64]:
        return self._sender.extend(sent, count, tweaks)

    def _input_bits(self) -> NDArray[np.bool_]:
        """This party's inputs of all candidates: bool (bits, instances)."""
        numbers = (*self._squares, wide(self._shares[:, 1].copy()))
        sizes = self._level.candidate_bits.values()
        return np.concatenate(
            [bits_of(number, size) for number, size in zip(numbers, sizes, strict=True)]
        )

    def _garble(
        self, schedule: Schedule, inputs: Mapping[str, Labels]
    ) -> Generator[NDArray[np.uint64], Any, dict[str, Labels]]:
        instances = next(iter(inputs.values())).shape[1]
        tweaks = self._tweaks.circuits.take(instances)
        secret = self._sender.secret
        garbling = Garbling(schedule, inputs, secret, self._permutation, tweaks)
        yield from garbling.pieces()
        return garbling.outputs
