"""What is live costs one look a second, whoever looks, and none where nobody does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from starlette.responses import StreamingResponse

from fedmq.errors import Overloaded
from fedmq.party.consent.person import Person
from fedmq.party.console.live import Live
from fedmq.party.console.sign_in import Grant, SignIn, SignIns

SECONDS = 0.01


class Daemon:
    """Counts how often somebody looks, and shows a number that changes when a test wants it."""

    def __init__(self) -> None:
        self.looked = 0
        self.shown = {"a": "1", "b": "1"}

    async def parts(self) -> dict[str, str]:
        self.looked += 1
        return dict(self.shown)


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
async def live(daemon: Daemon) -> AsyncIterator[Live]:
    made = Live(daemon.parts, SECONDS)
    yield made
    await made.close()


@pytest.fixture
def sign_in() -> SignIn:
    return SignIns(lambda: 0.0).begin(Grant(Person.proven("anna"), ()))[0]


def events(live: Live, sign_in: SignIn) -> Any:
    return cast(StreamingResponse, live.response(sign_in)).body_iterator


async def following(stream: Any) -> dict[str, str]:
    """The next parts that are pushed."""
    while True:
        text = await anext(stream)
        if text.startswith("event: parts"):
            parts: dict[str, str] = json.loads(text.partition("data: ")[2])
            return parts


async def test_the_first_look_is_whole_and_then_only_what_changed_is_pushed(
    live: Live, daemon: Daemon, sign_in: SignIn
) -> None:
    stream = events(live, sign_in)
    assert await following(stream) == {"a": "1", "b": "1"}
    daemon.shown = {"a": "2", "b": "1"}
    assert await following(stream) == {"a": "2"}
    await stream.aclose()


async def test_ten_who_look_cost_one_look_each_round(
    live: Live, daemon: Daemon, sign_in: SignIn
) -> None:
    streams = [events(live, sign_in) for _ in range(10)]
    for stream in streams:
        await following(stream)
    before = daemon.looked
    await asyncio.sleep(20 * SECONDS)
    assert daemon.looked - before <= 21
    for stream in streams:
        await stream.aclose()


async def test_a_page_that_is_loaded_again_and_again_is_looked_for_once_a_round(
    live: Live, daemon: Daemon, sign_in: SignIn
) -> None:
    for _ in range(10):
        stream = events(live, sign_in)
        await following(stream)
        await stream.aclose()
    before = daemon.looked
    stream = events(live, sign_in)
    await asyncio.wait_for(following(stream), 1)
    await asyncio.sleep(10 * SECONDS)
    assert daemon.looked - before <= 12
    await stream.aclose()


async def test_nobody_is_shown_what_nobody_looks_at(
    live: Live, daemon: Daemon, sign_in: SignIn
) -> None:
    await asyncio.sleep(5 * SECONDS)
    assert daemon.looked == 0
    stream = events(live, sign_in)
    await following(stream)
    await stream.aclose()
    await asyncio.sleep(2 * SECONDS)
    after = daemon.looked
    await asyncio.sleep(5 * SECONDS)
    assert daemon.looked == after


async def test_who_signs_out_sees_no_more(live: Live, sign_in: SignIn) -> None:
    stream = events(live, sign_in)
    await following(stream)
    sign_in.signed_out = True
    with pytest.raises(StopAsyncIteration):
        await following(stream)


async def test_a_daemon_that_stops_ends_all_streams(live: Live, sign_in: SignIn) -> None:
    stream = events(live, sign_in)
    await following(stream)
    waiting = asyncio.ensure_future(following(stream))
    await asyncio.sleep(SECONDS)
    await live.close()
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_too_many_pages_at_once_are_refused(live: Live, sign_in: SignIn) -> None:
    people = SignIns(lambda: 0.0)
    names = ("olga", "bob", "eva", "tim")
    several = [people.begin(Grant(Person.proven(name), ()))[0] for name in names]
    streams = [events(live, one) for one in several for _ in range(8)]
    for stream in streams:
        await following(stream)
    with pytest.raises(Overloaded, match="are open already"):
        live.response(sign_in)
    for stream in streams:
        await stream.aclose()
