"""Sealers of parties that have pinned each other's keys."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping

from fedmq.messages.body import Probe
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import EndToEnd
from fedmq.transport.sealing.keys import PrivateKeys

__all__ = ["connect", "envelope", "sealers", "shake_hands"]


def sealers(
    parties: Iterable[str], clock: Callable[[], float] = time.monotonic
) -> dict[str, EndToEnd]:
    """One sealer per party, with fresh keys; no two have shaken hands."""
    rings = {party: KeyRing(party, PrivateKeys.generate()) for party in parties}
    pinned = {party: (ring.current.public,) for party, ring in rings.items()}
    return {party: EndToEnd(ring, pinned, clock) for party, ring in rings.items()}


def connect(parties: Mapping[str, EndToEnd]) -> dict[str, EndToEnd]:
    """The same sealers, each two of which have shaken hands."""
    for one, other in itertools.combinations(parties.values(), 2):
        shake_hands(one, other)
    return dict(parties)


def shake_hands(one: EndToEnd, other: EndToEnd) -> None:
    """Let ``one`` offer a handshake to ``other``, and deliver whatever follows from it.

    Raises:
        Untrusted: one of them refuses it.
    """
    sent: list[tuple[EndToEnd, bytes]] = []
    one.connect_by(lambda _, data: sent.append((other, data)))
    other.connect_by(lambda _, data: sent.append((one, data)))
    sent.append((other, one.offer("demo", other.party)))
    while sent:
        recipient, data = sent.pop(0)
        assert recipient.open(data) is None


def envelope(
    sender: str = "bank", recipient: str = "telco", session: str = "s1", sequence: int = 1
) -> Envelope:
    """A probe of one party to another."""
    header = Header(
        id=f"{session}/1/{sender}/{recipient}/{sequence}",
        federation="demo",
        session=session,
        attempt=1,
        sender=sender,
        recipient=recipient,
        sequence=sequence,
        acknowledged=0,
        kind=Probe.kind,
    )
    return Envelope(header, Probe())
