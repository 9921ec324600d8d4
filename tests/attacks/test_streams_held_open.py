"""Somebody who may look at the console opens live pages without end, to keep others out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from fedmq.errors import Overloaded
from fedmq.party.consent.person import Person
from fedmq.party.console.live import Live
from fedmq.party.console.sign_in import Grant, SignIn, SignIns
from tests.party.console.test_live import SECONDS, Daemon, events, following

MOST, MOST_OF_ONE = 32, 12


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    made = Live(Daemon().parts, SECONDS)
    yield made
    await made.close()


@pytest.fixture
def people() -> list[SignIn]:
    sign_ins = SignIns(lambda: 0.0)
    return [sign_ins.begin(Grant(Person.proven(f"person {number}"), ()))[0] for number in range(6)]


async def begun(streams: list[Any]) -> list[Any]:
    """Those of the streams that push something."""
    found = []
    for stream in streams:
        with suppress(StopAsyncIteration):
            await following(stream)
            found.append(stream)
    return found


async def test_one_person_holds_a_dozen_and_leaves_the_rest_to_others(
    live: Live, people: list[SignIn]
) -> None:
    # All are answered before the first of them begins.
    streams = [events(live, people[0]) for _ in range(20)]
    held = await begun(streams)
    assert len(held) == live.looking == MOST_OF_ONE
    with pytest.raises(Overloaded, match="pages are open already"):
        live.response(people[0])
    other = events(live, people[1])
    await asyncio.wait_for(following(other), 1)
    for stream in (*held, other):
        await stream.aclose()
    assert live.looking == 0


async def test_streams_that_are_opened_together_are_no_more_than_the_limit(
    live: Live, people: list[SignIn]
) -> None:
    streams = [events(live, person) for person in people for _ in range(MOST_OF_ONE)]
    held = await begun(streams)
    assert len(held) == live.looking == MOST
    for stream in held:
        await stream.aclose()


async def test_a_stream_that_nobody_reads_ends_with_the_others(
    live: Live, people: list[SignIn]
) -> None:
    [stuck] = await begun([events(live, people[0])])
    people[0].signed_out = True
    assert await begun([stuck]) == []
    assert live.looking == 0
