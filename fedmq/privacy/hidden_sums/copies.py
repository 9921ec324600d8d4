"""What are the copies of a level, of which the active party checks all but one?

Covert security (Aumann and Lindell, 2007), made lean as by Hong, Katz, Kolesnikov, Lu and Wang
(Eurocrypt 2019): all that is random in a copy follows from a seed, and the active party gets the
seeds of all copies but the real one by oblivious transfer, before the passive party garbles.

- The passive party's shares in a copy follow from its seed. Their difference from its true shares
  is locked by a key, and the active party gets either the key or the seed. It adds the difference
  to its own shares: so the true ones enter the real copy alone, and nobody else learns which it is.
- Each copy has transfers of its own, both ways, since its seed discloses the difference of its
  labels. Their first 128 are transfers of the session: in one direction the seed says what is
  chosen, in the other one what is offered.

`talks` has the conversation in all copies at once.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation, computation
from fedmq.errors import MessageError
from fedmq.privacy.engine import Place
from fedmq.privacy.hidden_sums.circuits import GainCircuit, NodeInputs
from fedmq.privacy.hidden_sums.evaluator import LevelEvaluator
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.privacy.hidden_sums.level import (
    LEVEL_TWEAKS,
    BackTransfers,
    HiddenLevel,
    evaluator_bytes,
    garbler_bytes,
)
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.hidden_sums.sides import (
    Made,
    Opened,
    Unpacked,
    extended_bytes,
    extension_arrays,
    take_extension,
)
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS
from fedmq.privacy.oblivious_transfer.correlated import add
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_WORDS,
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
    draw_choices,
    hashed,
)
from fedmq.privacy.plan import Values
from fedmq.privacy.random_stream import SEED_BYTES, Stream, fresh_seed

__all__ = [
    "Copies",
    "CopySecrets",
    "Drawn",
    "choose_copies",
    "copied_bytes",
    "offer_copies",
    "open_copies",
]

_MOST_PARCELS = 1000
_LEAST_BYTES = 10_000
_PADDING = 2000  # bytes that say what a parcel is, and the key

_OF_COPY = 1 + TRANSFERS  # transfers by which the active party gets what a copy begins with

_SEED_WORDS = SEED_BYTES // 8

_BLOCKS = SEED_BYTES // (8 * BLOCK_WORDS)


@dataclass(frozen=True, slots=True)
class Copies:
    """``count`` copies of a level of ``nodes`` nodes with ``candidates`` each, as both halves know.

    ``circuit`` takes nothing of columns. ``start`` and ``back`` are the first of the level's tweaks
    among those of the session, both ways: a block for what begins all copies, and one for each.
    """

    circuit: GainCircuit
    nodes: int
    candidates: int
    place: Place
    count: int
    permutation: Permutation
    permutation_back: Permutation
    start: int
    back: int

    @classmethod
    def of(
        cls,
        level: HiddenLevel,
        count: int,
        ways: tuple[Permutation, Tweaks],
        back: tuple[Permutation, Tweaks],
    ) -> Copies:
        """Copies of a ``level``, with tweaks of the session's, both ways.

        Raises:
            MessageError: its circuits take what the passive party knows of its columns, which no
                seed gives.
        """
        if level.circuit.column_bits:
            raise MessageError("copies of circuits that take constraints on columns")
        return cls(
            level.circuit,
            level.nodes,
            level.candidates,
            level.place,
            count,
            ways[0],
            back[0],
            *(level.take(tweaks, count).start for _, tweaks in (ways, back)),
        )

    @property
    def field(self) -> Field:
        return self.circuit.field

    @property
    def shape(self) -> tuple[int, int, int]:
        """That of shares."""
        return self.nodes, self.candidates, 2

    @property
    def transfers(self) -> int:
        """Transfers in which the active party chooses, before the copies begin."""
        return _OF_COPY * self.count

    @property
    def transfers_back(self) -> int:
        """Transfers in which the passive party chooses."""
        return TRANSFERS * self.count

    def of_copy(self, copy: int, start: int) -> Tweaks:
        """The tweaks of a copy, by the first ones of the level."""
        first = start + (1 + copy) * LEVEL_TWEAKS
        return Tweaks(first, first + LEVEL_TWEAKS)

    def garbler(self, copy: int, seed: bytes, seeds: NDArray[np.uint8]) -> LevelGarbler:
        """The passive party's half of a copy, which its seed and ``seeds`` determine.

        ``seeds`` uint8 (128, 32): what it chose of the active party's.
        """
        of_copy = _OfCopy(seed)
        back = BackTransfers(
            ExtensionReceiver(of_copy.pairs),
            self.permutation_back,
            self.of_copy(copy, self.back),
        )
        return LevelGarbler(
            self.circuit,
            of_copy.shares(self),
            np.zeros((0, self.nodes * self.candidates), np.bool_),
            ExtensionSender(of_copy.difference, seeds),
            self.permutation,
            self.of_copy(copy, self.start),
            back,
            of_copy.masks,
            self.place,
        )


@dataclass(frozen=True, slots=True)
class _OfCopy:
    """All that follows from the ``seed`` of a copy."""

    seed: bytes = field(repr=False)

    @property
    def difference(self) -> NDArray[np.bool_]:
        """That of labels: bool (128,)."""
        return draw_choices(hmac.digest(self.seed, b"difference of labels", "sha256"))

    @property
    def masks(self) -> bytes:
        return hmac.digest(self.seed, b"masks of entries", "sha256")

    @property
    def pairs(self) -> NDArray[np.uint8]:
        """The seeds that this party offers: uint8 (128, 2, 32)."""
        words = Stream(self.seed, "fedmq copy pairs").words(TRANSFERS, 2, _SEED_WORDS)
        return words.view(np.uint8)

    def shares(self, copies: Copies) -> Shares:
        """This party's shares, uniform."""
        return Stream(self.seed, "fedmq copy shares").words(*copies.shape) & copies.field.mask


