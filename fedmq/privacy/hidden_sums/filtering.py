"""How do both halves find fresh shares of a node's few candidates that may be the best?

==========  ==================================================  ==================================
way         what                                                made and taken by
==========  ==================================================  ==================================
A to k      choices of carries, and of x and d                  ``choose``
k to A      numbers for them, and for V and S                   ``offer``
A to k      choices of V and S, and of labels                   ``choose_labels``
k to A      tables of quotients, in pieces                      ``take_labels``
k to A      tables of the rest, colours of "more"               ``close``
A to k      labels of "more", choices of indices                ``close``
k to A      choices of indices, k's tables of shares            ``offer_entries``
A to k      A's tables of shares                                ``offer_entries``, ``read_entries``
==========  ==================================================  ==================================

k knows its shares of sums, x and d as soon as it has made the numbers of the first row, so that
numbers for V and S leave at once, for choices at random. What A chooses of them, once it knows its
own shares, turns these choices (`correlated`).

A crowded node, of which more than four candidates may be the best, has 16 slots; of more than 16 it
goes another way. These bits both parties learn; the active party proves them by labels. Where
quotients reach far, every node has 16 slots, and nobody learns which one would do with four.

Shares are read at a place that neither party knows, by a choice of one table by each. Both know a
share of the place: place = i_A ⊕ i_P. Each permutes its table of shares by its own share of the
place, and takes off a mask of its own: entry j of what it offers is that of the place j ⊕ its
share. The other one chooses entry j = its share, by a transfer of one of 2^b (Naor and Pinkas, STOC
1999, section 2: entry j is hidden by one pad of each of b transfers, those of the bits of j). What
each reads, with its own mask, is a fresh share. A slot is one such place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.half_gates import Labels, colours
from fedmq.privacy.hidden_sums.circuits import Run
from fedmq.privacy.hidden_sums.filter import FilterLevel, NodeFactors
from fedmq.privacy.hidden_sums.products import (
    Scaled,
    carry_choices,
    factor_choices,
    joined_receiver,
    joined_sender,
    lifted,
    offered_carries,
    offered_factors,
    offered_products,
    own_scaled,
    product_choices,
    received_scaled,
    sent_scaled,
)
from fedmq.privacy.hidden_sums.quotient import (
    chosen_slots,
    quotient_inputs,
    quotient_schedule,
    threshold_bits,
)
from fedmq.privacy.hidden_sums.rounds import in_blocks
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.hidden_sums.sides import (
    Made,
    ReceiverSide,
    SenderSide,
    Unpacked,
    extension_arrays,
    finished,
    packed_bits,
    take_bits,
    take_extension,
)
from fedmq.privacy.hidden_sums.stages import EvaluatorStage, GarblerStage, Stage, named_labels
from fedmq.privacy.oblivious_transfer.correlated import add, bits_of, integers_of, wide
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_WORDS,
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
    hashed_at,
    hashed_over,
)
from fedmq.privacy.random_stream import Stream, fresh_seed

__all__ = [
    "FilterEvaluator",
    "FilterGarbler",
    "Groups",
    "Places",
    "QuotientEvaluator",
    "QuotientGarbler",
    "chosen_entries",
    "fresh_shares",
    "hidden_entries",
    "index_choices",
    "offered_entries",
    "quotient_stage",
]

Places = NDArray[np.int64]
"""(nodes, slots): a party's shares of places."""

Groups = list[tuple[NDArray[np.bool_], int]]
"""Some of the nodes that fit, bool (nodes,), and how many slots each of them has."""


def index_choices(places: Places, bits: int) -> NDArray[np.bool_]:
    """The choices of ``places``, slot by slot, the lowest bit first: bool (slots * bits,)."""
    return bits_of(wide(places.reshape(-1)), bits).T.reshape(-1)


