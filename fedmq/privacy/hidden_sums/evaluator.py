"""How does the active party learn that a candidate won? It evaluates what is garbled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation, Given
from fedmq.privacy.engine import ALONE, Place
from fedmq.privacy.garbling.half_gates import Labels, colours
from fedmq.privacy.hidden_sums.category_order import SetColumns
from fedmq.privacy.hidden_sums.category_sets import SetEvaluator
from fedmq.privacy.hidden_sums.circuits import (
    GainCircuit,
    NodeInputs,
    Run,
    link_schedule,
    taken_bits,
)
from fedmq.privacy.hidden_sums.exact import GainEvaluator, RankEvaluator, best_gains
from fedmq.privacy.hidden_sums.filter import NodeFactors
from fedmq.privacy.hidden_sums.filtering import FilterEvaluator, Groups, QuotientEvaluator
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
from fedmq.privacy.hidden_sums.sides import (
    Made,
    Opened,
    ReceiverSide,
    Unpacked,
    finished,
    packed_bits,
    take_bits,
)
from fedmq.privacy.hidden_sums.stages import EvaluatorStage, named_labels
from fedmq.privacy.oblivious_transfer.correlated import integers_of
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_WORDS,
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
)

__all__ = ["LevelEvaluator"]


class LevelEvaluator:
    """A level of nodes; call each method once, in the order of `fedmq.privacy.hidden_sums`.

    ``shares`` uint64 (nodes, candidates, 2). ``choosing`` finds the `NodeFactors` of each node,
    None where the filter does not fit it. ``tweaks`` are those of a session with the passive party,
    ``back`` the transfers in which that one chooses. ``opened``: in a copy that is checked.
    ``sets``: the columns of candidates that are split by sets. All
    methods raise `MessageError` for malformed parcels.
    """

    def __init__(
        self,
        circuit: GainCircuit,
        shares: Shares,
        inputs: NodeInputs,
        choosing: Computation,
        receiver: ExtensionReceiver,
        permutation: Permutation,
        tweaks: Tweaks,
        back: BackTransfers[ExtensionSender],
        place: Place = ALONE,
        opened: Opened | None = None,
        sets: SetColumns | None = None,
    ) -> None:
        nodes, shown, _ = shares.shape
        self.level = HiddenLevel.of(circuit, nodes, shown, place, sets)
        self._shares = shares
        of_sets = self.level.sets
        self.sets = None if of_sets is None else SetEvaluator(of_sets, shares, inputs)
        """What sorts categories, and learns no set; None without columns of sets."""
        self._inputs = inputs
        self._choosing: Computation | None = choosing
        self._factors: Sequence[NodeFactors | None]
        self._side = ReceiverSide(receiver, permutation, self.level.take(tweaks), opened)
        self._back = back.of_level(self.level)
        self.fit: NDArray[np.bool_]
        """Nodes that the filter fits."""
        self.filter: FilterEvaluator | None = None
        """Their filter; None if there are none."""
        self.crowded: NDArray[np.bool_] = np.zeros(nodes, np.bool_)
        """Nodes of which more candidates may be the best than there are slots."""
        self._groups: Groups
        self._sure: NDArray[np.bool_] = np.zeros(nodes, np.bool_)
        """Nodes whose ranks leave no doubt."""
        self._slots: list[tuple[NDArray[np.bool_], Shares]] = []
        """Shares of what may be the best: (nodes, slots, 2) of some nodes, bool (nodes,), each."""
        self.rankings: list[RankEvaluator] = []
        """Their ranks; none if those candidates' gains are computed at once."""
        self.stages: Sequence[EvaluatorStage]
        """What is evaluated in batches next."""
        self._gains: list[tuple[NDArray[np.bool_], GainEvaluator]] = []
        """Gains to compute: of a block of candidates in some nodes, bool (nodes,), each."""
        self.rounds: Rounds[QuotientEvaluator | GainEvaluator] = Rounds()
        """What is computed next: quotients of the filter, those of ranks, or gains."""
        self._linked: Parts = []
        """What links found."""
        self._best: Part
        """What a link compares, of nodes whose gains were computed."""
        self._owners: NDArray[np.int64] = np.zeros(nodes, np.int64)

    def goes_with(self, real: LevelEvaluator) -> None:
        """Tell, of an opened copy, what ``real`` has told of its own."""
        assert self._side.opened is not None
        self._side.opened.bits = list(real._side.told)
        if self._choosing is not None:
            self._choosing = Given(real._factors)

    def choose_set_labels(self, _: Unpacked) -> Made:
        """Choices of labels that weights of categories are evaluated with."""
        assert self.sets is not None
        return self._choose_labels([self.sets])

    def close_sets(self, parcel: Unpacked, found: Sequence[Mapping[str, Labels]]) -> Made:
        """Take the parcel after all batches of weights."""
        assert self.sets is not None
        self.sets.close(self._side, parcel, found[0])
        self._shares = self.sets.scanned
        return self._ended(parcel, [])

    def begin(self, _: Unpacked) -> Made:
        """The first parcel."""
        assert self._choosing is not None
        self._factors, self._choosing = self._choosing.run(), None  # gradients travel once
        found = [node for node in self._factors if node is not None]
        self.fit = np.array([node is not None for node in self._factors]) & self.level.filters
        fit = packed_bits(self.fit)
        if not self.fit.any():
            return [fit, *self._begin_gains()]
        level, shares = self.level.filter(len(found)), self._shares[self.fit]
        self.filter = FilterEvaluator(level, self.level.field, shares, found)
        self.rounds = Rounds(self.filter.quotients)
        return [fit, *self.begin_round(Unpacked(()))]

    def begin_round(self, _: Unpacked) -> Made:
        """Choices of the next blocks: of numbers, or at once of labels."""
        every = self.rounds.go_on()
        made = self._side.fill(self.rounds.transfers)
        if not self.rounds.take_numbers:
            return made + self._choose_labels(every)
        return made + [array for block in every for array in block.choose(self._side)]

    def choose_labels(self, parcel: Unpacked) -> Made:
        """Choices of products, and of labels."""
        side, every = self._side, self.rounds.under_way
        made = [array for block in every for array in block.choose_products(side, parcel)]
        return self._ended(parcel, made + self._choose_labels(every))

    def close_filter(self, parcel: Unpacked, found: Sequence[Mapping[str, Labels]]) -> Made:
        """Take the parcel after all batches of quotients."""
        assert self.filter is not None
        made, self._groups = self.filter.close(self._side, parcel, found)
        self.crowded = of_fitting(~self._groups[0][0], self.fit)
        return self._ended(parcel, made)

    def take_entries(self, parcel: Unpacked) -> Made:
        """Own tables of shares, and choices of numbers for ranks or gains."""
        assert self.filter is not None
        back = self._back
        made, shares = self.filter.offer_entries(
            self._side, back.party, back.permutation, back.tweaks, parcel, self._groups
        )
        self._slots = in_slots(self._groups, shares, self.fit)
        if not (self.level.circuit.ranked and self._slots):
            return self._ended(parcel, [*made, *self._begin_gains()])
        self.rankings = [
            RankEvaluator(
                self.level.ranking(*of_slots.shape[:2]),
                of_slots,
                self._inputs.totals[nodes],
                [node.fine for node in compress(self._factors, nodes) if node is not None],
            )
            for nodes, of_slots in self._slots
        ]
        self.rounds = Rounds(half.quotients for half in self.rankings)
        return self._ended(parcel, [*made, *self.begin_round(Unpacked(()))])

    def begin_gains(self, parcel: Unpacked, found: Sequence[Mapping[str, Labels]]) -> Made:
        """Take the parcel after all batches of ranks: labels of doubts, and choices of gains'."""
        run = self._side.evaluate(parcel)
        for half, of_half in zip(self.rankings, found, strict=True):
            half.rank(of_half, run)
        if self.level.is_alone:
            held = zip(self._slots, self.rankings, strict=True)
            parts = [(nodes, half.best()) for (nodes, _), half in held]
            self._link(self._of_candidates(parts, run), parcel)
        made: Made = []
        for half, (nodes, _) in zip(self.rankings, self._slots, strict=True):
            labels, doubtful = half.read_doubts(self._side, parcel)
            made.append(labels)
            self._sure = self._sure | of_fitting(~doubtful, nodes)
        self._linked = [part for of in self._linked for part in of_some(of, self._sure)]
        return self._ended(parcel, [*made, *self._begin_gains()])

    @property
    def asks_for_gains(self) -> bool:
        """Whether gains are computed."""
        return bool(self._gains)

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """Nodes whose ranks leave a doubt."""
        return ~(self._sure | self.whole) if self.rankings else np.zeros_like(self._sure)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Nodes of which the gains of all candidates are computed."""
        whole = np.ones(self.level.nodes, np.bool_)
        for nodes, _ in self._slots:
            whole = whole & ~nodes
        return whole

    def _begin_gains(self) -> Made:
        level, inputs, whole = self.level, self._inputs, self.whole
        for nodes, half in zip([nodes for nodes, _ in self._slots], self.rankings, strict=False):
            sure = nodes & self._sure
            if sure.any() and not level.is_alone:
                given = half.sums(sure[nodes])
                none = np.zeros((given.shape[1], 1, 2), np.uint64)
                gains = level.gains(len(none), 1, given=True)
                self._gains.append((sure, GainEvaluator(gains, none, inputs, sure, given)))
        for nodes, shares in [*self._slots, (whole, self._shares[whole])]:
            unsure = nodes & ~self._sure
            if unsure.any():
                self._add_gains(unsure, shares[unsure[nodes]])
        self.rounds = Rounds(block for _, block in self._gains)
        return self.begin_round(Unpacked(())) if self._gains else []

    def _add_gains(self, nodes: NDArray[np.bool_], shares: Shares) -> None:
        """Gains of all candidates in some ``nodes``, bool (all nodes,), are to be computed."""
        held, inputs = np.flatnonzero(nodes), self._inputs
        for some, block in in_blocks(*shares.shape[:2]):
            of_block = shares[some, block]
            before = self._gains[-1][1] if block.start else None
            gains = self.level.gains(*of_block.shape[:2])
            here = np.isin(np.arange(len(nodes)), held[some])
            self._gains.append((here, GainEvaluator(gains, of_block, inputs, here, before=before)))

    def _choose_labels(
        self, parts: Sequence[QuotientEvaluator | GainEvaluator] | Sequence[SetEvaluator]
    ) -> Made:
        chosen = [part.choose_labels(self._side) for part in parts]
        self.stages = [stage for _, stage in chosen]
        return [array for made, _ in chosen for array in made]

    def close(self, parcel: Unpacked, found: Sequence[Mapping[str, Labels]]) -> Made:
        """Take the parcel after all batches of gains."""
        run = self._side.evaluate(parcel)
        parts: Parts = best_gains(self._gains, found, run)
        parts = with_slots(parts, self.rankings, self._slots, self._sure)
        self._best = self._of_candidates(parts, run)
        if self.level.place.is_first:
            self._link(self._best, parcel)
        return self._ended(parcel, [])

    def _of_candidates(self, parts: Parts, run: Run) -> Part:
        """Best candidates of all nodes of ``parts``, by their numbers."""
        if self.filter is not None:
            parts = in_candidates(parts, self.filter, self._slots, self.fit, run)
        return joined(parts)

    def follow(self, leader: Unpacked) -> Made:
        """Choices of labels of the shares from the previous passive party's link."""
        level, bits = self.level, taken_bits(self.level.place)
        shares = take_bits(leader, (sum(bits.values()), level.nodes))
        leader.end()
        made = self._side.fill(level.taken_labels)
        turned, rows = self._side.choose_rows(shares.reshape(-1))
        nodes, best = self._best
        taken = named_labels(rows.reshape(*shares.shape, BLOCK_WORDS), bits)
        self._best = nodes, {**best, **taken}
        return [*made, turned]

    def close_link(self, parcel: Unpacked) -> Made:
        """Take the tables of the link, after `follow`."""
        self._link(self._best, parcel)
        return self._ended(parcel, [])

    def leader(self) -> NDArray[np.bool_]:
        """This party's shares of the best so far, for `follow` of the next: bool (bits, nodes)."""
        _, found = joined(self._linked)
        return colours(np.concatenate([found["gain"], found["owner"]]))

    def owners(self) -> NDArray[np.int64]:
        """The winners' numbers in the chain: int64 (nodes,), 0 for the active party."""
        return self._owners

    def claim(self, won: NDArray[np.bool_]) -> Labels:
        """The last message, if the passive party ``won`` these nodes, bool (nodes,)."""
        _, found = joined(self._linked)
        labels = claimed_labels(found)
        return np.where(won[:, np.newaxis], labels, np.uint64(0))

    def _link(self, best: Part, parcel: Unpacked) -> None:
        """Evaluate a link by the tables of ``parcel``, and read what is shown of it."""
        place, (nodes, labels) = self.level.place, best
        schedule = link_schedule(place, len(labels["index"]))
        run = self._side.evaluate(parcel)
        found = finished(run(schedule, labels))
        if self.sets is not None:
            found["right"] = self.sets.right(nodes, found, run)
        self._linked.append((nodes, found))
        if place.is_last:
            unset = parcel.take(np.uint64, found["owner"].shape[:2]) & np.uint64(1)
            owners = self._owners.copy()
            owners[nodes] = integers_of(colours(found["owner"]) ^ unset.astype(np.bool_))
            self._owners = owners

    @staticmethod
    def _ended(parcel: Unpacked, made: Made) -> Made:
        parcel.end()
        return made