@dataclass(frozen=True, slots=True)
class CopySecrets:
    """The passive party's: the ``seed`` of a copy, and the ``key`` of its true shares."""

    seed: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes, copies: Copies) -> list[CopySecrets]:
        """Those of all copies, from the session's ``secret``: others for each level."""

        def derived(purpose: str) -> bytes:
            return hmac.digest(secret, f"fedmq copies {purpose}".encode(), "sha256")

        return [
            cls(derived(f"seed {copy} {copies.start}"), derived(f"key {copy} {copies.start}"))
            for copy in range(copies.count)
        ]


def copied_bytes(level: HiddenLevel, count: int) -> tuple[int, int]:
    """The most bytes of ``count`` copies: of the passive party, and of the active party."""
    chosen, back = extended_bytes(_OF_COPY * count), extended_bytes(TRANSFERS * count)
    begun = 2 * SEED_BYTES * _OF_COPY * count + 16 * count * level.nodes * level.candidates + back
    made = garbler_bytes(level)
    # A hash of each copy comes with each parcel, of which most have megabytes.
    hashes = 32 * count * (_MOST_PARCELS + made // _LEAST_BYTES)
    return made + begun + hashes, chosen + count * evaluator_bytes(level) + _PADDING


def _locked(key: bytes, shares: Shares) -> Shares:
    """``shares`` under a key that is used once; and those again."""
    return shares ^ Stream(key, "fedmq copy correction").words(*shares.shape)


def _pads(permutation: Permutation, rows: NDArray[np.uint64], start: int) -> NDArray[np.uint64]:
    """The pads of transfers with these rows: uint64 (n, 4)."""
    numbers = Tweaks(start, start + len(rows)).spend(len(rows))
    return hashed(permutation, rows, numbers, _BLOCKS).reshape(len(rows), _SEED_WORDS)


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What the active party draws: which copy is ``real``, and its secrets (copies, 128), bool."""

    real: int = field(repr=False)
    secrets: NDArray[np.bool_] = field(repr=False)

    @classmethod
    def at_random(cls, copies: Copies) -> Drawn:
        every = [draw_choices(fresh_seed()) for _ in range(copies.count)]
        return cls(secrets.randbelow(copies.count), np.stack(every))

    @property
    def choices(self) -> NDArray[np.bool_]:
        """Of each copy: its seed, unless it is real, and seeds of transfers."""
        opened = np.arange(len(self.secrets)) != self.real
        return np.column_stack([opened, ~self.secrets]).reshape(-1)


@computation("ChooseCopies")
def choose_copies(
    copies: Copies, drawn: Drawn, receiver: ExtensionReceiver
) -> tuple[Made, NDArray[np.uint64]]:
    """The active party's first parcel, and the rows of its choices."""
    count = copies.transfers
    sent, rows = receiver.extend(drawn.choices, Tweaks(copies.start, copies.start + count))
    return list(extension_arrays(sent)), rows


@computation("OfferCopies")
def offer_copies(
    copies: Copies,
    shares: Shares,
    keys: Sequence[CopySecrets],
    sender: ExtensionSender,
    chooser: ExtensionReceiver,
    parcel: Sequence[Values],
) -> tuple[Made, list[LevelGarbler]]:
    """The passive party's answer, by its true ``shares``, and its halves of all copies.

    Raises `MessageError` for a malformed parcel, or choices that are not the same in all columns.
    """
    count, back = copies.transfers, copies.transfers_back
    unpacked = Unpacked(parcel)
    extended = take_extension(unpacked, count)
    unpacked.end()
    rows = sender.extend(extended, count, Tweaks(copies.start, copies.start + count))
    every = [_OfCopy(of.seed) for of in keys]
    offered = np.concatenate(
        [
            part
            for of, of_copy in zip(keys, every, strict=True)
            for part in (_words(of.key, of.seed), of_copy.pairs.view(np.uint64))
        ]
    )
    for value, of_value in enumerate((rows, rows ^ sender.secret)):
        offered[:, value] ^= _pads(copies.permutation, of_value, copies.start + count)
    corrections = [
        _locked(of.key, copies.field.less(shares, of_copy.shares(copies)))
        for of, of_copy in zip(keys, every, strict=True)
    ]
    # In the first 128 transfers of an extension its sender chooses the opposite of its secret.
    choices = np.concatenate([~of_copy.difference for of_copy in every])
    sent, own = chooser.extend(choices, Tweaks(copies.back, copies.back + back))
    chosen = _pads(copies.permutation_back, own, copies.back + back).view(np.uint8)
    garblers = [
        copies.garbler(copy, of.seed, seeds)
        for copy, (of, seeds) in enumerate(
            zip(keys, chosen.reshape(copies.count, TRANSFERS, SEED_BYTES), strict=True)
        )
    ]
    return [offered, *corrections, *extension_arrays(sent)], garblers


def _words(*seeds: bytes) -> NDArray[np.uint64]:
    """What is offered in one transfer: uint64 (1, 2, 4)."""
    return np.frombuffer(b"".join(seeds), np.uint64).reshape(1, len(seeds), _SEED_WORDS)


Begun = tuple[list[LevelEvaluator], list[LevelGarbler | None], bytes]
"""The active party's halves of all copies, the passive party's of those that are opened, and the
key that proves which one is not."""


@computation("OpenCopies")
def open_copies(
    copies: Copies,
    drawn: Drawn,
    rows: NDArray[np.uint64],
    back: ExtensionSender,
    shares: Shares,
    inputs: NodeInputs,
    choosing: Computation,
    parcel: Sequence[Values],
) -> Begun:
    """What the active party begins all copies with, from the passive party's answer.

    ``shares`` are its true ones. In opened copies it has shares of 0. Raises `MessageError` for a
    malformed parcel, or one whose choices are not the same in all columns.
    """
    count, count_back = copies.transfers, copies.transfers_back
    unpacked = Unpacked(parcel)
    offered = unpacked.take(np.uint64, (count, 2, _SEED_WORDS))
    corrections = unpacked.take(np.uint64, (copies.count, *copies.shape))
    extended = take_extension(unpacked, count_back)
    unpacked.end()
    taken = np.where(drawn.choices[:, np.newaxis], offered[:, 1], offered[:, 0])
    taken = taken ^ _pads(copies.permutation, rows, copies.start + count)
    by_copy = taken.view(np.uint8).reshape(copies.count, _OF_COPY, SEED_BYTES)
    own = back.extend(extended, count_back, Tweaks(copies.back, copies.back + count_back))
    pads = [
        _pads(copies.permutation_back, of_value, copies.back + count_back)
        for of_value in (own, own ^ back.secret)
    ]
    pairs = np.stack(pads, axis=1).view(np.uint8).reshape(copies.count, TRANSFERS, 2, SEED_BYTES)
    evaluators: list[LevelEvaluator] = []
    replicas: list[LevelGarbler | None] = []
    for copy, (got, secret) in enumerate(zip(by_copy, drawn.secrets, strict=True)):
        opened = None
        entered, replica = np.zeros_like(shares), None
        if copy == drawn.real:
            correction = _locked(got[0].tobytes(), corrections[copy])
            joined = copies.field.joined
            entered = copies.field.parted(add(joined(shares), joined(correction)))
        else:
            of_copy = _OfCopy(got[0].tobytes())
            difference = of_copy.difference
            seeds = np.where(difference[:, np.newaxis], pairs[copy][:, 0], pairs[copy][:, 1])
            replica = copies.garbler(copy, of_copy.seed, seeds)
            opened = Opened(ExtensionSender(difference, seeds).secret)
        evaluators.append(
            LevelEvaluator(
                copies.circuit,
                entered,
                inputs,
                choosing,
                ExtensionReceiver(pairs[copy]),
                copies.permutation,
                copies.of_copy(copy, copies.start),
                BackTransfers(
                    ExtensionSender(secret, got[1:]),
                    copies.permutation_back,
                    copies.of_copy(copy, copies.back),
                ),
                copies.place,
                opened,
            )
        )
        replicas.append(replica)
    return evaluators, replicas, by_copy[drawn.real][0].tobytes()
