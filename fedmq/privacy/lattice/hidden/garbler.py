"""How does a passive party learn which of its candidates won? It garbles the circuits of gains.

The active party proves a win by labels: it has only one of the two labels of each bit, and cannot
make the other one. So it can claim no candidate that the circuits did not name.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.engine import ALONE, Place
from fedmq.privacy.garbling.half_gates import Garbling, Labels, colours
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.lattice.hidden.circuits import link_schedule, taken_bits, tournament
from fedmq.privacy.lattice.hidden.gains import GarbleGains, GarbleMore
from fedmq.privacy.lattice.hidden.level import HiddenLevel, LevelTweaks, named_labels
from fedmq.privacy.lattice.hidden.shares import (
    Field,
    Shares,
    carries_to_offer,
    sender_lift,
    sender_squares,
    shares_to_offer,
    totals_to_offer,
)
from fedmq.privacy.oblivious_transfer.correlated import Wide, bits_of, integers_of, offer, wide
from fedmq.privacy.oblivious_transfer.extension import (
    Extended,
    ExtensionSender,
    Permutation,
    Tweaks,
)

__all__ = ["LevelGarbler"]


class LevelGarbler:
    """A level of nodes; call each method once, in their order.

    The first party of a chain skips `follow`, the last one `handed`. ``shares`` uint64 (nodes,
    candidates, 2), candidates in canonical order. ``tweaks`` are those of a session with the active
    party. ``seed``, of 32 bytes and fresh, is that of all labels. All methods raise `MessageError`
    for malformed messages, or transfers that were not the same in all columns.
    """

    def __init__(
        self,
        field: Field,
        shares: Shares,
        sender: ExtensionSender,
        permutation: Permutation,
        tweaks: Tweaks,
        seed: bytes,
        place: Place = ALONE,
    ) -> None:
        nodes, candidates, _ = shares.shape
        self._field = field
        self.level = HiddenLevel(field, nodes, candidates, place)
        self._shares = shares.reshape(-1, 2)
        self._sender = sender
        self._permutation = permutation
        self._tweaks = LevelTweaks.take(tweaks, self.level)
        self._seed = seed
        self._lifted: Wide
        self._squares: tuple[Wide, Wide]
        self._bits: NDArray[np.bool_]
        self._others: Labels
        self._by_node: dict[str, Labels]
        self._taken: dict[str, Labels]
        self._best: dict[str, Labels]
        self._found: dict[str, Labels]

    def offer_carries(self, sent: Extended) -> Wide:
        """The answer to the active party's first message."""
        numbers = carries_to_offer(self._shares, self._field)
        tweaks = self._tweaks
        own, message = self._offer(sent, numbers, tweaks.carry_rows, tweaks.carries)
        self._lifted = sender_lift(self._shares, own, self._field)
        return message

    def offer_squares(self, of_shares: Extended, of_totals: Extended) -> tuple[Wide, Wide]:
        """The answer to the active party's second message."""
        tweaks = self._tweaks
        numbers = shares_to_offer(self._lifted, self._field)
        own_cross, cross = self._offer(of_shares, numbers, tweaks.share_rows, tweaks.shares)
        numbers = totals_to_offer(self._lifted, self.level.nodes, self._field)
        own_total, total = self._offer(of_totals, numbers, tweaks.total_rows, tweaks.totals)
        self._squares = sender_squares(self._lifted, own_cross, own_total, self._field)
        return cross, total

    def pieces(
        self, of_candidates: Extended, of_nodes: Extended
    ) -> Generator[NDArray[np.uint64], None, None]:
        """The answer to the third message: labels of this party's inputs, and tables.

        The first of a chain goes on with its link; see `follow`.
        """
        self.take_labels(of_candidates, of_nodes)
        gains = []
        for batch in self.level.batches():
            tables, garbling = self.batch(batch).run()
            yield tables
            while garbling.missing:
                tables, garbling = self.more(garbling).run()
                yield tables
            gains.append(garbling.outputs["gain"])
        yield from self.close(gains)

    def take_labels(self, of_candidates: Extended, of_nodes: Extended) -> None:
        """Take the active party's third message, before garbling any circuit."""
        level, tweaks = self.level, self._tweaks
        others = self._rows(of_candidates, level.candidate_labels, tweaks.candidate_rows)
        self._others = others.reshape(-1, level.instances, 2)
        known = self._rows(of_nodes, level.node_labels, tweaks.node_rows)
        self._by_node = named_labels(known.reshape(-1, level.nodes, 2), level.node_bits)
        bits = taken_bits(level.place)
        self._taken = {name: self._by_node.pop(name) for name in bits if name in self._by_node}
        self._bits = self._input_bits()

    def batch(self, batch: slice) -> GarbleGains:
        """The computation that begins to garble the gains of ``batch``; batches in order."""
        return GarbleGains(
            self.level,
            batch,
            self._bits[:, batch],
            self._others,
            self._by_node,
            self._permutation,
            self._tweaks.circuits.take(batch.stop - batch.start),
            self._sender.secret,
            self._seed,
        )

    def more(self, garbling: Garbling) -> GarbleMore:
        """The computation that continues a batch."""
        return GarbleMore(self.level, garbling)

    def close(self, gains: Sequence[Labels]) -> Generator[NDArray[np.uint64], None, None]:
        """Finish after all batches gave their ``gains``."""
        every = np.concatenate(gains, axis=1)
        self._best = yield from tournament(every, self.level.nodes, self._garble)
        if self.level.place.is_first:
            yield from self._link(self._taken)

    def follow(self, taken: Extended, handed: object) -> Generator[NDArray[np.uint64], None, None]:
        """The answer to the active party's fourth message: tables of the link.

        ``handed`` is what the passive party before this one `handed` on. The last piece of the
        last party holds the colours by which the active party reads who won.
        """
        level = self.level
        bits = taken_bits(level.place)
        shape = (sum(bits.values()), level.nodes)
        if not isinstance(handed, np.ndarray) or handed.dtype != np.bool_ or handed.shape != shape:
            raise MessageError(f"shares of the best candidates so far that are not bool {shape}")
        rows = self._rows(taken, level.taken_labels, self._tweaks.taken_rows)
        zeros = rows.reshape(*shape, 2)
        zeros = zeros ^ np.where(handed[..., np.newaxis], self._sender.secret, np.uint64(0))
        yield from self._link(named_labels(zeros, bits))

    def handed(self) -> NDArray[np.bool_]:
        """This party's shares of the best so far, for the next of the chain: bool (bits, nodes)."""
        return colours(np.concatenate([self._found["gain"], self._found["owner"]]))

    def winners(self, claimed: object) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which nodes were won, and by which candidate (0 elsewhere): bool and int64 (nodes,).

        ``claimed``: the last message.
        """
        zeros = np.concatenate([self._found["won"], self._found["index"]])
        if (
            not isinstance(claimed, np.ndarray)
            or claimed.dtype != np.uint64
            or claimed.shape != zeros.shape
        ):
            raise MessageError(f"labels of winners that are not uint64 {zeros.shape}")
        unclaimed = ~claimed.any(axis=(0, 2))
        unset = (claimed == zeros).all(axis=-1)
        bits = (claimed == zeros ^ self._sender.secret).all(axis=-1)
        won, index = bits[0], bits[1:]
        if not (unclaimed | won & (unset | bits).all(axis=0)).all():
            raise MessageError("labels of winners that no circuit has shown")
        return won, integers_of(index)

    def _link(self, taken: Mapping[str, Labels]) -> Generator[NDArray[np.uint64], None, None]:
        """Compare this party's best candidate with the best before it."""
        place = self.level.place
        schedule = link_schedule(place, len(self._best["index"]))
        self._found = yield from self._garble(schedule, {**self._best, **taken})
        if place.is_last:
            yield colours(self._found["owner"]).astype(np.uint64)

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
        sizes = self.level.candidate_bits.values()
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
