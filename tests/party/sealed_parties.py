"""Sealers of parties that have pinned each other's keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from fedmq.messages.body import Probe
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import EndToEnd
from fedmq.transport.sealing.keys import PrivateKeys

__all__ = ["envelope", "sealers"]


def sealers(parties: Iterable[str], clock: Callable[[], float] = time.time) -> dict[str, EndToEnd]:
    """One sealer per party, with fresh keys."""
    rings = {party: KeyRing(party, PrivateKeys.generate()) for party in parties}
    pinned = {party: (ring.current.public,) for party, ring in rings.items()}
    return {party: EndToEnd(ring, pinned, clock) for party, ring in rings.items()}


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
