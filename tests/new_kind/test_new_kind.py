"""Adding a session kind takes one module: see `row_count`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedmq.errors import ConfigError, DaemonError
from fedmq.messages import codec
from fedmq.party import assembly
from fedmq.protocol import kinds
from fedmq.protocol.kinds import register
from tests.new_kind.row_count import KIND, RowCountService
from tests.party.daemons_in_memory import DaemonsInMemory


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    register(KIND)
    monkeypatch.setattr(assembly, "SERVICES", [*assembly.SERVICES, RowCountService])
    made = DaemonsInMemory(tmp_path, monkeypatch)
    yield made
    await made.stop()
    del kinds.SESSION_KINDS[KIND.name]
    for body in KIND.bodies:
        del codec.KINDS[body.kind]


async def test_two_parties_run_a_session_of_a_new_kind(federation: DaemonsInMemory) -> None:
    await federation.start()
    assert await federation.ask("bank", "row_count", of="telco") == 40
    ended = federation.daemons["telco"].parts.context.sessions.ended
    assert [session.purpose for session in ended] == ["row count"]


async def test_an_owner_refuses_it(federation: DaemonsInMemory) -> None:
    policy = federation.folder / "telco" / "party.toml"
    policy.write_text(policy.read_text() + 'sessions = ["training"]\n')
    await federation.start()
    with pytest.raises(DaemonError, match="telco does not tell: telco tells nobody how many rows"):
        await federation.ask("bank", "row_count", of="telco")


def test_a_kind_does_not_take_the_name_of_another() -> None:
    with pytest.raises(ConfigError, match="session kind 'training' exists already"):
        register(replace(KIND, name="training"))
    assert "row count" not in codec.KINDS
