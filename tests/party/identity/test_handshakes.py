"""Two parties agree on keys over a broker that drops, repeats and reorders, while both restart."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fedmq.errors import LinkError, MessageError
from fedmq.messages.envelope import Envelope
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import EndToEnd
from fedmq.transport.sealing.keys import PrivateKeys
from tests.how_often import examples
from tests.party.sealed_parties import envelope, shake_hands

PARTIES = ("bank", "telco")
RINGS = {party: KeyRing(party, PrivateKeys.generate()) for party in PARTIES}
PINNED = {party: (ring.current.public,) for party, ring in RINGS.items()}


class BadBroker(RuleBasedStateMachine):
    """Whatever the broker does, each message is taken once at most, and only as it was sent."""

    party = st.sampled_from(PARTIES)

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.carried: dict[str, list[bytes]] = {party: [] for party in PARTIES}
        self.sealers: dict[str, EndToEnd] = {}
        self.sent: set[str] = set()
        self.taken: list[Envelope] = []
        self.number = 0
        for party in PARTIES:
            self.restart(party)

    @rule(party=party)
    def restart(self, party: str) -> None:
        sealer = EndToEnd(RINGS[party], PINNED, lambda: self.now)
        sealer.connect_by(lambda recipient, data: self.carried[recipient].append(data))
        self.sealers[party] = sealer

    @rule(party=party)
    def offer(self, party: str) -> None:
        peer = other(party)
        self.carried[peer].append(self.sealers[party].offer("demo", peer))

    @rule(party=party)
    def send(self, party: str) -> None:
        self.number += 1
        message = envelope(party, other(party), sequence=self.number)
        try:
            data = self.sealers[party].seal(message)
        except LinkError:
            return
        self.sent.add(message.header.id)
        self.carried[other(party)].append(data)

    @rule(party=party, data=st.data(), again=st.booleans())
    def deliver(self, party: str, data: st.DataObject, again: bool) -> None:
        queue = self.carried[party]
        if not queue:
            return
        at = data.draw(st.integers(0, len(queue) - 1))
        body = queue[at] if again else queue.pop(at)
        try:
            message = self.sealers[party].open(body)
        except MessageError:
            return
        if message is not None:
            self.taken.append(message)

    @rule(party=party, data=st.data())
    def drop(self, party: str, data: st.DataObject) -> None:
        queue = self.carried[party]
        if queue:
            queue.pop(data.draw(st.integers(0, len(queue) - 1)))

    @rule(seconds=st.sampled_from([0.1, 2.0, 90_000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_is_taken_twice_or_was_never_sent(self) -> None:
        ids = [message.header.id for message in self.taken]
        assert len(ids) == len(set(ids))
        assert set(ids) <= self.sent

    def teardown(self) -> None:
        """One undisturbed handshake, by either side, heals all that happened."""
        bank, telco = self.sealers.values() if self.number % 2 else reversed(self.sealers.values())
        shake_hands(bank, telco)
        for one, two in ((bank, telco), (telco, bank)):
            message = envelope(one.party, two.party, session="after")
            assert two.open(one.seal(message)) == message


def other(party: str) -> str:
    return PARTIES[1 - PARTIES.index(party)]


TestBadBroker = BadBroker.TestCase
TestBadBroker.settings = settings(examples(60), stateful_step_count=40)
