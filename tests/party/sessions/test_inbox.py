"""Deliveries, and the reasons given for those that nobody gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedmq.errors import Replayed
from fedmq.messages.codec import encode
from fedmq.messages.envelope import Envelope
from fedmq.party.identity.sealer import Clear
from fedmq.party.operations.dead_letters import Redelivery
from fedmq.party.operations.health import clock_warnings
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


async def test_a_message_that_comes_before_it_was_sent_names_a_wrong_clock_until_one_fits() -> None:
    letter = envelope(session="s1")
    header = letter.header
    inbox = Inbox(header.federation, header.recipient)
    counters = inbox.counters
    counters.clock = lambda: 1_000_000.0
    delivery = Redelivery(encode(letter), header.id, header.sender).delivery()

    for sent, warned in [(1_000_001.0, False), (1_172_800.0, True), (999_999.0, False)]:
        await inbox.take(replace(delivery, sent=sent))
        told = clock_warnings(counters.clocks)
        assert bool(told) == warned
        if told:
            assert told == (
                "clocks: a message of bank was sent at 1970-01-14 13:46:40 UTC by the clock there, "
                "and came at 1970-01-12 13:46:40 UTC by the clock here; one of the two is wrong",
            )
