"""What the owner asks of a daemon about parties: who was heard, and who is let in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fedmq import __version__
from fedmq.errors import DaemonError
from fedmq.party.identity.joining import JoinRequest
from fedmq.transport.rabbitmq.certificates import new_request
from fedmq.transport.sealing.keys import PrivateKeys
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

NEWCOMER = PrivateKeys.generate()
REQUEST = JoinRequest("demo", "shop", NEWCOMER.public, new_request("shop")[0]).dumps(NEWCOMER)


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    keys = {party: PrivateKeys.generate() for party in PARTIES}
    async with DaemonsInMemory(tmp_path, monkeypatch, keys=keys) as daemons:
        yield daemons


async def test_a_newcomer_is_let_in_by_the_fingerprint_it_reads_out(
    federation: DaemonsInMemory,
) -> None:
    before = (federation.folder / "federation.toml").read_text()
    with pytest.raises(DaemonError, match="another fingerprint than the one given"):
        await federation.ask("bank", "admit", text=REQUEST, fingerprint="0000")
    altered = REQUEST.replace('"shop"', '"shap"', 1)
    with pytest.raises(DaemonError, match="was altered since it was made"):
        await federation.ask("bank", "admit", text=altered, fingerprint="0000")
    assert (federation.folder / "federation.toml").read_text() == before
    fingerprint = NEWCOMER.public.fingerprint
    await federation.ask("bank", "admit", text=REQUEST, fingerprint=fingerprint)
    newest = (await federation.ask("bank", "parties"))[-1]
    assert (newest["party"], newest["fingerprints"]) == ("shop", [fingerprint])
    assert newest["heard"] is None


async def test_requests_that_were_saved_wait_in_a_list_until_they_are_let_in(
    federation: DaemonsInMemory,
) -> None:
    folder = federation.daemons["bank"].parts.context.config.requests
    assert await federation.ask("bank", "join_requests") == []
    folder.mkdir()
    (folder / "shop.request.json").write_text(REQUEST)
    (folder / "a.json").write_text("{}")
    (folder / "b.json").write_bytes(b"[" * 100_000)
    none = f"{folder / 'a.json'}: this is no request of fedmq join"
    waiting = await federation.ask("bank", "join_requests")
    assert [(each["file"], each["party"]) for each in waiting] == [
        ("a.json", ""),
        ("b.json", ""),
        ("shop.request.json", "shop"),
    ]
    assert waiting[0]["error"] == none
    asked = {"file": "../requests/shop.request.json"}
    with pytest.raises(DaemonError, match="another fingerprint than the one given"):
        await federation.ask("bank", "admit", **asked, fingerprint="0000")
    await federation.ask("bank", "admit", **asked, fingerprint=NEWCOMER.public.fingerprint)
    left = await federation.ask("bank", "join_requests")
    assert [each["file"] for each in left] == ["a.json", "b.json"]


async def test_parties_are_heard_when_they_send_something(federation: DaemonsInMemory) -> None:
    assert [party["heard"] for party in await federation.ask("telco", "parties")] == [None] * 3
    await federation.train("m", 1)
    bank, telco, retail = await federation.ask("telco", "parties")
    assert bank["heard"] is not None
    assert (telco["own"], telco["heard"], retail["heard"]) == (True, None, None)


async def test_parties_are_listed_with_the_release_that_each_says_it_runs(
    federation: DaemonsInMemory,
) -> None:
    await federation.train("m", 1)
    parties = await federation.ask("bank", "parties")
    assert [party["release"] for party in parties] == [__version__] * 3
