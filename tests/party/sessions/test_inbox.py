"""Deliveries, and the reasons given for those that nobody gets."""

from __future__ import annotations

import pytest

from fedmq.errors import Replayed
from fedmq.messages.codec import encode
from fedmq.messages.envelope import Envelope
from fedmq.party.identity.sealer import Clear
from fedmq.party.operations.dead_letters import Redelivery
from fedmq.party.sessions.runner import Inbox
from tests.party.sealed_parties import envelope


class Forgetless(Clear):
    """Has seen everything before."""

    def open(self, _: bytes) -> Envelope:
        raise Replayed("a message came twice")


@pytest.mark.parametrize(
    ("sealer", "reason"),
    [
        (Forgetless(), "a message came twice"),
        (Clear(), "session s1 does not run here in this attempt"),
    ],
)
async def test_a_dead_letter_that_nobody_gets_was_not_taken(sealer: Clear, reason: str) -> None:
    letter = envelope(session="s1")
    header = letter.header
    inbox = Inbox(header.federation, header.recipient, sealer=sealer)

    again = Redelivery(encode(letter), header.id, header.sender)

    assert await inbox.take(again.delivery()) == reason
