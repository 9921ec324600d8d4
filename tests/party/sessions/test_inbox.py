"""Deliveries, and the reasons given for those that nobody gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedmq.errors import Replayed
from fedmq.messages.body import Probe
from fedmq.messages.codec import encode
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.identity.sealer import Clear
from fedmq.party.operations.dead_letters import Redelivery
from fedmq.party.operations.health import clock_warnings
from fedmq.party.sessions.runner import Inbox
from tests.party.sealed_parties import connect, envelope, sealers


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


async def test_a_refused_message_that_the_broker_delivers_again_is_refused_again() -> None:
    both = connect(sealers(["bank", "telco"]))
    letter = envelope(sequence=1)
    header = letter.header
    inbox = Inbox("another federation", header.recipient, sealer=both["telco"])
    letter_again = Redelivery(both["bank"].seal(letter), header.id, header.sender).delivery()
    refused: list[str] = []

    async def dead_letter(reason: str) -> None:
        refused.append(reason)

    for delivery in [replace(letter_again, dead_letter=dead_letter)] * 2:
        await inbox.take(delivery)

    assert refused == [f"message {header.id!r} is for telco in {header.federation}"] * 2


class NewerProbe(Probe):
    """As a newer release may send it."""

    priority: int = 0


@pytest.mark.parametrize("broken", ["kind", "field"])
async def test_what_cannot_be_read_is_reported_for_the_party_that_has_sealed_it(
    broken: str,
) -> None:
    both = connect(sealers(["bank", "telco"]))
    letter = envelope(sequence=1)
    header = letter.header
    if broken == "kind":
        header = header.model_copy(update={"kind": "newer kind"})
    data = both["bank"].seal(Envelope(header, NewerProbe(priority=1)))
    inbox = Inbox(header.federation, header.recipient, sealer=both["telco"])
    reported: list[Header] = []

    async def report(about: Header) -> None:
        reported.append(about)

    inbox.on_unreadable = report
    for sender, expected in (("retail", []), ("bank", [header])):
        again = Redelivery(data, header.id, sender)
        assert await inbox.take(again.delivery())
        assert reported == expected
        data = both["bank"].seal(Envelope(header, NewerProbe(priority=1)))


async def test_nothing_that_is_altered_or_not_sealed_is_reported_as_unreadable() -> None:
    both = connect(sealers(["bank", "telco"]))
    header = envelope(sequence=1).header
    inbox = Inbox(header.federation, header.recipient, sealer=both["telco"])
    reported: list[Header] = []

    async def report(about: Header) -> None:
        reported.append(about)

    inbox.on_unreadable = report
    newer = Envelope(header, NewerProbe(priority=1))
    sealed = bytearray(both["bank"].seal(newer))
    sealed[-1] ^= 1
    for data in (bytes(sealed), encode(newer)):
        assert await inbox.take(Redelivery(data, header.id, header.sender).delivery())
    assert not reported
