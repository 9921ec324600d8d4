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

import hashlib
import hmac
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation, computation
from fedmq.errors import Inconsistent, MessageError
from fedmq.privacy.hidden_sums.circuits import NodeInputs
from fedmq.privacy.hidden_sums.copies import (
    Copies,
    CopySecrets,
    Drawn,
    choose_copies,
    offer_copies,
    open_copies,
)
from fedmq.privacy.hidden_sums.shares import Shares
from fedmq.privacy.hidden_sums.sides import Unpacked, pieces_of
from fedmq.privacy.hidden_sums.steps import (
    Learned,
    LevelStep,
    Winners,
    evaluate_level,
    garble_level,
)
from fedmq.privacy.oblivious_transfer.extension import ExtensionReceiver, ExtensionSender
from fedmq.privacy.plan import Compute, Ended, Exchange, Handed, HandOn, Plan, Reply, Values

__all__ = ["HASH_BYTES", "evaluate_copies", "garble_copies", "joined_parcels", "parted_parcel"]

HASH_BYTES = 32

_ALL, _REAL = 0, 1
"""The first byte of what the active party sends: about all copies, or the key of the real one."""

T = TypeVar("T")

Parcel = NDArray[np.uint8]


class _Talk(Generic[T]):
    """A plan of one of both halves: it runs until it waits, or has to compute.

    ``sent`` are its parcels that have not left.
    """

    def __init__(self, plan: Plan[T]) -> None:
        self._plan = plan
        self._heard: deque[Parcel] = deque()
        self.sent: deque[Parcel] = deque()
        self.step: Any
        self.half: Any = None
        """The half of a level, after its last step."""
        self._advance(None)

    @property
    def computations(self) -> Sequence[Any]:
        """What it has to compute before it goes on."""
        return self.step.computations if isinstance(self.step, Compute) else ()

    @property
    def leaves_copies(self) -> bool:
        """Whether it goes on alone: it has ended, or hands on what a chain needs."""
        return isinstance(self.step, Ended | HandOn | Handed)

    def computed(self, results: Sequence[Any]) -> None:
        if _is_step(self):
            [(self.half, _)] = results
        self._advance(results)

    def hear(self, parcel: Parcel) -> None:
        self._heard.append(parcel)
        if isinstance(self.step, Exchange) and not isinstance(self.step, Handed):
            self._advance([{"bytes": self._heard.popleft()}])

    def _advance(self, value: Any) -> None:
        while True:
            try:
                self.step = self._plan.send(value)
            except StopIteration as end:
                self.step = Ended(end.value)
                return
            if isinstance(self.step, Compute | HandOn | Handed):
                return
            if self.step.pieces:
                self.sent.append(_joined(self.step.pieces))
            value = None
            if isinstance(self.step, Exchange):
                if not self._heard:
                    self.step = Exchange()
                    return
                value = [{"bytes": self._heard.popleft()}]

    def alone(self, first: int) -> Plan[T]:
        """Go on without the other copies, in a talk about node ``first``."""
        while self.sent:
            yield Reply(first, pieces_of(self.sent.popleft()))
        while not isinstance(self.step, Ended):
            answer = yield self.step
            try:
                self.step = self._plan.send(answer)
            except StopIteration as end:
                self.step = Ended(end.value)
        value: T = self.step.value
        return value


def _joined(pieces: Sequence[Values]) -> Parcel:
    return Unpacked(pieces).rest()


def _compute(talks: Sequence[_Talk[Any]]) -> Plan[None]:
    """Compute what ``talks`` wait for, side by side."""
    steps = [step for talk in talks for step in talk.computations]
    found = deque((yield Compute(steps)))
    for talk in filter(_computes, talks):
        talk.computed([found.popleft() for _ in talk.computations])


# The passive party


def garble_copies(
    copies: Copies,
    shares: Shares,
    secrets: Sequence[CopySecrets],
    sender: ExtensionSender,
    back: ExtensionReceiver,
    first: int,
) -> Plan[Winners]:
    """Which nodes were won, and by which candidates, as `garble_level`; ``shares`` are true ones.

    ``sender`` and ``back`` are the session's. Raises `MessageError` for malformed parcels, and for
    a key of no copy.
    """
    parcel = yield Exchange()
    offering = offer_copies.bind(copies, shares, secrets, sender, back, parcel)
    [(made, garblers)] = yield Compute([offering])
    yield Reply(first, pieces_of(*made))
    talks = [_Talk(garble_level(garbler, first)) for garbler in garblers]
    while True:
        if any(talk.sent for talk in talks):
            [joint] = yield Compute([joined_parcels.bind(_next(talks))])
            yield Reply(first, pieces_of(joint))
        elif any(map(_computes, talks)):
            yield from _compute(talks)
        else:
            kind, body = _read((yield Exchange()))
            if kind == _REAL:
                break
            size, rest = divmod(len(body), len(talks))
            if kind != _ALL or rest:
                raise MessageError("a parcel that is not about all copies")
            for copy, talk in enumerate(talks):
                talk.hear(body[copy * size : (copy + 1) * size])
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


def _next(talks: Sequence[_Talk[Any]]) -> list[Parcel]:
    """The next parcel of each; raises `MessageError` if one has none."""
    if not all(talk.sent for talk in talks):
        raise MessageError("copies of a level that go different ways")
    return [talk.sent.popleft() for talk in talks]


