"""Messages that come after the end of their session, and messages of sessions that nobody knows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fedmq.messages.codec import encode
from tests.party.daemons_in_memory import DaemonsInMemory
from tests.party.sealed_parties import envelope


async def test_what_is_repeated_after_the_end_of_a_session_counts_as_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Until then a closed session still takes what is repeated.
    monkeypatch.setattr("fedmq.party.sessions.sessions._LINGER", 0.1)
    daemons = DaemonsInMemory(tmp_path, monkeypatch)
    said: list[bytes] = []

    async def hold(sender: str, recipient: str, message: str) -> bool:
        if (sender, recipient) == ("telco", "bank"):
            said.append(message.encode("latin-1"))
        return False

    async def dropped() -> int:
        return int((await daemons.ask("bank", "status"))["dropped"])

    daemons.hold = hold
    async with daemons:
        await daemons.train("first", trees=1)
        parts = daemons.daemons["telco"].parts
        assert parts is not None
        await asyncio.sleep(0.5)
        before = await dropped()
        for number, body in enumerate(said[-3:]):
            await parts.link.publish("bank", "training", body, message_id=f"again {number}")
        unknown = encode(envelope("telco", "bank", session="unknown"))
        await parts.link.publish("bank", "training", unknown, message_id="unknown")
        await asyncio.sleep(0.5)
        await daemons.until(dropped)
        assert (before, await dropped()) == (0, 1)
