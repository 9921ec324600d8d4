"""How does a passive party learn which of its candidates won? It garbles the circuits of a level.

The active party proves a win by labels: it has only one of the two labels of each bit, and cannot
make the other one. So it can claim no candidate that the circuits did not name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.engine import ALONE, Place, Winner
from fedmq.privacy.garbling.half_gates import Labels, colours
from fedmq.privacy.hidden_sums.category_order import SetColumns
from fedmq.privacy.hidden_sums.category_sets import SetGarbler
from fedmq.privacy.hidden_sums.circuits import GainCircuit, Run, link_schedule, taken_bits
from fedmq.privacy.hidden_sums.exact import GainGarbler, RankGarbler, best_gains
from fedmq.privacy.hidden_sums.filtering import FilterGarbler, Groups, QuotientGarbler
from fedmq.privacy.hidden_sums.level import (
    BackTransfers,
    HiddenLevel,
    Part,
    Parts,
    claimed_labels,
    in_candidates,
    in_slots,
    joined,
    of_fitting,
    of_some,
    with_slots,
)
from fedmq.privacy.hidden_sums.rounds import Rounds, in_blocks
from fedmq.privacy.hidden_sums.shares import Shares
from fedmq.privacy.hidden_sums.sides import Made, SenderSide, Unpacked, finished, take_bits
from fedmq.privacy.hidden_sums.stages import Garbled, GarblerStage, begun_alone, named_labels
from fedmq.privacy.oblivious_transfer.correlated import integers_of
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_WORDS,
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
)

__all__ = ["LevelGarbler"]


class LevelGarbler:
    """A level of nodes; call each method once, in the order of `fedmq.privacy.hidden_sums`.

    ``shares`` uint64 (nodes, candidates, 2), candidates in canonical order. ``columns`` bool (bits,
    nodes * candidates) are `GainCircuit.of_columns` of theirs, or of what is scanned in place of
    the candidates of ``sets``. ``tweaks`` are those of a session
    with the active party, ``back`` the transfers in which this party chooses, ``seed`` the
    session's, of its masks. All methods raise `MessageError` for malformed parcels, or transfers
    that were not the same in all columns.
    """

    def __init__(
        self,
        circuit: GainCircuit,
        shares: Shares,
        columns: NDArray[np.bool_],
        sender: ExtensionSender,
        permutation: Permutation,
        tweaks: Tweaks,
        back: BackTransfers[ExtensionReceiver],
        seed: bytes,
        place: Place = ALONE,
        sets: SetColumns | None = None,
    ) -> None:
        nodes, shown, _ = shares.shape
        self.level = HiddenLevel.of(circuit, nodes, shown, place, sets)
        self._shares = shares
        of_sets = self.level.sets
        self.sets = None if of_sets is None else SetGarbler(of_sets, shares, seed)
        """What sorts categories, and tells the winning set; None without columns of sets."""
        self._right: NDArray[np.bool_] = np.zeros((0, nodes), np.bool_)
        """Which categories go right in the sets that won: bool (categories, nodes)."""
        self._columns = columns
        self._side = SenderSide(sender, permutation, self.level.take(tweaks))
        self._seed = seed
        self._back = back.of_level(self.level)
        self.filter: FilterGarbler | None = None
        """The filter of the nodes that fit it; None if none does."""
        self._fit: NDArray[np.bool_]
        self.crowded: NDArray[np.bool_] = np.zeros(nodes, np.bool_)
        """Nodes of which more candidates may be the best than there are slots."""
        self._groups: Groups
        self._sure: NDArray[np.bool_] = np.zeros(nodes, np.bool_)
        """Nodes whose ranks leave no doubt."""
        self._slots: list[tuple[NDArray[np.bool_], Shares]] = []
        """Shares of what may be the best: (nodes, slots, 2) of some nodes, bool (nodes,), each."""
        self.rankings: list[RankGarbler] = []
        """Their ranks; none if those candidates' gains are computed at once."""
        self.stages: Sequence[GarblerStage]
        """What is garbled in batches next."""
        self._gains: list[tuple[NDArray[np.bool_], GainGarbler]] = []
        """Gains to compute: of a block of candidates in some nodes, bool (nodes,), each."""
        self.rounds: Rounds[QuotientGarbler | GainGarbler] = Rounds()
        """What is computed next: quotients of the filter, those of ranks, or gains."""
        self.begun: list[Garbled] = []
        """The first tables of stages that are one batch."""
        self.tables: NDArray[np.uint64] | None = None
        """The tables of stages that are one batch, and garbled whole."""
        self.claim: Unpacked | None = None
        """The active party's claim, if it has come with labels of doubts."""
        self._linked: Parts = []
        """What links found."""
        self._best: Part
        """What a link compares, of nodes whose gains were computed."""

    def take_set_labels(self, parcel: Unpacked) -> Made:
        """Take the labels that weights of categories are garbled with; their batches follow."""
        assert self.sets is not None
        return self._take_labels([self.sets], parcel)

    def close_sets(self, _: Unpacked, found: Sequence[Mapping[str, Labels]]) -> Made:
        """The parcel after all batches of weights."""
        assert self.sets is not None
        made = self.sets.close(self._side, found[0])
        self._shares = self.sets.scanned
        return made

    def begin(self, parcel: Unpacked) -> Made:
        """The answer to the first parcel: numbers of quotients, or of gains."""
        self._fit = take_bits(parcel, (self.level.nodes,)) & self.level.filters
        if not self._fit.any():
            return self._begin_gains(parcel)
        level = self.level.filter(int(self._fit.sum()))
        self.filter = FilterGarbler(level, self.level.field, self._shares[self._fit], self._seed)
        self.rounds = Rounds(self.filter.quotients)
        return self.begin_round(parcel)

    def begin_round(self, parcel: Unpacked) -> Made:
        """Numbers for the next blocks; those that take none take the labels that have come."""
        every = self.rounds.go_on()
        self._side.fill(parcel, self.rounds.transfers)
        if not self.rounds.take_numbers:
            return self.take_labels(parcel)
        made = [array for block in every for array in block.offer(self._side, parcel)]
        return self._ended(parcel, made)

    def take_labels(self, parcel: Unpacked) -> Made:
        """Take the labels that blocks are garbled with; their batches follow."""
        if self.rounds.take_numbers:
            for block in self.rounds.under_way:
                block.take_products(self._side, parcel)
        return self._take_labels(self.rounds.under_way, parcel)

    def close_filter(self, _: Unpacked, found: Sequence[Mapping[str, Labels]]) -> Made:
        """The parcel after all batches of quotients."""
        assert self.filter is not None
        return self.filter.close(self._side, found)

    def offer_entries(self, parcel: Unpacked) -> Made:
        assert self.filter is not None
        self._groups = self.filter.read_more(self._side, parcel)
        self.crowded = of_fitting(~self._groups[0][0], self._fit)
        back = self._back
        made = self.filter.offer_entries(self._side, back.party, back.tweaks, parcel, self._groups)
        return self._ended(parcel, made)

    def read_entries(self, parcel: Unpacked) -> Made:
        """Read the active party's tables of shares; numbers for ranks, or for gains."""
        assert self.filter is not None
        back = self._back
        shares = self.filter.read_entries(back.permutation, back.tweaks, parcel, self._groups)
        self._slots = in_slots(self._groups, shares, self._fit)
        if not (self.level.circuit.ranked and self._slots):
            return self._begin_gains(parcel)
        self.rankings = [
            RankGarbler(self.level.ranking(*of_slots.shape[:2]), of_slots)
            for _, of_slots in self._slots
        ]
        self.rounds = Rounds(half.quotients for half in self.rankings)
        return self.begin_round(parcel)

    def close_ranking(self, _: Unpacked, found: Sequence[Mapping[str, Labels]]) -> Made:
        """The parcel after all batches of ranks: alone, with the link of nodes without a doubt."""
        tables: Made = []
        shown: Made = []
        for half, of_half in zip(self.rankings, found, strict=True):
            half.rank(of_half, self._side.garble(tables))
            shown.append(half.shown_doubts())
        if self.level.is_alone:
            held = zip(self._slots, self.rankings, strict=True)
            parts = [(nodes, half.best()) for (nodes, _), half in held]
            best = self._of_candidates(parts, self._side.garble(tables))
            tables += self._link(best, tables)
        return [*tables, *shown]

    def takes_claim(self, parcel: Unpacked) -> bool:
        """Take the claim behind labels of doubts, if no node needs more.

        It takes no time: splits of the nodes may follow a claim at once.
        """
        if self.level.is_alone:
            self._read_doubts(parcel)
            self.claim = parcel if self._sure.all() else None
        return self.claim is not None

    def begin_gains(self, parcel: Unpacked) -> Made:
        """Take labels of doubts, and what gains are garbled with."""
        self._read_doubts(parcel)
        return self._begin_gains(parcel)

    def _read_doubts(self, parcel: Unpacked) -> None:
        for half, (nodes, _) in zip(self.rankings, self._slots, strict=True):
            doubtful = half.read_doubts(self._side, parcel)
            self._sure = self._sure | of_fitting(~doubtful, nodes)
        self._linked = [part for of in self._linked for part in of_some(of, self._sure)]

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Nodes of which the gains of all candidates are computed."""
        whole = np.ones(self.level.nodes, np.bool_)
        for nodes, _ in self._slots:
            whole = whole & ~nodes
        return whole

    def _begin_gains(self, parcel: Unpacked) -> Made:
        level, columns, whole = self.level, self._columns, self.whole
        for nodes, half in zip([nodes for nodes, _ in self._slots], self.rankings, strict=False):
            sure = nodes & self._sure
            if sure.any() and not level.is_alone:
                given = half.sums(sure[nodes])
                none = np.zeros((given.shape[1], 1, 2), np.uint64)
                gains = level.gains(len(none), 1, given=True)
                self._gains.append((sure, GainGarbler(gains, none, columns, given)))
        for nodes, shares in [*self._slots, (whole, self._shares[whole])]:
            unsure = nodes & ~self._sure
            if unsure.any():
                self._add_gains(unsure, shares[unsure[nodes]])
        self.rounds = Rounds(block for _, block in self._gains)
        return self.begin_round(parcel)

    def _add_gains(self, nodes: NDArray[np.bool_], shares: Shares) -> None:
        """Gains of all candidates in some ``nodes``, bool (all nodes,), are to be computed."""
        held, columns = np.flatnonzero(nodes), self._columns
        by_node = columns.reshape(len(columns), self.level.nodes, self.level.candidates)
        for some, block in in_blocks(*shares.shape[:2]):
            of_block = shares[some, block]
            before = self._gains[-1][1] if block.start else None
            gains = self.level.gains(*of_block.shape[:2])
            # A circuit that asks about columns has no filter: all nodes are whole.
            asked = by_node[:, some, block].reshape(len(columns), gains.instances)
            here = np.isin(np.arange(len(nodes)), held[some])
            self._gains.append((here, GainGarbler(gains, of_block, asked, before=before)))

    def _take_labels(
        self,
        parts: Sequence[QuotientGarbler | GainGarbler] | Sequence[SetGarbler],
        parcel: Unpacked,
    ) -> Made:
        self.stages = [part.take_labels(self._side, parcel) for part in parts]
        self.begun = begun_alone(self.stages)
        return self._ended(parcel, [])

    def garbled_whole(self) -> list[Mapping[str, Labels]]:
        """The outputs of the stages, if they are one batch of one stretch; else nothing."""
        if len(self.begun) != 1 or self.begun[0][1].missing:
            return []
        [(self.tables, garbling)], self.begun, self.stages = self.begun, [], ()
        return [garbling.outputs]

    def close(self, _: Unpacked, found: Sequence[Mapping[str, Labels]]) -> Made:
        """The parcel after all batches of gains."""
        tables: Made = []
        run = self._side.garble(tables)
        parts: Parts = best_gains(self._gains, found, run)
        parts = with_slots(parts, self.rankings, self._slots, self._sure)
        self._best = self._of_candidates(parts, run)
        if self.level.place.is_first:
            tables += self._link(self._best, tables)
        return tables

    def _of_candidates(self, parts: Parts, run: Run) -> Part:
        """Best candidates of all nodes of ``parts``, by their numbers."""
        if self.filter is not None:
            parts = in_candidates(parts, self.filter, self._slots, self._fit, run)
        return joined(parts)

    def follow(self, parcel: Unpacked, handed: Unpacked) -> Made:
        """The tables of the link, by the ``handed`` shares of the best so far."""
        level = self.level
        bits = taken_bits(level.place)
        shape = (sum(bits.values()), level.nodes)
        share = take_bits(handed, shape)
        handed.end()
        self._side.fill(parcel, level.taken_labels)
        rows = self._side.rows(parcel, level.taken_labels).reshape(*shape, BLOCK_WORDS)
        zeros = rows ^ np.where(share[..., np.newaxis], self._side.secret, np.uint64(0))
        tables: Made = []
        nodes, best = self._best
        shown = self._link((nodes, {**best, **named_labels(zeros, bits)}), tables)
        return self._ended(parcel, [*tables, *shown])

    def handed(self) -> NDArray[np.bool_]:
        """This party's shares of the best so far, for the next of the chain: bool (bits, nodes)."""
        _, found = joined(self._linked)
        return colours(np.concatenate([found["gain"], found["owner"]]))

    def winners(self, parcel: Unpacked) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which nodes were won, and by which candidate (0 elsewhere): bool and int64 (nodes,)."""
        _, found = joined(self._linked)
        zeros = claimed_labels(found)
        claimed = parcel.take(np.uint64, zeros.shape)
        parcel.end()
        unclaimed = ~claimed.any(axis=(0, 2))
        unset = (claimed == zeros).all(axis=-1)
        bits = (claimed == zeros ^ self._side.secret).all(axis=-1)
        won, index = bits[0], bits[1 : 1 + len(found["index"])]
        if not (unclaimed | won & (unset | bits).all(axis=0)).all():
            raise MessageError("labels of winners that no circuit has shown")
        self._right = bits[1 + len(index) :]
        return won, integers_of(index)

    def named(self, parcel: Unpacked) -> list[Winner | None]:
        """The winner of each node, a candidate or a set, by the active party's claim."""
        won, index = self.winners(parcel)
        columns, right = self.level.columns, self._right.T
        return [
            None if not is_won else place if columns is None else columns.split(place, of_node)
            for is_won, place, of_node in zip(won.tolist(), index.tolist(), right, strict=True)
        ]

    def _link(self, best: Part, tables: Made) -> Made:
        """Compare best candidates with the best before them; what the active party is shown."""
        place, (nodes, labels) = self.level.place, best
        schedule = link_schedule(place, len(labels["index"]))
        found = finished(self._side.garble(tables)(schedule, labels))
        if self.sets is not None:
            found["right"] = self.sets.right(nodes, found, self._side.garble(tables))
        self._linked.append((nodes, found))
        return [colours(found["owner"]).astype(np.uint64)] if place.is_last else []

    @staticmethod
    def _ended(parcel: Unpacked, made: Made) -> Made:
        parcel.end()
        return made
