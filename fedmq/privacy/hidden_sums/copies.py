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
- Seeds and keys are exchanged by a transfer of one of two for each copy (`base_transfers`). Whoever
  is shown the active party's exponent can tell which seed it got, and that it got it.

`talks` has the conversation in all copies at once.
"""

from __future__ import annotations

import hashlib
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
from fedmq.privacy.oblivious_transfer.base_transfers import (
    ELEMENT_BYTES,
    TRANSFERS,
    ChooseAhead,
    ChosenSeeds,
    MakeOffer,
    OfferedSeeds,
    shape_of,
)
from fedmq.privacy.oblivious_transfer.correlated import add
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_WORDS,
    Extended,
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
    "KEY_BYTES",
    "SIGNATURE_BYTES",
    "Begun",
    "Copies",
    "CopySecrets",
    "Drawn",
    "OfferedParcel",
    "check_committed",
    "choose_copies",
    "chosen_commitments",
    "committed",
    "copied_bytes",
    "offer_copies",
    "open_copies",
]

_MOST_PARCELS = 1000
_LEAST_BYTES = 10_000
_PADDING = 2000  # bytes that say what a parcel is, and the key

_HASH_BYTES = 32

KEY_BYTES, SIGNATURE_BYTES = 32, 64
"""Of Ed25519."""

_COMMITTED = b"fedmq seed of a copy\0"

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
        """Transfers before the copies begin, in either direction."""
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
    """The passive party's: the ``seed`` of a copy, and the ``key`` of its true shares.

    ``offer`` is the seed of the transfer by which the active party gets one of both.
    """

    seed: bytes = field(repr=False)
    key: bytes = field(repr=False)
    offer: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes, copies: Copies) -> list[CopySecrets]:
        """Those of all copies, from the session's ``secret``: others for each level."""

        def derived(purpose: str) -> bytes:
            return hmac.digest(secret, f"fedmq copies {purpose}".encode(), "sha256")

        return [
            cls(*(derived(f"{what} {copy} {copies.start}") for what in ("seed", "key", "offer")))
            for copy in range(copies.count)
        ]


