"""How do both parties find the steps of some columns at once? By transfers of labels and circuits.

The columns of a screen are taken in blocks, so that neither party holds more than one block's
tables. Of each block the active party chooses the labels of its shares, in an extension of the
session's transfers, whose rows are the labels; the passive party answers with the tables of all
bins, those of all columns, and the colours by which the active party reads the steps. Tweaks of a
block follow from its number. A bin that a column of the block lacks is a term of 0: both use the
label 0 for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.privacy.garbling.half_gates import Evaluation, Garbling, Labels, colours
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.hidden_screen.label import BinShares
from fedmq.privacy.hidden_screen.steps import (
    DIFFERENCE_BITS,
    HALF_BITS,
    RATIO_BITS,
    STEP_BITS,
    TERM_BITS,
    bin_schedule,
    column_schedule,
    known_bits,
    share_bits,
)
from fedmq.privacy.hidden_sums.sides import (
    Unpacked,
    extension_arrays,
    packed_bits,
    take_bits,
    take_extension,
)
from fedmq.privacy.oblivious_transfer.base_transfers import (
    ChooseAhead,
    ChosenSeeds,
    MakeOffer,
    OfferedSeeds,
)
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_WORDS,
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
    draw_choices,
)
from fedmq.privacy.random_stream import SEED_BYTES, Stream

__all__ = [
    "MOST_BINS_OF_A_COLUMN",
    "Block",
    "GarblingSeeds",
    "blocks_of",
    "choose_block",
    "choose_transfers",
    "chosen_seeds",
    "evaluate_block",
    "garble_block",
    "offer_transfers",
]

MOST_BINS_OF_A_COLUMN = 51
"""Those of values, and one of missing values."""

_BINS_TOGETHER = 128
_TWEAKS = 1 << 32


@dataclass(frozen=True, slots=True)
class Block:
    """Columns ``first`` and after, with so many ``bins`` each, over ``rows``; the ``number`` -th.

    ``least``: fewer steps are told as 0.
    """

    number: int
    first: int
    bins: tuple[int, ...]
    rows: int
    least: int

    @property
    def instances(self) -> int:
        return sum(self.bins)

    @property
    def columns(self) -> slice:
        """Which of all columns these are."""
        return slice(self.first, self.first + len(self.bins))

    @property
    def of_bins(self) -> Schedule:
        return bin_schedule(self.rows)

    @property
    def of_columns(self) -> Schedule:
        return column_schedule(max(self.bins), self.least)

    @property
    def tweaks(self) -> Tweaks:
        return Tweaks(self.number * _TWEAKS, (self.number + 1) * _TWEAKS)

    @property
    def transfers(self) -> int:
        """Labels that the active party chooses."""
        return self.instances * _shared(self.rows) + _KNOWN_BITS

    @property
    def sent_bytes(self) -> int:
        """What the passive party sends: tables, and colours."""
        colour_bytes = -(-STEP_BITS * len(self.bins) // 8)
        tables = self.of_bins.ands * self.instances + self.of_columns.ands * len(self.bins)
        return 32 * tables + colour_bytes


_KNOWN_BITS = HALF_BITS + RATIO_BITS


def _shared(rows: int) -> int:
    return share_bits(rows) + DIFFERENCE_BITS


def blocks_of(bins: Sequence[int], rows: int, least: int) -> list[Block]:
    """The blocks of columns with so many ``bins``.

    Raises:
        MessageError: a column has no bins, or too many.
    """
    if not all(1 <= count <= MOST_BINS_OF_A_COLUMN for count in bins):
        raise MessageError(f"a column of more than {MOST_BINS_OF_A_COLUMN} bins, or of none")
    parts: list[list[int]] = [[]]
    for count in bins:
        if sum(parts[-1]) + count > _BINS_TOGETHER:
            parts.append([])
        parts[-1].append(count)
    found, first = [], 0
    for number, part in enumerate(parts if bins else []):
        found.append(Block(number, first, tuple(part), rows, least))
        first += len(part)
    return found


# How do transfers begin? The passive party, which garbles, chooses ahead.


@dataclass(frozen=True, slots=True)
class GarblingSeeds:
    """What the passive party draws of a session: 32 bytes, from which all else follows."""

    seed: bytes = field(repr=False)

    @property
    def choices(self) -> NDArray[np.bool_]:
        """The secret of an extension; base transfers choose the opposite."""
        return draw_choices(self.seed)

    @property
    def transfers(self) -> bytes:
        return Stream(self.seed, "fedmq hidden screen transfers").read(SEED_BYTES)


@computation("ChooseScreenTransfers")
def choose_transfers(seeds: GarblingSeeds) -> NDArray[np.uint8]:
    """What the passive party sends first: uint8 (128, 256)."""
    return ChooseAhead(~seeds.choices, seeds.transfers).run()


@computation("OfferScreenTransfers")
def offer_transfers(chosen: object, seed: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The active party's answer, uint8 (2, 256), and both seeds of each transfer (128, 2, 32).

    Raises:
        MessageError: what was ``chosen`` is malformed.
    """
    return MakeOffer(seed, ahead=True).run(), OfferedSeeds(chosen, seed, ahead=True).run()


