"""Sessions of three parties over a broker whose administrator is the attacker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgpack
import numpy as np

from fedmq.boosting.params import TrainParams
from fedmq.computation import Given
from fedmq.messages.body import Abort
from fedmq.messages.codec import Parts, encode, frame, read_header, unframe
from fedmq.messages.envelope import Envelope
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.identity.sealer import HandshakeSender, Sealer
from fedmq.party.sessions.runner import Inbox, Publish, SessionRunner
from fedmq.privacy.engines.plain import Plain
from fedmq.protocol.machine import Machine
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.protocol.session import Address, Mailbox, Session
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, PassiveTable
from fedmq.transport.link import Lane, Link
from fedmq.transport.memory import MemoryBroker, MemoryLink

__all__ = [
    "PARTIES",
    "ROWS",
    "TAMPERS",
    "Attack",
    "Forger",
    "Recorder",
    "Sitting",
    "Tamper",
    "Training",
    "tampered",
]

PARTIES = ("bank", "telco", "retail")
PARAMS = TrainParams(num_boost_round=3, max_depth=3, max_bin=16)
ROWS = 400
_IMPATIENT = RetryPolicy(first=0.05, ceiling=0.2, resends=200, acknowledge=0.01)


@dataclass(frozen=True)
class Attack:
    """A message of the attacker's own making, under any sender's name."""

    sender: str
    recipient: str
    body: bytes


Tamper = Callable[[Random, list[Attack]], Attack]


def replayed(random: Random, recorded: list[Attack]) -> Attack:
    """Said again, now or much later."""
    return random.choice([recorded[-1], random.choice(recorded)])


def altered(random: Random, recorded: list[Attack]) -> Attack:
    """One bit is another, anywhere."""
    last = recorded[-1]
    return Attack(last.sender, last.recipient, _flipped(random, last.body))


def readdressed(random: Random, recorded: list[Attack]) -> Attack:
    """To or from another party, into another session or attempt, or to another place in order."""
    last = recorded[-1]
    third = next(party for party in PARTIES if party not in (last.sender, last.recipient))
    sequence = read_header(unframe(last.body).header).sequence
    return random.choice(
        [
            Attack(last.sender, third, last.body),
            Attack(last.sender, third, _rewritten(last, recipient=third)),
            Attack(third, last.recipient, _rewritten(last, sender=third)),
            Attack(last.sender, last.recipient, _rewritten(last, session="another")),
            Attack(last.sender, last.recipient, _rewritten(last, attempt=2)),
            Attack(last.sender, last.recipient, _rewritten(last, sequence=sequence + 1, id="x")),
        ]
    )


def swapped(random: Random, recorded: list[Attack]) -> Attack:
    """The header of one message over the body of another, with the seal of either."""
    last, other = recorded[-1], random.choice(recorded)
    own, foreign = unframe(last.body), unframe(other.body)
    seal = random.choice([own.seal, foreign.seal])
    return Attack(last.sender, last.recipient, frame(Parts(own.header, foreign.body, seal)))


def forged(random: Random, recorded: list[Attack]) -> Attack:
    """Of the attacker's own making, without a seal."""
    last = recorded[-1]
    made = random.choice([_abort(last), random.randbytes(random.randrange(200))])
    return Attack(last.sender, last.recipient, made)


TAMPERS: tuple[Tamper, ...] = (replayed, altered, readdressed, swapped, forged)


def tampered(random: Random, recorded: list[Attack]) -> Attack:
    """The last message that was recorded, in the hands of an attacker who can do all of these."""
    return random.choice(TAMPERS)(random, recorded)


def _rewritten(attack: Attack, **fields: object) -> bytes:
    parts = unframe(attack.body)
    header = msgpack.packb(msgpack.unpackb(parts.header) | fields)
    return frame(Parts(header, parts.body, parts.seal))


def _flipped(random: Random, body: bytes) -> bytes:
    altered = bytearray(body)
    altered[random.randrange(len(altered))] ^= 1 << random.randrange(8)
    return bytes(altered)


def _abort(attack: Attack) -> bytes:
    body = Abort(reason="give up")
    header = read_header(unframe(attack.body).header)
    altered = header.model_copy(update={"kind": body.kind})
    return encode(Envelope(altered, body))


