"""Parties come and go while daemons run: nothing is restarted, and what others share stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fedmq.errors import DaemonError
from tests.party.daemons_in_memory import DaemonsInMemory


def members(federation: DaemonsInMemory, *passive: str) -> None:
    (federation.folder / "federation.toml").write_text(
        f'name = "demo"\nactive = "bank"\npassive = {json.dumps(passive)}\n'
    )


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    federation = DaemonsInMemory(tmp_path, monkeypatch)
    members(federation, "telco")
    await federation.start("bank", "telco")
    yield federation
    await federation.stop()


async def test_a_party_joins_and_leaves_while_the_others_run(federation: DaemonsInMemory) -> None:
    await federation.train("before", 3)
    members(federation, "telco", "retail")
    for party in ("bank", "telco"):
        assert (await federation.ask(party, "reload")) == {"needs_restart": []}
        assert (await federation.ask(party, "status"))["parties"] == ["bank", "telco", "retail"]
    await federation.start("retail")
    await federation.train("with", 3)
    store = federation.daemons["bank"].parts.context.model_store
    assert store.active("before").parties == ("bank", "telco")
    assert store.active("with").asked == ("telco", "retail")

    members(federation, "telco")
    await federation.ask("bank", "reload")
    await federation.train("after", 3)
    assert store.active("after").parties == ("bank", "telco")
    for model in ("before", "after"):
        scored = await federation.ask("bank", "predict", model=model, ids=["p01"])
        assert scored["scores"][0] is not None
    with pytest.raises(DaemonError, match="model with cannot be used without retail"):
        await federation.ask("bank", "predict", model="with", ids=["p01"])


async def test_what_runs_with_a_party_that_leaves_ends(federation: DaemonsInMemory) -> None:
    asking = asyncio.create_task(federation.train("long", 400))
    await federation.session()
    members(federation)
    await federation.ask("bank", "reload")
    with pytest.raises(DaemonError, match="telco has left the federation"):
        await asking