@computation("ReadScreenTransfers")
def chosen_seeds(offer: object, seeds: GarblingSeeds) -> NDArray[np.uint8]:
    """The passive party's seeds, uint8 (128, 32). Raises `MessageError` for a malformed offer."""
    chosen = ChooseAhead(~seeds.choices, seeds.transfers).run()
    return ChosenSeeds(offer, chosen, ~seeds.choices, seeds.transfers).run()


# What does each party do of a block?


@computation("ChooseScreenLabels")
def choose_block(
    block: Block, pairs: NDArray[np.uint8], shares: Sequence[BinShares], people: tuple[int, int]
) -> tuple[NDArray[np.uint8], Labels]:
    """What the active party sends of a block, uint8 (bytes,), and the labels of its bits.

    ``pairs`` as `offer_transfers` found them, ``people`` with label 1 and 0.
    """
    known = known_bits(*people)
    bits = np.concatenate(
        [
            *(_bits_of_shares(each, block.rows).T.reshape(-1) for each in shares),
            _bits(np.array([known[0]]), HALF_BITS)[:, 0],
            _bits(np.array([known[1]]), RATIO_BITS)[:, 0],
        ]
    )
    tweaks = block.tweaks.take(block.transfers)
    message, rows = ExtensionReceiver(pairs).extend(bits, tweaks)
    sent = [np.ascontiguousarray(array).reshape(-1) for array in extension_arrays(message)]
    return np.concatenate(sent), rows


