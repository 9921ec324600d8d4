"""A training of three parties over a broker whose administrator is the attacker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

import msgpack
import numpy as np

from fedmq.boosting.model import ActiveShare
from fedmq.boosting.params import TrainParams
from fedmq.messages.body import Abort
from fedmq.messages.codec import Parts, encode, frame, read_header, unframe
from fedmq.messages.envelope import Envelope
from fedmq.party.compute import ThreadPool
from fedmq.party.runner import Publish, SessionRunner
from fedmq.party.sealer import Sealer
from fedmq.party.switchboard import Switchboard
from fedmq.privacy.engine import Given
from fedmq.privacy.plain import Plain
from fedmq.protocol.machine import Machine
from fedmq.protocol.mailbox import Address, Mailbox, RetryPolicy
from fedmq.protocol.session import Session
from fedmq.protocol.training_active import ActiveTraining
from fedmq.protocol.training_passive import PassiveTraining
from fedmq.protocol.training_tables import ActiveTable, PassiveTable
from fedmq.transport.link import Lane, Link
from fedmq.transport.memory import MemoryBroker, MemoryLink

__all__ = ["PARTIES", "ROWS", "Attack", "Forger", "Recorder", "Training", "tampered"]

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


def tampered(random: Random, recorded: list[Attack]) -> Attack:
    """The last message that was recorded, in the hands of the attacker."""
    last, other = recorded[-1], random.choice(recorded)
    parts = unframe(last.body)
    header = msgpack.unpackb(parts.header)

    def rewritten(**fields: object) -> bytes:
        return frame(Parts(msgpack.packb(header | fields), parts.body, parts.seal))

    third = next(each for each in PARTIES if each not in (last.sender, last.recipient))
    choices: list[Callable[[], Attack]] = [
        # Said again, now or much later.
        lambda: last,
        lambda: other,
        # Altered: one bit, anywhere.
        lambda: Attack(last.sender, last.recipient, _flipped(random, last.body)),
        # Re-addressed: to another party, from another party, into another session or attempt.
        lambda: Attack(last.sender, third, last.body),
        lambda: Attack(last.sender, third, rewritten(recipient=third)),
        lambda: Attack(third, last.recipient, rewritten(sender=third)),
        lambda: Attack(last.sender, last.recipient, rewritten(session="another")),
        lambda: Attack(last.sender, last.recipient, rewritten(attempt=2)),
        # In another place of the order.
        lambda: Attack(
            last.sender, last.recipient, rewritten(sequence=header["sequence"] + 1, id="x")
        ),
        # Swapped: the header of one, the body of another.
        lambda: Attack(
            last.sender,
            last.recipient,
            frame(Parts(parts.header, unframe(other.body).body[:-1] + b"?", parts.seal)),
        ),
        # Of the attacker's own making, without a seal.
        lambda: Attack(last.sender, last.recipient, _abort(parts.header)),
        lambda: Attack(last.sender, last.recipient, random.randbytes(random.randrange(200))),
    ]
    return random.choice(choices)()


def _flipped(random: Random, body: bytes) -> bytes:
    altered = bytearray(body)
    altered[random.randrange(len(altered))] ^= 1 << random.randrange(8)
    return bytes(altered)


def _abort(header: bytes) -> bytes:
    body = Abort(reason="give up")
    said = read_header(header).model_copy(update={"kind": body.kind})
    return encode(Envelope(said, body))


class Recorder(MemoryBroker):
    """Whoever runs the broker and sees every message; this one delivers faithfully."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[Attack] = []
        for party in PARTIES:
            self.declare(party)

    def carry(self, sender: str, recipient: str, lane: Lane, body: bytes, message_id: str) -> bool:
        self.recorded.append(Attack(sender, recipient, body))
        return super().carry(sender, recipient, lane, body, message_id)

    def links(self) -> dict[str, Link]:
        """Every party's link."""
        return {party: MemoryLink(self, party) for party in PARTIES}


class Forger(Recorder):
    """Withholds some messages, and adds forgeries of others."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.forged = 0
        self._random = Random(seed)

    def carry(self, sender: str, recipient: str, lane: Lane, body: bytes, message_id: str) -> bool:
        if self._random.random() < 0.1:
            return True  # withheld for ever; the sender will say it again
        carried = super().carry(sender, recipient, lane, body, message_id)
        if self._random.random() < 0.5:
            self.forged += 1
            forged = tampered(self._random, self.recorded)
            super(Recorder, self).carry(forged.sender, forged.recipient, lane, forged.body, "x")
        return carried


class Training:
    """One training of all parties in this event loop, with its counters."""

    def __init__(self, sealers: Mapping[str, Sealer], smallest_node: int = 0) -> None:
        self.switchboards: dict[str, Switchboard] = {}
        self._sealers = sealers
        self._smallest_node = smallest_node
        random = np.random.default_rng(7)
        values = random.normal(size=(ROWS, 9)).astype(np.float32)
        label = (values[:, ::2].sum(axis=1) + random.normal(size=ROWS) > 0).astype(np.float32)
        self.values, self.label = values, label

    @property
    def refused(self) -> int:
        """How many messages all parties have refused, for whatever reason."""
        return sum(each.meters.refused.total() for each in self.switchboards.values())

    async def run(
        self, links: Mapping[str, Link], before_close: Callable[[], bool] = lambda: True
    ) -> ActiveShare:
        """Train; links stay open until ``before_close`` is content."""
        pool, federation = ThreadPool(), "demo"
        runners = []
        for party, machine in self._machines().items():
            mailbox = Mailbox(
                Address(federation, "s1", 1, party),
                machine.peers,
                _IMPATIENT,
                np.random.default_rng(3),
            )
            publish = _to(links[party])
            sealer = self._sealers[party]
            runner = SessionRunner(Session(machine, mailbox), publish, pool, sealer=sealer)
            switchboard = Switchboard(federation, party, sealer=sealer)
            switchboard.add(runner)
            self.switchboards[party] = switchboard
            await links[party].open(switchboard.on_delivery)
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
            for link in links.values():
                await link.close()
            await pool.close()
        share: ActiveShare = outcomes[0]
        return share

    def _machines(self) -> dict[str, Machine]:
        engine = Plain()
        table = ActiveTable(
            self.values[:, :3], ("a", "b", "c"), self.label, np.zeros(ROWS, dtype=np.bool_)
        )
        machines: dict[str, Machine] = {
            "bank": ActiveTraining("m", "bank", PARTIES[1:], table, PARAMS, engine)
        }
        for at, party in enumerate(PARTIES[1:], start=1):
            held = PassiveTable(self.values[:, 3 * at : 3 * at + 3], ("d", "e", "f"))
            machines[party] = PassiveTraining(
                party, "bank", Given(held), lambda _: engine, 11, smallest_node=self._smallest_node
            )
        return machines


def _to(link: Link) -> Publish:
    async def publish(recipient: str, body: bytes, *, message_id: str) -> None:
        await link.publish(recipient, "training", body, message_id=message_id)

    return publish
