"""A party's clock is set wrong for a while, by mistake or by whoever serves it the time."""

from __future__ import annotations

import time

import pytest

from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import EndToEnd
from fedmq.transport.sealing.keys import PrivateKeys
from tests.party.sealed_parties import envelope, shake_hands

RINGS = {party: KeyRing(party, PrivateKeys.generate()) for party in ("bank", "telco")}
PINNED = {party: (ring.current.public,) for party, ring in RINGS.items()}


@pytest.mark.parametrize("hours", [2, -2, 24 * 365, -24 * 365])
def test_what_was_begun_under_a_wrong_clock_goes_on_when_it_is_corrected(
    hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = time.time
    sealers = {}
    for party, wrong in (("bank", hours), ("telco", 0)):
        monkeypatch.setattr(time, "time", lambda wrong=wrong: true() + 3600 * wrong)
        sealers[party] = EndToEnd(RINGS[party], PINNED)
    bank, telco = sealers.values()
    shake_hands(bank, telco)
    for now in (hours, 0, -hours):
        monkeypatch.setattr(time, "time", lambda now=now: true() + 3600 * now)
        for sequence in (0, 1):  # a question for a score, and a message of a session
            sent = envelope(sequence=sequence)
            assert telco.open(bank.seal(sent)) == sent