@computation("GarbleScreen")
def garble_block(
    block: Block,
    sent: NDArray[np.uint8],
    seeds: GarblingSeeds,
    chosen: NDArray[np.uint8],
    permutation: Permutation,
    shares: Sequence[BinShares],
    people: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """What the passive party sends of a block: uint8 (bytes,).

    ``sent``: the active party's choices; ``chosen`` as `chosen_seeds`; ``people`` of each bin.

    Raises:
        MessageError: the choices are malformed.
    """
    tweaks, parcel = block.tweaks, Unpacked([{"bytes": sent}])
    extended = take_extension(parcel, block.transfers)
    parcel.end()
    sender = ExtensionSender(seeds.choices, chosen)
    rows = sender.extend(extended, block.transfers, tweaks.take(block.transfers))
    own = np.concatenate(
        [
            np.concatenate([_bits_of_shares(each, block.rows) for each in shares], axis=1),
            _bits(people, block.rows.bit_length()),
        ]
    )
    zeros = np.where(own[..., np.newaxis], sender.secret, np.uint64(0))
    tables: list[NDArray[np.uint8]] = []

    def garbled(schedule: Schedule, inputs: Mapping[str, Labels]) -> dict[str, Labels]:
        instances = next(iter(inputs.values())).shape[1]
        own_tweaks = tweaks.take(instances)
        garbling = Garbling(schedule, inputs, sender.secret, permutation, own_tweaks)
        tables.extend(piece.reshape(-1).view(np.uint8) for piece in garbling.pieces())
        return garbling.outputs

    terms = garbled(block.of_bins, _inputs(block, zeros, rows))["term"]
    steps = garbled(block.of_columns, {"terms": _by_column(block, terms)})["steps"]
    return np.concatenate([*tables, packed_bits(colours(steps))])


@computation("EvaluateScreen")
def evaluate_block(
    block: Block, labels: Labels, sent: NDArray[np.uint8], permutation: Permutation
) -> NDArray[np.int64]:
    """The steps of the block's columns, int64 (columns,), by what the passive party ``sent``.

    Raises:
        MessageError: it has another length.
    """
    tweaks, parcel = block.tweaks, Unpacked([{"bytes": sent}])
    tweaks.take(block.transfers)

    def evaluated(schedule: Schedule, inputs: Mapping[str, Labels]) -> dict[str, Labels]:
        instances = next(iter(inputs.values())).shape[1]
        evaluation = Evaluation(schedule, inputs, permutation, tweaks.take(instances))
        while (shape := evaluation.awaited) is not None:
            evaluation.take(parcel.take(np.uint64, shape))
        return evaluation.outputs

    own = np.zeros(
        (_shared(block.rows) + block.rows.bit_length(), block.instances, BLOCK_WORDS), np.uint64
    )
    terms = evaluated(block.of_bins, _inputs(block, own, labels))["term"]
    steps = evaluated(block.of_columns, {"terms": _by_column(block, terms)})["steps"]
    bits = colours(steps) ^ take_bits(parcel, steps.shape[:2])
    parcel.end()
    if len(bits) != STEP_BITS:
        raise MessageError("steps of another length")
    found: NDArray[np.int64] = (bits * (1 << np.arange(STEP_BITS))[:, np.newaxis]).sum(axis=0)
    return found


def _inputs(block: Block, own: Labels, rows: NDArray[np.uint64]) -> dict[str, Labels]:
    """Inputs of `bin_schedule`: ``own`` (bits, instances, 2), and the active party's ``rows``."""
    of_ones, instances = share_bits(block.rows), block.instances
    shared = rows[: len(rows) - _KNOWN_BITS].reshape(instances, -1, BLOCK_WORDS)
    other = np.ascontiguousarray(shared.transpose(1, 0, 2))
    known = np.repeat(rows[-_KNOWN_BITS:, np.newaxis], instances, axis=1)
    of_both = of_ones + DIFFERENCE_BITS
    return {
        "own ones": own[:of_ones],
        "own difference": own[of_ones:of_both],
        "own people": own[of_both:],
        "other ones": other[:of_ones],
        "other difference": other[of_ones:],
        "half": known[:HALF_BITS],
        "ratio": known[HALF_BITS:],
    }


def _by_column(block: Block, terms: Labels) -> Labels:
    """Labels (bits, bins, 2) of all columns as inputs of `column_schedule`."""
    found = np.zeros((max(block.bins), TERM_BITS, len(block.bins), BLOCK_WORDS), np.uint64)
    first = 0
    for column, bins in enumerate(block.bins):
        found[:bins, :, column] = terms[:, first : first + bins].transpose(1, 0, 2)
        first += bins
    return found.reshape(-1, len(block.bins), BLOCK_WORDS)


def _bits_of_shares(shares: BinShares, rows: int) -> NDArray[np.bool_]:
    """Bool (bits, bins)."""
    of_ones = _bits(shares.ones, share_bits(rows))
    return np.concatenate([of_ones, _bits(shares.difference, DIFFERENCE_BITS)])


def _bits(numbers: NDArray[np.integer], bits: int) -> NDArray[np.bool_]:
    """Bits of numbers (n,), negative ones in two's complement: bool (bits, n)."""
    wide = numbers.astype(np.int64)
    return (wide >> np.arange(bits)[:, np.newaxis] & 1).astype(np.bool_)
