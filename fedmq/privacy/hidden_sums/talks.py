"""How do two parties talk about all copies of a level at once, and how is a lie found?

Both halves of every copy follow their plan in `steps`. The active party joins what it says about
all copies in one parcel. The passive party sends the XOR of its parcels, and a hash of each: the
active party makes the parcels of opened copies itself, and gets that of the real one from the XOR.
So tables travel once, however many copies there are.

A parcel that is none of those which a copy's seed gives ends the session: before the active party
answers it, so that the lie tells nothing. Every step of an opened copy waits for the same step of
the real one, and says the bits that the real one said; of everything else the passive party sees
random numbers. So it cannot tell which copy is real, before the key proves it: behind the last
parcel that it makes in all copies. Then both go on with the real one alone: with claims, and the
links of a chain.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedmq.computation import Computation, computation
from fedmq.errors import Inconsistent, MessageError
from fedmq.privacy.hidden_sums.circuits import NodeInputs
from fedmq.privacy.hidden_sums.conversation import (
    Conversation,
    Parcel,
    Said,
    compute,
    computes,
    joined,
)
from fedmq.privacy.hidden_sums.copies import (
    SIGNATURE_BYTES,
    Begun,
    Copies,
    CopySecrets,
    Drawn,
    check_committed,
    choose_copies,
    offer_copies,
    open_copies,
)
from fedmq.privacy.hidden_sums.proof import (
    HASH_BYTES,
    CopyProof,
    Signer,
    Spoken,
    hash_of,
    is_signed,
)
from fedmq.privacy.hidden_sums.shares import Shares
from fedmq.privacy.hidden_sums.sides import Unpacked, pieces_of
from fedmq.privacy.hidden_sums.steps import Learned, Winners, evaluate_level, garble_level
from fedmq.privacy.oblivious_transfer.extension import ExtensionReceiver, ExtensionSender
from fedmq.privacy.plan import Compute, Exchange, Plan, Reply, Values

__all__ = ["evaluate_copies", "garble_copies", "joined_parcels", "parted_parcel"]

_ALL, _REAL = 0, 1
"""The first byte of what the active party sends: about all copies, or the key of the real one."""

# The passive party


def garble_copies(
    copies: Copies,
    shares: Shares,
    secrets: Sequence[CopySecrets],
    sender: ExtensionSender,
    back: ExtensionReceiver,
    signer: Ed25519PrivateKey,
    first: int,
) -> Plan[Winners]:
    """The winner of each node, as `garble_level`; ``shares`` are true ones.

    ``sender``, ``back`` and ``signer`` are the session's. Raises `MessageError` for malformed
    parcels, and for a key of no copy.
    """
    chosen = yield Exchange()
    offering = offer_copies.bind(copies, shares, secrets, sender, back, chosen)
    [(made, garblers, seeds)] = yield Compute([offering])
    offered = pieces_of(*made)
    commitments = yield Exchange(offered)
    yield Compute([check_committed.bind(copies, secrets, seeds, commitments)])
    spoken = Spoken(copies, [joined(parcel) for parcel in (chosen, offered, commitments)])
    talks = [Conversation(garble_level(garbler, first)) for garbler in garblers]
    while True:
        if any(talk.said for talk in talks):
            said = _next(talks)
            [joint] = yield Compute([joined_parcels.bind([parcel for parcel, _ in said])])
            statement = spoken.say(_hashes(joint[-HASH_BYTES * copies.count :]), said[0].heard)
            signature = np.frombuffer(signer.sign(statement), np.uint8)
            yield Reply(first, pieces_of(joint, signature))
        elif any(map(computes, talks)):
            yield from compute(talks)
        else:
            kind, body = _read((yield Exchange()))
            if kind == _REAL:
                break
            size, rest = divmod(len(body), copies.count)
            if kind != _ALL or rest:
                raise MessageError("a parcel that is not about all copies")
            parts = [body[copy * size : (copy + 1) * size] for copy in range(copies.count)]
            spoken.hear([hash_of(part) for part in parts])
            for talk, part in zip(talks, parts, strict=True):
                talk.hear(part)
    proof = body.tobytes()
    proved = [hmac.compare_digest(of.key, proof) for of in secrets]
    if not any(proved):
        raise MessageError("no key of a copy, so none of them is real")
    return (yield from talks[proved.index(True)].alone(first))


def _read(parcel: Sequence[Values]) -> tuple[int, Parcel]:
    """The first byte of a parcel, and the others."""
    unpacked = Unpacked(parcel)
    [kind] = unpacked.take(np.uint8, (1,))
    return int(kind), unpacked.rest()


def _next(talks: Sequence[Conversation[Winners]]) -> list[Said]:
    """The next parcel of each; raises `MessageError` if one has none."""
    if not all(talk.said for talk in talks):
        raise MessageError("copies of a level that go different ways")
    return [talk.said.popleft() for talk in talks]


@computation("JoinCopies")
def joined_parcels(parcels: Sequence[Parcel]) -> Parcel:
    """The XOR of ``parcels``, and a hash of each behind it.

    Raises `MessageError` if they differ in length.
    """
    if len({len(parcel) for parcel in parcels}) > 1:
        raise MessageError("copies of a level that go different ways")
    hashes = [np.frombuffer(hash_of(parcel), np.uint8) for parcel in parcels]
    return np.concatenate([_exclusive_or(parcels), *hashes])


Parted = tuple[Parcel, Parcel, bytes, list[int]]
"""The parcel of the copy that is not known; hashes of all, a signature, and copies of others."""


@computation("PartCopies")
def parted_parcel(joint: Sequence[Values], known: Mapping[int, Parcel]) -> Parted:
    """What `joined_parcels` joined, of which all parcels but one are ``known``, by their copies.

    Raises `MessageError` for a parcel of another length.
    """
    unpacked = Unpacked(joint)
    opened = list(known.values())
    parcel = unpacked.take(np.uint8, opened[0].shape)
    hashes = unpacked.take(np.uint8, ((1 + len(known)) * HASH_BYTES,))
    signature = unpacked.take(np.uint8, (SIGNATURE_BYTES,)).tobytes()
    unpacked.end()
    real = _exclusive_or([parcel, *opened])
    told = enumerate(_hashes(hashes))
    wrong = [copy for copy, its in told if hash_of(known.get(copy, real)) != its]
    return real, hashes, signature, wrong


def _exclusive_or(parcels: Sequence[Parcel]) -> Parcel:
    joint = parcels[0].copy()
    for parcel in parcels[1:]:
        joint ^= parcel
    return joint


def _hashes(joined: Parcel) -> list[bytes]:
    return [row.tobytes() for row in joined.reshape(-1, HASH_BYTES)]


# The active party


def evaluate_copies(
    copies: Copies,
    receiver: ExtensionReceiver,
    back: ExtensionSender,
    shares: Shares,
    inputs: NodeInputs,
    choosing: Computation,
    signer: Signer,
    first: int,
) -> Plan[Learned]:
    """What the active party learns, as `evaluate_level`; ``shares`` are its true ones.

    ``receiver`` and ``back`` are the session's; ``signer`` is the passive party.

    Raises:
        Inconsistent: a parcel of the passive party is not what the seeds of its copies give.
    """
    yield Reply(first, pieces_of(copies.circuit.told()))
    drawn = Drawn.at_random(copies)
    [(made, rows)] = yield Compute([choose_copies.bind(copies, drawn, receiver)])
    chosen = pieces_of(*made)
    offered = yield Exchange(chosen)
    opening = open_copies.bind(copies, drawn, rows, back, shares, inputs, choosing, offered)
    [begun] = yield Compute([opening])
    commitments = pieces_of(begun.commitments)
    yield Reply(first, commitments)
    parcels = [joined(parcel) for parcel in (chosen, offered, commitments)]
    witness = _Witness(copies, drawn, begun, parcels, signer, first)
    talks = [Conversation(evaluate_level(evaluator, first)) for evaluator in begun.evaluators]
    for talk in talks:
        talk.said.popleft()  # which circuits: the passive party knows it
    checks = {copy: Conversation(garble_level(of, first)) for copy, of in begun.replicas.items()}
    real, replicas = talks[drawn.real], list(checks.values())
    while not real.leaves_copies:
        if all(talk.said for talk in talks):
            parts = [talk.said.popleft().parcel for talk in talks]
            yield Reply(first, pieces_of(np.array([_ALL], np.uint8), *parts))
            witness.tell(parts)
            for copy, check in checks.items():
                check.hear(parts[copy])
        elif any(map(computes, [*talks, *replicas])):
            yield from _compute_copies(real, talks, replicas)
        else:
            joint = yield Exchange()
            if not all(check.said for check in replicas):
                raise MessageError("a parcel that no copy gives")
            heard = replicas[0].said[0].heard
            known = {copy: check.said.popleft().parcel for copy, check in checks.items()}
            [(own, hashes, signature, wrong)] = yield Compute([parted_parcel.bind(joint, known)])
            witness.check(_hashes(hashes), heard, signature, wrong)
            for copy, talk in enumerate(talks):
                talk.hear(known.get(copy, own))
    yield Reply(first, pieces_of(np.array([_REAL], np.uint8), np.frombuffer(begun.key, np.uint8)))
    return (yield from real.alone(first))


def _compute_copies(
    real: Conversation[Learned],
    talks: Sequence[Conversation[Learned]],
    checks: Sequence[Conversation[Winners]],
) -> Plan[None]:
    """Compute what all wait for; steps of opened copies after those of the ``real`` one."""
    opened = [talk for talk in talks if talk is not real]
    tables = [talk for talk in opened if not talk.takes_step]
    at_once: list[Conversation[Any]] = [real, *tables, *checks]
    if any(map(computes, at_once)):
        yield from compute(at_once)
        return
    for talk in opened:
        for step in talk.computations:
            step.half.goes_with(real.half)
    yield from compute(opened)


class _Witness:
    """Keeps what was said about copies, until a parcel of an opened one is wrong.

    ``begun`` are the copies, and ``parcels`` those before them; the ``signer`` is named.
    """

    def __init__(
        self,
        copies: Copies,
        drawn: Drawn,
        begun: Begun,
        parcels: Sequence[Parcel],
        signer: Signer,
        first: int,
    ) -> None:
        self._copies = copies
        self._drawn = drawn
        self._chosen = begun.chosen
        self._parcels = parcels
        self._signer = signer
        self._first = first
        self._spoken = Spoken(copies, parcels)
        self._told: list[tuple[Sequence[Parcel], list[bytes]]] = []
        self._said: list[list[bytes]] = []

    def tell(self, parts: Sequence[Parcel]) -> None:
        """The active party tells these ``parts`` of a parcel, one of each copy."""
        hashes = [hash_of(part) for part in parts]
        self._spoken.hear(hashes)
        self._told.append((parts, hashes))

    def check(
        self, hashes: list[bytes], heard: int, signature: bytes, wrong: Sequence[int]
    ) -> None:
        """Check a parcel with these ``hashes``, of which those of copies are ``wrong``.

        Raises:
            Inconsistent: one is wrong; with a proof, if it is that of an opened copy.
            MessageError: the passive party has not signed it.
        """
        self._said.append(hashes)
        if not is_signed(self._signer.key, self._spoken.say(hashes, heard), signature):
            raise MessageError("what is said about copies is not signed")
        if not wrong:
            return
        opened = [copy for copy in wrong if copy != self._drawn.real]
        proof = self._proof(opened[0], heard, signature) if opened else b""
        place: dict[str, int | str] = {
            "node": self._first,
            "parcel": len(self._said) - 1,
            "copy": wrong[0],
        }
        what = "its circuits are not those that its seeds give"
        raise Inconsistent(self._signer.party, what, place, proof)

    def _proof(self, copy: int, heard: int, signature: bytes) -> bytes:
        return CopyProof.of(
            self._copies,
            copy,
            [parcel.tobytes() for parcel in self._parcels],
            self._drawn.choosers[copy],
            self._chosen[copy].tobytes(),
            [(parts[copy].tobytes(), hashes) for parts, hashes in self._told[:heard]],
            self._said,
            signature,
            self._signer.key,
            self._signer.signature,
        ).to_bytes()