class Recorder(MemoryBroker):
    """Whoever runs the broker and sees every message; this one delivers faithfully."""

    def __init__(self, parties: Iterable[str] = PARTIES) -> None:
        super().__init__()
        self.recorded: list[Attack] = []
        self._parties = tuple(parties)
        for party in self._parties:
            self.declare(party)

    def carry(self, sender: str, recipient: str, lane: Lane, body: bytes, message_id: str) -> bool:
        self.recorded.append(Attack(sender, recipient, body))
        return super().carry(sender, recipient, lane, body, message_id)

    def links(self) -> dict[str, Link]:
        """Every party's link."""
        return {party: MemoryLink(self, party) for party in self._parties}


class Forger(Recorder):
    """Withholds some messages, and adds forgeries of others."""

    def __init__(self, seed: int, tamper: Tamper = tampered) -> None:
        super().__init__()
        self.forged = 0
        self._random = Random(seed)
        self._tamper = tamper

    def carry(self, sender: str, recipient: str, lane: Lane, body: bytes, message_id: str) -> bool:
        if self._random.random() < 0.1:
            return True  # withheld for ever; the sender will send it again
        carried = super().carry(sender, recipient, lane, body, message_id)
        if self._random.random() < 0.5:
            self.forged += 1
            attack = self._tamper(self._random, self.recorded)
            super(Recorder, self).carry(attack.sender, attack.recipient, lane, attack.body, "x")
        return carried


class Sitting:
    """One session of all parties in this event loop, with its counters."""

    def __init__(self, sealers: Mapping[str, Sealer], machines: Mapping[str, Machine]) -> None:
        self.inboxes: dict[str, Inbox] = {}
        self._sealers = sealers
        self._machines = machines

    @property
    def refused(self) -> int:
        """How many messages all parties have refused, for whatever reason."""
        return sum(inbox.counters.refused.total() for inbox in self.inboxes.values())

    async def run(
        self, links: Mapping[str, Link], before_close: Callable[[], bool] = lambda: True
    ) -> Any:
        """The active party's result; links stay open until ``before_close`` is content."""
        pool, federation = ThreadPool(), "demo"
        runners = []
        for party, machine in self._machines.items():
            self._sealers[party].connect_by(HandshakeSender(links[party]).send)
            mailbox = Mailbox(
                Address(federation, "s1", 1, party),
                machine.peers,
                _IMPATIENT,
                np.random.default_rng(3),
            )
            publish = _to(links[party])
            sealer = self._sealers[party]
            runner = SessionRunner(
                Session(machine, mailbox), publish=publish, pool=pool, sealer=sealer
            )
            inbox = Inbox(federation, party, sealer=sealer)
            inbox.add(runner)
            self.inboxes[party] = inbox
            await links[party].open(inbox.on_delivery)
            runners.append(runner)
        try:
            async with asyncio.timeout(60):
                runners[0].start()
                outcomes = await asyncio.gather(*(runner.outcome for runner in runners))
                while not before_close():  # noqa: ASYNC110 (counters announce nothing)
                    await asyncio.sleep(0.01)
        finally:
            for runner in runners:
                runner.stop()
            for party, link in links.items():
                await self._sealers[party].close()
                await link.close()
            await pool.close()
        return outcomes[0]


class Training(Sitting):
    """A training of made-up people."""

    def __init__(self, sealers: Mapping[str, Sealer], smallest_node: int = 0) -> None:
        self._smallest_node = smallest_node
        random = np.random.default_rng(7)
        values = random.normal(size=(ROWS, 9)).astype(np.float32)
        label = (values[:, ::2].sum(axis=1) + random.normal(size=ROWS) > 0).astype(np.float32)
        self.values, self.label = values, label
        super().__init__(sealers, self._trained())

    def _trained(self) -> dict[str, Machine]:
        engine = Plain()
        table = ActiveTable(
            self.values[:, :3],
            ("a", "b", "c"),
            self.label,
            np.zeros(ROWS, dtype=np.bool_),
            digest="stays-at-home",
        )
        machines: dict[str, Machine] = {
            "bank": ActiveTraining("m", "bank", PARTIES[1:], table, PARAMS, engine)
        }
        for at, party in enumerate(PARTIES[1:], start=1):
            values = self.values[:, 3 * at : 3 * at + 3]
            held = PassiveTable(values, ("d", "e", "f"), digest="stays-at-home")
            machines[party] = PassiveTraining(
                party, "bank", Given(held), lambda _: engine, 11, smallest_node=self._smallest_node
            )
        return machines


def _to(link: Link) -> Publish:
    async def publish(
        recipient: str, body: bytes, *, message_id: str, in_bulk: bool = False
    ) -> None:
        await link.publish(recipient, "training", body, message_id=message_id)

    return publish