@computation("JoinCopies")
def joined_parcels(parcels: Sequence[Parcel]) -> Parcel:
    """The XOR of ``parcels``, and a hash of each behind it.

    Raises `MessageError` if they differ in length.
    """
    if len({len(parcel) for parcel in parcels}) > 1:
        raise MessageError("copies of a level that go different ways")
    return np.concatenate([_exclusive_or(parcels), *map(_hash, parcels)])


@computation("PartCopies")
def parted_parcel(joint: Sequence[Values], known: Sequence[Parcel | None]) -> tuple[Parcel, int]:
    """The parcel of the copy that is not ``known``; the first copy with another hash, or -1.

    Raises `MessageError` for a parcel of another length.
    """
    unpacked = Unpacked(joint)
    opened = [parcel for parcel in known if parcel is not None]
    parcel = unpacked.take(np.uint8, opened[0].shape)
    hashes = unpacked.take(np.uint8, (len(known), HASH_BYTES))
    unpacked.end()
    real = _exclusive_or([parcel, *opened])
    made = [real if of is None else of for of in known]
    wrong = [not np.array_equal(_hash(of), told) for of, told in zip(made, hashes, strict=True)]
    return real, wrong.index(True) if any(wrong) else -1


def _exclusive_or(parcels: Sequence[Parcel]) -> Parcel:
    joint = parcels[0].copy()
    for parcel in parcels[1:]:
        joint ^= parcel
    return joint


def _hash(parcel: Parcel) -> Parcel:
    return np.frombuffer(hashlib.sha256(np.ascontiguousarray(parcel).data).digest(), np.uint8)


# The active party


def evaluate_copies(
    copies: Copies,
    receiver: ExtensionReceiver,
    back: ExtensionSender,
    shares: Shares,
    inputs: NodeInputs,
    choosing: Computation,
    peer: str,
    first: int,
) -> Plan[Learned]:
    """What the active party learns, as `evaluate_level`; ``shares`` are its true ones.

    ``receiver`` and ``back`` are the session's.

    Raises:
        Inconsistent: a parcel of ``peer`` is not what the seeds of its copies give.
    """
    yield Reply(first, pieces_of(copies.circuit.told()))
    drawn = Drawn.at_random(copies)
    [(made, rows)] = yield Compute([choose_copies.bind(copies, drawn, receiver)])
    parcel = yield Exchange(pieces_of(*made))
    opening = open_copies.bind(copies, drawn, rows, back, shares, inputs, choosing, parcel)
    [(evaluators, garblers, key)] = yield Compute([opening])
    talks = [_Talk(evaluate_level(evaluator, first)) for evaluator in evaluators]
    for talk in talks:
        talk.sent.popleft()  # which circuits: the passive party knows it
    checks = [None if of is None else _Talk(garble_level(of, first)) for of in garblers]
    real, replicas = talks[drawn.real], [of for of in checks if of is not None]
    parcels = 0
    while not real.leaves_copies:
        if all(talk.sent for talk in talks):
            parts = [talk.sent.popleft() for talk in talks]
            yield Reply(first, pieces_of(np.array([_ALL], np.uint8), *parts))
            for check, part in zip(checks, parts, strict=True):
                if check is not None:
                    check.hear(part)
        elif any(map(_computes, [*talks, *replicas])):
            yield from _compute_copies(real, talks, replicas)
        else:
            known = _expected((yield Exchange()), checks)
            [(own, wrong)] = yield Compute([parted_parcel.bind(*known)])
            if wrong >= 0:
                what = "its circuits are not those that its seeds give"
                place: dict[str, int | str] = {"node": first, "parcel": parcels, "copy": wrong}
                raise Inconsistent(peer, what, place)
            parcels += 1
            for talk, checked in zip(talks, known[1], strict=True):
                talk.hear(own if checked is None else checked)
    yield Reply(first, pieces_of(np.array([_REAL], np.uint8), np.frombuffer(key, np.uint8)))
    return (yield from real.alone(first))


def _expected(
    joint: Sequence[Values], checks: Sequence[_Talk[Any] | None]
) -> tuple[Sequence[Values], list[Parcel | None]]:
    """What came, beside the parcels of the copies that are checked."""
    if not all(of is None or of.sent for of in checks):
        raise MessageError("a parcel that no copy gives")
    return joint, [None if of is None else of.sent.popleft() for of in checks]


def _compute_copies(
    real: _Talk[Learned], talks: Sequence[_Talk[Learned]], checks: Sequence[_Talk[Any]]
) -> Plan[None]:
    """Compute what all wait for; steps of opened copies after those of the ``real`` one."""
    opened = [talk for talk in talks if talk is not real]
    tables = [talk for talk in opened if not _is_step(talk)]
    if any(map(_computes, [real, *tables, *checks])):
        yield from _compute([real, *tables, *checks])
        return
    for talk in opened:
        for step in talk.computations:
            assert real.half is not None
            step.half.goes_with(real.half)
    yield from _compute(opened)


def _computes(talk: Any) -> bool:
    return isinstance(talk.step, Compute)


def _is_step(talk: _Talk[Any]) -> bool:
    return any(isinstance(step, LevelStep) for step in talk.computations)
