"""How does the active party prove to others that a copy was not what its seed gives?

The passive party signs whatever it says about copies: with each parcel the hashes of its parcels of
all copies so far, and of all that it has heard. Its key is one of the session, which its long-term
key signs. So a proof holds what was said up to the first wrong parcel of an opened copy: whoever
has it replays the copy, and compares a hash.

- The seed of the copy follows from the first two parcels, and from the active party's exponent for
  that copy. Nobody can give another exponent of the same element, and a passive party that offers
  another seed, or none, is bound to what follows from it.
- What the passive party chose in the 128 transfers that the seed says, the active party shows. It
  has committed to both values of each before the copy began, and the passive party checked its own.

A proof holds neither shares of the active party, nor anything of the real copy but hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Annotated, Any, NamedTuple

import msgpack
import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ConfigDict, Field, TypeAdapter

from fedmq.errors import DataError, FedmqError
from fedmq.privacy.engine import MOST_COPIES, Place
from fedmq.privacy.hidden_sums import shares
from fedmq.privacy.hidden_sums.circuits import GainCircuit
from fedmq.privacy.hidden_sums.conversation import Conversation, Parcel, computes
from fedmq.privacy.hidden_sums.copies import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Copies,
    OfferedParcel,
    chosen_commitments,
    committed,
)
from fedmq.privacy.hidden_sums.sides import Unpacked
from fedmq.privacy.hidden_sums.steps import garble_level
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS, ChooseAhead, shape_of
from fedmq.privacy.oblivious_transfer.extension import Permutation
from fedmq.privacy.random_stream import SEED_BYTES

__all__ = ["HASH_BYTES", "CopyProof", "Signer", "Spoken", "hash_of", "is_signed"]

HASH_BYTES = 32


def hash_of(parcel: Parcel) -> bytes:
    """SHA-256 of a parcel."""
    return hashlib.sha256(np.ascontiguousarray(parcel).data).digest()


class Signer(NamedTuple):
    """The passive ``party``, its ``key`` of the attempt, 32 bytes, and its ``signature`` under it.

    The signature is empty if the party signs nothing.
    """

    party: str
    key: bytes
    signature: bytes


class Spoken:
    """What was said about copies, both ways, as hashes that the passive party signs.

    ``begun``: the parcels before the copies, of both parties.
    """

    def __init__(self, copies: Copies, begun: Sequence[Parcel]) -> None:
        level = msgpack.packb(_Level.of(copies).packed())
        self._context = _chained(bytes(HASH_BYTES), [level, *map(hash_of, begun)])
        self._heard = [bytes(HASH_BYTES)]
        self._said = bytes(HASH_BYTES)
        self._parcels = 0

    def hear(self, hashes: Sequence[bytes]) -> None:
        """The passive party hears a parcel about all copies, with these hashes."""
        self._heard.append(_chained(self._heard[-1], hashes))

    def say(self, hashes: Sequence[bytes], heard: int) -> bytes:
        """What it signs as it says the next parcel, once it has ``heard`` so many."""
        self._said = _chained(self._said, hashes)
        self._parcels += 1
        counts = self._parcels.to_bytes(8, "big") + heard.to_bytes(8, "big")
        said = [self._context, self._said, self._heard[heard], counts]
        return b"fedmq copies\0" + b"".join(said)


def _chained(before: bytes, parts: Sequence[bytes]) -> bytes:
    hashes = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(before + hashes).digest()


_MOST_INSTANCES = 1 << 24
_MOST_NODES = 1 << 16  # of the deepest level
_CHOSEN_BYTES = TRANSFERS * SEED_BYTES

_LIST = Field(strict=False)  # msgpack gives lists
_Hash = Annotated[bytes, Field(min_length=HASH_BYTES, max_length=HASH_BYTES)]
_Hashes = Annotated[tuple[_Hash, ...], Field(strict=False, min_length=2, max_length=MOST_COPIES)]
_Count = Annotated[int, Field(ge=1, lt=_MOST_INSTANCES)]
_Number = Annotated[int, Field(ge=0, lt=2**64)]
_Bits = Annotated[int, Field(ge=2, le=64)]
_Copies = Annotated[int, Field(ge=2, le=MOST_COPIES)]
_LevelFields = tuple[
    _Bits, bytes, _Count, _Count, _Count, _Count, _Copies, bytes, bytes, _Number, _Number
]
_Heard = Annotated[tuple[bytes, _Hashes], _LIST]
_FIELDS: TypeAdapter[Any] = TypeAdapter(
    tuple[
        Annotated[_LevelFields, _LIST],
        Annotated[int, Field(ge=0, lt=MOST_COPIES)],
        Annotated[tuple[bytes, bytes, bytes], _LIST],
        Annotated[bytes, Field(min_length=SEED_BYTES, max_length=SEED_BYTES)],
        Annotated[bytes, Field(min_length=_CHOSEN_BYTES, max_length=_CHOSEN_BYTES)],
        Annotated[tuple[_Heard, ...], _LIST],
        Annotated[tuple[_Hashes, ...], Field(strict=False, min_length=1)],
        Annotated[bytes, Field(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)],
        Annotated[bytes, Field(min_length=KEY_BYTES, max_length=KEY_BYTES)],
        Annotated[bytes, Field(max_length=SIGNATURE_BYTES)],
    ],
    config=ConfigDict(strict=True),
)


@dataclass(frozen=True, slots=True)
class _Level:
    """`Copies` as plain data."""

    field_bits: int
    circuit: bytes
    nodes: int
    candidates: int
    number: int
    parties: int
    count: int
    seed: bytes
    seed_back: bytes
    start: int
    back: int

    @classmethod
    def of(cls, copies: Copies) -> _Level:
        return cls(
            copies.field.bits,
            copies.circuit.told().tobytes(),
            copies.nodes,
            copies.candidates,
            copies.place.number,
            copies.place.parties,
            copies.count,
            copies.permutation.public_seed,
            copies.permutation_back.public_seed,
            copies.start,
            copies.back,
        )

    def packed(self) -> tuple[Any, ...]:
        return astuple(self)

    def copies(self) -> Copies:
        """ValueError or MessageError if there are no such copies."""
        if self.nodes > _MOST_NODES or self.nodes * self.candidates > _MOST_INSTANCES:
            raise ValueError("more candidates than any level has")
        told = np.frombuffer(self.circuit, np.uint8)
        return Copies(
            GainCircuit.read(shares.Field(self.field_bits), told),
            self.nodes,
            self.candidates,
            Place(self.number, self.parties),
            self.count,
            Permutation(self.seed),
            Permutation(self.seed_back),
            self.start,
            self.back,
        )


@dataclass(frozen=True, slots=True)
class CopyProof:
    """The proof that a ``copy`` of a ``level`` was not what its seed gives.

    ``begun``: the three parcels before the copies. ``chooser``: the seed of the active party's
    choice of this copy's seed; ``chosen``: what the passive party chose in its first transfers.
    ``heard``: the active party's parts of this copy, with hashes of those of all copies. ``said``:
    the hashes of the passive party's parcels, up to the one that is wrong. ``signature`` is that of
    ``signer``, 32 bytes, the passive party's key of the attempt, and ``endorsement`` that of the
    party itself under this key.
    """

    level: _Level
    copy: int
    begun: tuple[bytes, bytes, bytes]
    chooser: bytes
    chosen: bytes
    heard: tuple[tuple[bytes, tuple[bytes, ...]], ...]
    said: tuple[tuple[bytes, ...], ...]
    signature: bytes
    signer: bytes
    endorsement: bytes

    @classmethod
    def of(cls, copies: Copies, *others: Any) -> CopyProof:
        """The proof about ``copies``; the other fields are in their order."""
        return cls(_Level.of(copies), *others)

    def to_bytes(self) -> bytes:
        return bytes(msgpack.packb(astuple(self)))

    @classmethod
    def from_bytes(cls, data: bytes) -> CopyProof:
        """Parse the result of `to_bytes`. Raises DataError if ``data`` is no proof."""
        try:
            level, *others = _FIELDS.validate_python(msgpack.unpackb(data, use_list=False))
            return cls(_Level(*level), *others)
        except (ValueError, TypeError, msgpack.UnpackException):
            raise DataError("the proof cannot be read") from None

    def check(self) -> None:
        """Replay the copy.

        Raises:
            DataError: the passive party has not signed that, or an honest party says the same.
        """
        try:
            honest = self._replayed()
        except (FedmqError, ValueError) as error:
            raise DataError(f"it proves nothing: {error}") from None
        if honest == self.said[-1][self.copy]:
            raise DataError("it proves nothing: an honest party says the same")

    def _replayed(self) -> bytes:
        """The hash of what an honest party says in place of the last parcel.

        ValueError or `MessageError` for what the party has not said, or is not bound by.
        """
        copies = self.level.copies()
        begun = [np.frombuffer(parcel, np.uint8) for parcel in self.begun]
        parts = [np.frombuffer(part, np.uint8) for part, _ in self.heard]
        self._check_signature(copies, begun, parts)
        unpacked = Unpacked([{"bytes": begun[0]}])
        elements = unpacked.take(np.uint8, shape_of(copies.count))
        seen = np.array([True])
        if not np.array_equal(ChooseAhead(seen, self.chooser).run()[0], elements[self.copy]):
            raise ValueError("the seed that it shows is none that was chosen")
        seed = OfferedParcel.read(copies, [{"bytes": begun[1]}]).begun(
            self.copy, seen, self.chooser
        )
        chosen = np.frombuffer(self.chosen, np.uint8).reshape(TRANSFERS, SEED_BYTES)
        told = chosen_commitments(copies, seed, self.copy, begun[2])
        if not np.array_equal(committed(chosen), told):
            raise ValueError("transfers that it shows are none that the party checked")
        talk = Conversation(garble_level(copies.garbler(self.copy, seed, chosen), 0))
        for part in parts:
            talk.hear(part)
        while computes(talk):
            talk.computed([step.run() for step in talk.computations])
        if len(talk.said) < len(self.said):
            raise ValueError("an honest party has not said so much by then")
        return hash_of(talk.said[len(self.said) - 1].parcel)

    def _check_signature(
        self, copies: Copies, begun: Sequence[Parcel], parts: Sequence[Parcel]
    ) -> None:
        if not all(len(hashes) == copies.count for hashes in self.said):
            raise ValueError("hashes of other copies")
        if self.copy >= copies.count:
            raise ValueError("a copy that there is not")
        spoken = Spoken(copies, begun)
        for part, (_, hashes) in zip(parts, self.heard, strict=True):
            if len(hashes) != copies.count or hash_of(part) != hashes[self.copy]:
                raise ValueError("hashes of other copies")
            spoken.hear(hashes)
        for hashes in self.said:
            statement = spoken.say(hashes, len(parts))
        if not is_signed(self.signer, statement, self.signature):
            raise ValueError("the party has not signed it")


def is_signed(signer: bytes, statement: bytes, signature: bytes) -> bool:
    """Whether the key ``signer``, of 32 bytes, has signed (Ed25519)."""
    try:
        Ed25519PublicKey.from_public_bytes(signer).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True