def offered_entries(
    shares: Shares, places: Places, masks: Shares, bits: int, field: Field
) -> NDArray[np.uint64]:
    """A party's tables: uint64 (slots, 2^bits, 2).

    ``shares`` (nodes, C, 2); ``masks`` (nodes, slots, 2), which are this party's fresh ones.
    """
    nodes, candidates, _ = shares.shape
    entries = np.arange(1 << bits)
    # Nobody asks beyond the last candidate.
    at = np.minimum(entries ^ places[..., np.newaxis], candidates - 1)
    rows = shares[np.arange(nodes)[:, np.newaxis, np.newaxis], at]
    less = field.less(rows, np.broadcast_to(masks[:, :, np.newaxis], rows.shape))
    return less.reshape(places.size, 1 << bits, BLOCK_WORDS)


def hidden_entries(
    tables: NDArray[np.uint64],
    rows: NDArray[np.uint64],
    secret: NDArray[np.uint64],
    permutation: Permutation,
    tweaks: Tweaks,
) -> NDArray[np.uint64]:
    """``tables`` (slots, 2^b, 2) as the other party may read one entry of each; same shape.

    ``rows`` uint64 (slots * b, 2): the sender's of transfers.
    """
    slots, entries, _ = tables.shape
    bits = (entries - 1).bit_length()
    numbers = tweaks.spend(len(rows)).reshape(slots, bits)
    by_bit = rows.reshape(slots, bits, BLOCK_WORDS)
    hidden = tables.copy()
    every = np.arange(entries, dtype=np.uint64)
    at_once = max(1, _PADS_AT_ONCE // entries)
    for part in (slice(start, start + at_once) for start in range(0, slots, at_once)):
        for bit in range(bits):
            by_value = hidden[part].reshape(-1, entries >> bit + 1, 2, 1 << bit, BLOCK_WORDS)
            of_places = every.reshape(-1, 2, 1 << bit)
            for value, blocks in enumerate((by_bit, by_bit ^ secret)):
                places = of_places[:, value].reshape(-1)
                pads = hashed_over(permutation, blocks[part, bit], numbers[part, bit], places)
                by_value[:, :, value] ^= pads.reshape(by_value[:, :, value].shape)
    return hidden


def chosen_entries(
    hidden: NDArray[np.uint64],
    rows: NDArray[np.uint64],
    places: Places,
    permutation: Permutation,
    tweaks: Tweaks,
) -> NDArray[np.uint64]:
    """The entries at ``places``: uint64 (slots, 2). ``rows``: the receiver's of transfers."""
    slots, entries, _ = hidden.shape
    bits = (entries - 1).bit_length()
    at = places.reshape(-1)
    pads = hashed_at(permutation, rows, tweaks.spend(len(rows)), np.repeat(at, bits))
    together = np.bitwise_xor.reduce(pads.reshape(slots, bits, BLOCK_WORDS), axis=1)
    entry: NDArray[np.uint64] = hidden[np.arange(slots), at] ^ together
    return entry


_PADS_AT_ONCE = 1 << 18  # 4 MB


def fresh_shares(entries: NDArray[np.uint64], masks: Shares, field: Field) -> Shares:
    """A party's shares of the places, of what it read and its own masks: (nodes, slots, 2)."""
    read = field.joined(entries.reshape(masks.shape))
    return field.parted(add(read, field.joined(masks)))


# Both halves, in the order of the table above.


class _Quotients:
    """What both halves know of the quotients of some candidates, ``shares`` (nodes, C, 2).

    ``known``: the active party's bits of each node beside those of the ``stage``. ``before``: the
    block before this one, of the same nodes.
    """

    takes_numbers = True

    def __init__(
        self,
        level: FilterLevel,
        field: Field,
        shares: Shares,
        stage: Stage,
        known: Mapping[str, int],
        before: _Quotients | None = None,
    ) -> None:
        self._level = level
        self._field = field
        self._shares = shares
        self._stage = stage
        self._bits = known
        self._before = before
        self.spare = 0
        """Transfers that are used behind its own."""
        self._scaled: Scaled
        self._joined: dict[str, NDArray[np.uint64]]
        self._by_node: Labels
        self.known: dict[str, Labels]
        """Labels of ``known``, by name: (bits, nodes, 2)."""

    @property
    def instances(self) -> int:
        return self._stage.instances

    @property
    def begins_nodes(self) -> bool:
        """Whether this is the first block of its nodes."""
        return self._before is None

    @property
    def labels(self) -> int:
        """Labels that the active party chooses."""
        of_candidates = sum(self._stage.candidate_bits.values()) * self._stage.instances
        of_nodes = sum(self._stage.node_bits.values()) + sum(self._bits.values())
        return of_candidates + of_nodes * self._level.nodes * self.begins_nodes

    @property
    def transfers(self) -> int:
        """All that the active party chooses."""
        return self._level.quotient_transfers + self.labels + self.spare

    def _parted(self, rows: NDArray[np.uint64]) -> tuple[Labels, Labels]:
        """Rows of labels as those of candidates and of nodes; keeps what else is known."""
        stage = self._stage
        split = sum(stage.candidate_bits.values()) * stage.instances
        other = rows[:split].reshape(-1, stage.instances, BLOCK_WORDS)
        if self._before is not None:
            self._by_node, self.known = self._before._by_node, self._before.known
            return other, self._by_node
        by_node = rows[split:].reshape(-1, self._level.nodes, BLOCK_WORDS)
        of_stage = sum(stage.node_bits.values())
        self._by_node = by_node[:of_stage]
        self.known = named_labels(by_node[of_stage:], self._bits)
        return other, self._by_node

    def _inputs(self, joined: Mapping[str, NDArray[np.uint64]]) -> NDArray[np.bool_]:
        """A party's inputs of all candidates: bool (bits, instances)."""
        numbers = {
            name: wide(np.ascontiguousarray(found.reshape(-1))) for name, found in joined.items()
        }
        numbers["sums"] = self._field.joined(self._shares.reshape(-1, 2))
        sizes = self._stage.candidate_bits.items()
        return np.concatenate([bits_of(numbers[name], count) for name, count in sizes])


class QuotientGarbler(_Quotients):
    """The passive party's half."""

    _products: list[NDArray[np.uint64]]
    """Own shares of the products for V and S, as choices were drawn."""

    def offer(self, side: SenderSide, parcel: Unpacked) -> Made:
        """Numbers for carries, x and d, and for V and S as choices were drawn."""
        c, made = self._level.precision, []
        carries = offered_carries(self._shares, self._field, c)
        [(own, of_carries)] = side.offer_narrow(parcel, carries)
        made.append(of_carries)
        sums = lifted(self._shares, own, self._field, c, receives=False)
        x, d = np.zeros((2, *sums.shape[1:-1]), np.uint64)
        for kept, offered in zip((x, d), offered_factors(sums, c), strict=True):
            for own, of_factors in side.offer_narrow(parcel, offered):
                kept[:] += _sum_of_bits(own, kept.shape)
                made.append(of_factors)
        del sums
        self._scaled = sent_scaled(x, d, c)
        self._products = []
        for offered in offered_products(self._scaled, c):
            kept, first = np.empty((offered.transfers, 1), np.uint64), 0
            for own, of_products in side.offer_ahead_narrow(offered):
                kept[first : first + len(own)] = own
                first += len(own)
                made.append(of_products)
            self._products.append(kept)
        side.drop_used()
        return made

    def take_products(self, side: SenderSide, parcel: Unpacked) -> None:
        c, shape = self._level.precision, self._scaled.x.shape
        v, s = np.zeros((2, *shape), np.uint64)
        for kept, own, offered in zip(
            (v, s), self._products, offered_products(self._scaled, c), strict=True
        ):
            for turned in side.turn_narrow(parcel, own, offered):
                kept[:] += _sum_of_bits(turned, shape)
        self._joined = joined_sender(self._scaled, v, s, c)
        del self._products, self._scaled  # what is used up need not travel to workers

    def take_labels(self, side: SenderSide, parcel: Unpacked) -> GarblerStage:
        stage = self._stage
        other, by_node = self._parted(side.rows(parcel, self.labels))
        bits, tweaks = self._inputs(self._joined), side.tweaks.take(stage.instances)
        del self._joined
        return GarblerStage(
            stage,
            stage.batches(),
            bits,
            other,
            by_node,
            side.secret,
            side.permutation,
            tweaks,
        )


def _sum_of_bits(numbers: NDArray[np.uint64], shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """The sum of ``numbers`` of this ``shape``, which lie one after the other."""
    total: NDArray[np.uint64] = numbers.reshape(-1, *shape).sum(axis=0, dtype=np.uint64)
    return total


class QuotientEvaluator(_Quotients):
    """The active party's half, by its ``factors`` of each node."""

    _drawn: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    """Choices for V and S, at random."""

    def __init__(
        self,
        level: FilterLevel,
        field: Field,
        shares: Shares,
        stage: Stage,
        known: Mapping[str, NDArray[np.bool_]],
        factors: Sequence[NodeFactors],
        before: QuotientEvaluator | None = None,
    ) -> None:
        sizes = {name: len(bits) for name, bits in known.items()}
        super().__init__(level, field, shares, stage, sizes, before)
        self._known = known
        self._factors = factors

    def choose(self, side: ReceiverSide) -> Made:
        """Choices of carries, and of x and d, which no carry changes."""
        c = self._level.precision
        carries = side.choose(carry_choices(self._shares, self._field))
        choices = factor_choices(self._factors, c)
        of_x = c.x_factor * self._level.nodes
        factors = [side.choose(choices[:of_x]), side.choose(choices[of_x:])]
        instances = self._stage.instances
        self._drawn = side.draw(c.x_modulus * instances), side.draw(c.d_modulus * instances)
        return [carries, *factors]

    def choose_products(self, side: ReceiverSide, parcel: Unpacked) -> Made:
        """Choices of V and S."""
        c, factors = self._level.precision, self._factors
        carries = side.receive_narrow(parcel, 1, c.wrap_bits)
        sums = lifted(self._shares, carries, self._field, c, receives=True)
        shape = self._shares.shape[:2]
        x, d = (
            _sum_of_bits(side.receive_narrow(parcel, self._level.candidates, bits), shape)
            for bits in (c.x_modulus + c.x_guard, c.d_modulus + c.d_guard)
        )
        scaled = received_scaled(own_scaled(sums, factors, c), x, d, c)
        of_weights = c.x_modulus * self._stage.instances
        choices = np.split(product_choices(scaled, factors, c), [of_weights])
        made, products = [], []
        for drawn, chosen, bits in zip(
            self._drawn, choices, (c.shared_weight_bits, c.shared_square_bits), strict=True
        ):
            own = side.receive_narrow(parcel, 1, bits)
            turned, own = side.turn_narrow(own, drawn, chosen, bits)
            made.append(turned)
            products.append(_sum_of_bits(own, shape))
        v, s = products
        self._joined = joined_receiver(scaled, factors, v, s, c)
        del self._drawn
        return made

    def choose_labels(self, side: ReceiverSide) -> tuple[Made, EvaluatorStage]:
        c, stage = self._level.precision, self._stage
        bits = [self._inputs(self._joined)]
        if self.begins_nodes:
            least = np.array([node.least_weight for node in self._factors], np.uint64)
            bits += [bits_of(wide(least), c.weight_bits), *self._known.values()]
        turned, rows = side.choose_rows(np.concatenate([part.reshape(-1) for part in bits]))
        other, by_node = self._parted(rows)
        tweaks = side.tweaks.take(stage.instances)
        del self._joined
        batches, permutation = stage.batches(), side.permutation
        return [turned], EvaluatorStage(stage, batches, other, by_node, permutation, tweaks)


Q = TypeVar("Q", QuotientEvaluator, QuotientGarbler)


def quotient_stage(level: FilterLevel) -> Stage:
    """The quotients of all candidates."""
    return Stage(
        partial(quotient_schedule, level.precision),
        level.nodes,
        level.candidates,
        quotient_inputs(level.precision),
        {"least weight": level.precision.weight_bits},
    )


class _Half(Generic[Q]):
    """What both halves know of the slots."""

    def __init__(self, level: FilterLevel, field: Field, shares: Shares) -> None:
        self.level = level
        self.quotients: list[Q] = []
        """Those of all candidates, block by block."""
        self._field = field
        self._shares = shares
        self._index: Labels
        self._masks: Shares

    def _blocks(self) -> Iterator[tuple[FilterLevel, slice, Shares, Q | None]]:
        """Of each block its level, nodes and shares, and the quotients before, of the same nodes.

        Those that are made of it are added before the next one is asked for.
        """
        for nodes, candidates in in_blocks(self.level.nodes, self.level.candidates):
            shares = self._shares[nodes, candidates]
            of_block = FilterLevel(self.level.precision, *shares.shape[:2])
            yield of_block, nodes, shares, self.quotients[-1] if candidates.start else None

    def _chosen(self, found: Sequence[Mapping[str, Labels]], run: Run) -> dict[str, Labels]:
        """Labels of slots, by those of quotients that were ``found``."""
        outputs = {
            name: np.concatenate([of_block[name] for of_block in found], axis=1)
            for name in found[0]
        }
        first = [block.known["to beat"] for block in self.quotients if block.begins_nodes]
        return finished(chosen_slots(self.level, outputs, np.concatenate(first, axis=1), run))

    def index(self, nodes: NDArray[np.bool_], slots: int) -> Labels:
        """Labels of the indices in the first ``slots`` of some nodes: (slots * bits, nodes, 2)."""
        return np.ascontiguousarray(self._index[: slots * self.level.index_bits, nodes])

    def _groups(self, more: NDArray[np.bool_]) -> Groups:
        """Which nodes have all that is near in how many slots; ``more``: bool (counts, nodes)."""
        fewer = np.concatenate([np.ones_like(more[:1]), more[:-1]])
        return list(zip(fewer & ~more, self.level.slots, strict=True))

    def _places(self, groups: Groups) -> Places:
        """This party's shares of all slots' indices, colours: (slots of all nodes, 1)."""
        found = []
        for nodes, slots in groups:
            own = colours(self.index(nodes, slots))
            by_slot = own.reshape(slots, self.level.index_bits, -1)
            found.append(integers_of(by_slot.transpose(1, 2, 0)).reshape(-1, 1))
        return np.concatenate(found)

    def _tables(self, groups: Groups, masks: Stream) -> NDArray[np.uint64]:
        """Own tables of shares; draws the ``masks`` that are this party's part of fresh ones."""
        places = self._places(groups)
        self._masks = masks.words(*places.shape, 2) & self._field.mask
        of_slots = [np.repeat(np.flatnonzero(nodes), slots) for nodes, slots in groups]
        shares = self._shares[np.concatenate(of_slots)]
        return offered_entries(shares, places, self._masks, self.level.index_bits, self._field)

    def _fresh(self, entries: NDArray[np.uint64], groups: Groups) -> list[Shares]:
        """Fresh shares by group, (nodes, slots, 2) each."""
        shares, found, start = fresh_shares(entries, self._masks, self._field), [], 0
        for nodes, slots in groups:
            stop = start + slots * int(nodes.sum())
            found.append(shares[start:stop].reshape(-1, slots, 2))
            start = stop
        return found


class FilterGarbler(_Half[QuotientGarbler]):
    """The passive party's half, of nodes that fit: ``shares`` uint64 (nodes, candidates, 2).

    Its masks follow from the session's ``seed``.
    """

    def __init__(self, level: FilterLevel, field: Field, shares: Shares, seed: bytes) -> None:
        super().__init__(level, field, shares)
        self._seed = seed
        known = {"to beat": threshold_bits(level.precision)["to beat"]}
        for of_block, _, its, before in self._blocks():
            stage = quotient_stage(of_block)
            self.quotients.append(QuotientGarbler(of_block, field, its, stage, known, before))
        self.quotients[-1].spare = level.index_transfers
        self._more: Labels
        self._rows: NDArray[np.uint64]

    def close(self, side: SenderSide, found: Sequence[Mapping[str, Labels]]) -> Made:
        """Tables of the rest, of the quotients that were ``found``, and colours of "more"."""
        tables: Made = []
        chosen = self._chosen(found, side.garble(tables))
        self._index, self._more = chosen["index"], chosen["more"]
        return [*tables, packed_bits(colours(chosen["more"]))]

    def read_more(self, side: SenderSide, parcel: Unpacked) -> Groups:
        """Which nodes have all that is near in slots."""
        return self._groups(side.read_bits(parcel, self._more))

    def offer_entries(
        self,
        side: SenderSide,
        chooser: ExtensionReceiver,
        tweaks: Tweaks,
        parcel: Unpacked,
        groups: Groups,
    ) -> Made:
        """Own tables, and choices among the active party's."""
        # No tweak is taken twice in a session, even if a level begins anew: so no mask is.
        tables = self._tables(groups, Stream(self._seed, f"fedmq masks of entries {tweaks.start}"))
        rows = side.rows(parcel, len(tables) * self.level.index_bits)
        hidden = hidden_entries(
            tables, rows, side.secret, side.permutation, side.tweaks.take(len(rows))
        )
        choices = index_choices(self._places(groups), self.level.index_bits)
        sent, self._rows = chooser.extend(choices, tweaks.take(len(choices)))
        return [hidden, *extension_arrays(sent)]

    def read_entries(
        self, permutation: Permutation, tweaks: Tweaks, parcel: Unpacked, groups: Groups
    ) -> list[Shares]:
        """Fresh shares of the slots, by group: (nodes, slots, 2)."""
        places = self._places(groups)
        hidden = parcel.take(np.uint64, (places.size, 1 << self.level.index_bits, BLOCK_WORDS))
        spent = tweaks.take(len(self._rows))
        entries = chosen_entries(hidden, self._rows, places, permutation, spent)
        return self._fresh(entries, groups)


class FilterEvaluator(_Half[QuotientEvaluator]):
    """The active party's half, of nodes that fit, by its ``factors`` of each."""

    def __init__(
        self, level: FilterLevel, field: Field, shares: Shares, factors: Sequence[NodeFactors]
    ) -> None:
        super().__init__(level, field, shares)
        to_beat = np.array([node.to_beat for node in factors], np.uint64)
        bits = bits_of(wide(to_beat), threshold_bits(level.precision)["to beat"])
        for of_block, nodes, its, before in self._blocks():
            stage, known = quotient_stage(of_block), {"to beat": bits[:, nodes]}
            block = QuotientEvaluator(of_block, field, its, stage, known, factors[nodes], before)
            self.quotients.append(block)
        self.quotients[-1].spare = level.index_transfers
        self._rows: NDArray[np.uint64]

    def close(
        self, side: ReceiverSide, parcel: Unpacked, found: Sequence[Mapping[str, Labels]]
    ) -> tuple[Made, Groups]:
        """Labels of "more" and choices of indices; which nodes have all that is near in slots."""
        chosen = self._chosen(found, side.evaluate(parcel))
        self._index = chosen["index"]
        unset = take_bits(parcel, (len(self.level.slots), self.level.nodes))
        more, bits = side.tell(chosen["more"], unset)
        groups = self._groups(bits)
        choices = index_choices(self._places(groups), self.level.index_bits)
        turned, self._rows = side.choose_rows(choices)
        return [more, turned], groups

    def offer_entries(
        self,
        side: ReceiverSide,
        sender: ExtensionSender,
        permutation: Permutation,
        tweaks: Tweaks,
        parcel: Unpacked,
        groups: Groups,
    ) -> tuple[Made, list[Shares]]:
        """Own tables, and fresh shares of the slots, by group: (nodes, slots, 2)."""
        places = self._places(groups)
        hidden = parcel.take(np.uint64, (places.size, 1 << self.level.index_bits, BLOCK_WORDS))
        count = len(self._rows)
        spent = side.tweaks.take(count)
        entries = chosen_entries(hidden, self._rows, places, side.permutation, spent)
        tables = self._tables(groups, Stream(fresh_seed(), "fedmq masks of entries"))
        own = sender.extend(take_extension(parcel, count), count, tweaks.take(count))
        offered = hidden_entries(tables, own, sender.secret, permutation, tweaks.take(count))
        return [offered], self._fresh(entries, groups)