def copied_bytes(level: HiddenLevel, count: int) -> tuple[int, int]:
    """The most bytes of ``count`` copies: of the passive party, and of the active party."""
    transfers, instances = TRANSFERS * count, level.nodes * level.candidates
    begun = extended_bytes(transfers) + 2 * SEED_BYTES * transfers + 16 * count * instances
    made = garbler_bytes(level)
    # Hashes of all copies and a signature come with each parcel, of which most have megabytes.
    signed = (_HASH_BYTES * count + SIGNATURE_BYTES) * (_MOST_PARCELS + made // _LEAST_BYTES)
    chosen = extended_bytes(transfers) + 2 * _HASH_BYTES * transfers + ELEMENT_BYTES * count
    padding = _PADDING * count
    return made + begun + signed + padding, chosen + count * evaluator_bytes(level) + padding


def _locked(key: bytes, shares: Shares) -> Shares:
    """``shares`` under a key that is used once; and those again."""
    return shares ^ Stream(key, "fedmq copy correction").words(*shares.shape)


def _pads(permutation: Permutation, rows: NDArray[np.uint64], start: int) -> NDArray[np.uint64]:
    """The pads of transfers with these rows: uint64 (n, 4)."""
    numbers = Tweaks(start, start + len(rows)).spend(len(rows))
    return hashed(permutation, rows, numbers, _BLOCKS).reshape(len(rows), _SEED_WORDS)


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What the active party draws: which copy is ``real``, and its secrets (copies, 128), bool.

    ``choosers``: the seeds of its choices of keys and seeds. That of an opened copy shows others
    what it got, and nothing of the other copies.
    """

    real: int = field(repr=False)
    secrets: NDArray[np.bool_] = field(repr=False)
    choosers: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def at_random(cls, copies: Copies) -> Drawn:
        every = [draw_choices(fresh_seed()) for _ in range(copies.count)]
        choosers = tuple(fresh_seed() for _ in every)
        return cls(secrets.randbelow(copies.count), np.stack(every), choosers)

    def opens(self, copy: int) -> NDArray[np.bool_]:
        """The choice of a copy's seed, or key: bool (1,)."""
        return np.array([copy != self.real])


# Before the copies: three parcels, which leave one after the other.


@computation("ChooseCopies")
def choose_copies(
    copies: Copies, drawn: Drawn, receiver: ExtensionReceiver
) -> tuple[Made, NDArray[np.uint64]]:
    """The active party's first parcel, and the rows of its choices in the session's transfers."""
    elements = [
        ChooseAhead(drawn.opens(copy), chooser).run() for copy, chooser in enumerate(drawn.choosers)
    ]
    choices = ~drawn.secrets.reshape(-1)
    sent, rows = receiver.extend(choices, Tweaks(copies.start, copies.start + len(choices)))
    return [*elements, *extension_arrays(sent)], rows


Offered = tuple[Made, list[LevelGarbler], NDArray[np.uint8]]
"""The passive party's parcel, its halves of all copies, and the seeds that it chose (n, 128, 32).
"""


@computation("OfferCopies")
def offer_copies(
    copies: Copies,
    shares: Shares,
    keys: Sequence[CopySecrets],
    sender: ExtensionSender,
    chooser: ExtensionReceiver,
    parcel: Sequence[Values],
) -> Offered:
    """The passive party's answer, by its true ``shares``.

    Raises `MessageError` for a malformed parcel, or choices that are not the same in all columns.
    """
    transfers = copies.transfers
    unpacked = Unpacked(parcel)
    elements = unpacked.take(np.uint8, shape_of(copies.count))[:, np.newaxis]
    extended = take_extension(unpacked, transfers)
    unpacked.end()
    every = [_OfCopy(of.seed) for of in keys]
    powers, begun = [], []
    for of, element in zip(keys, elements, strict=True):
        powers.append(MakeOffer(of.offer, ahead=True).run()[1])
        pads = OfferedSeeds(element, of.offer, ahead=True, count=1).run()
        begun.append(pads ^ np.frombuffer(of.key + of.seed, np.uint8).reshape(pads.shape))
    rows = sender.extend(extended, transfers, Tweaks(copies.start, copies.start + transfers))
    offered = np.concatenate([of_copy.pairs.view(np.uint64) for of_copy in every])
    for value, of_value in enumerate((rows, rows ^ sender.secret)):
        offered[:, value] ^= _pads(copies.permutation, of_value, copies.start + transfers)
    corrections = [
        _locked(of.key, copies.field.less(shares, of_copy.shares(copies)))
        for of, of_copy in zip(keys, every, strict=True)
    ]
    # In the first 128 transfers of an extension its sender chooses the opposite of its secret.
    choices = np.concatenate([~of_copy.difference for of_copy in every])
    sent, own = chooser.extend(choices, Tweaks(copies.back, copies.back + transfers))
    chosen = _pads(copies.permutation_back, own, copies.back + transfers).view(np.uint8)
    chosen = chosen.reshape(copies.count, TRANSFERS, SEED_BYTES)
    garblers = [
        copies.garbler(copy, of.seed, seeds)
        for copy, (of, seeds) in enumerate(zip(keys, chosen, strict=True))
    ]
    made = [*powers, *begun, offered, *corrections, *extension_arrays(sent)]
    return made, garblers, chosen


def committed(seeds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """SHA-256 of seeds (..., 32), in their shape."""
    rows = seeds.reshape(-1, SEED_BYTES)
    hashes = b"".join(hashlib.sha256(_COMMITTED + row.tobytes()).digest() for row in rows)
    return np.frombuffer(hashes, np.uint8).reshape(seeds.shape)


@computation("CheckCopies")
def check_committed(
    copies: Copies,
    keys: Sequence[CopySecrets],
    chosen: NDArray[np.uint8],
    parcel: Sequence[Values],
) -> None:
    """Check that the active party commits to the seeds that the passive party chose.

    By this parcel it shows others what the passive party has got. Raises `MessageError`.
    """
    commitments = Unpacked(parcel).rest()
    for copy, (of, seeds) in enumerate(zip(keys, chosen, strict=True)):
        told = chosen_commitments(copies, of.seed, copy, commitments)
        if not np.array_equal(committed(seeds), told):
            raise MessageError("commitments to other seeds than those that were sent")


def chosen_commitments(
    copies: Copies, seed: bytes, copy: int, parcel: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Of a parcel of commitments those to what the passive party got in a copy: (128, 32)."""
    unpacked = Unpacked([{"bytes": parcel}])
    pairs = unpacked.take(np.uint8, (copies.count, TRANSFERS, 2, SEED_BYTES))
    unpacked.end()
    return of_choices(_OfCopy(seed).difference, pairs[copy])


def of_choices(difference: NDArray[np.bool_], pairs: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What the passive party gets of ``pairs`` (128, 2, 32), by the difference of its labels."""
    return np.where(difference[:, np.newaxis], pairs[:, 0], pairs[:, 1])


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """What the active party begins copies with: its halves of all of them.

    ``replicas`` are the passive party's of those that are opened, by their numbers, made of its
    seeds and what it has ``chosen``, (128, 32) each. The active party commits to both values of
    these, ``commitments``. The ``key`` proves which copy is real.
    """

    evaluators: list[LevelEvaluator]
    replicas: dict[int, LevelGarbler]
    chosen: dict[int, NDArray[np.uint8]]
    commitments: NDArray[np.uint8]
    key: bytes = field(repr=False)


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
    transfers = copies.transfers
    answer = OfferedParcel.read(copies, parcel)
    got = [
        answer.begun(copy, drawn.opens(copy), chooser)
        for copy, chooser in enumerate(drawn.choosers)
    ]
    choices = ~drawn.secrets.reshape(-1)
    taken = np.where(choices[:, np.newaxis], answer.offered[:, 1], answer.offered[:, 0])
    taken = taken ^ _pads(copies.permutation, rows, copies.start + transfers)
    by_copy = taken.view(np.uint8).reshape(copies.count, TRANSFERS, SEED_BYTES)
    own = back.extend(answer.extended, transfers, Tweaks(copies.back, copies.back + transfers))
    pads = [
        _pads(copies.permutation_back, of_value, copies.back + transfers)
        for of_value in (own, own ^ back.secret)
    ]
    pairs = np.stack(pads, axis=1).view(np.uint8).reshape(copies.count, TRANSFERS, 2, SEED_BYTES)
    begun = Begun([], {}, {}, committed(pairs), got[drawn.real])
    for copy, (start, secret, seeds) in enumerate(zip(got, drawn.secrets, by_copy, strict=True)):
        opened = None
        if copy == drawn.real:
            joined = copies.field.joined
            correction = _locked(start, answer.corrections[copy])
            entered = copies.field.parted(add(joined(shares), joined(correction)))
        else:
            difference, entered = _OfCopy(start).difference, np.zeros_like(shares)
            chosen = of_choices(difference, pairs[copy])
            begun.replicas[copy], begun.chosen[copy] = copies.garbler(copy, start, chosen), chosen
            opened = Opened(ExtensionSender(difference, chosen).secret)
        begun.evaluators.append(
            LevelEvaluator(
                copies.circuit,
                entered,
                inputs,
                choosing,
                ExtensionReceiver(pairs[copy]),
                copies.permutation,
                copies.of_copy(copy, copies.start),
                BackTransfers(
                    ExtensionSender(secret, seeds),
                    copies.permutation_back,
                    copies.of_copy(copy, copies.back),
                ),
                copies.place,
                opened,
            )
        )
    return begun


@dataclass(frozen=True, slots=True, eq=False)
class OfferedParcel:
    """The passive party's answer, which begins copies."""

    powers: NDArray[np.uint8]
    locked: NDArray[np.uint8]
    offered: NDArray[np.uint64]
    corrections: Shares
    extended: Extended

    @classmethod
    def read(cls, copies: Copies, parcel: Sequence[Values]) -> OfferedParcel:
        """Read a parcel of `offer_copies`. Raises `MessageError` if it is malformed."""
        unpacked = Unpacked(parcel)
        found = cls(
            unpacked.take(np.uint8, shape_of(copies.count)),
            unpacked.take(np.uint8, (copies.count, 2, SEED_BYTES)),
            unpacked.take(np.uint64, (copies.transfers, 2, _SEED_WORDS)),
            unpacked.take(np.uint64, (copies.count, *copies.shape)),
            take_extension(unpacked, copies.transfers),
        )
        unpacked.end()
        return found

    def begun(self, copy: int, choice: NDArray[np.bool_], chooser: bytes) -> bytes:
        """The seed or key of a copy, by what the active party chose of both."""
        power = self.powers[copy]
        element = ChooseAhead(choice, chooser).run()
        [pad] = ChosenSeeds(np.stack([power, power]), element, choice, chooser).run()
        seed: bytes = (self.locked[copy, int(choice[0])] ^ pad).tobytes()
        return seed
