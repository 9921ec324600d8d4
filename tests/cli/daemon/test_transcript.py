"""``fedmq transcript``: what an auditor types and reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.accountability.audited import AuditedDaemons
from tests.cli.command import fedmq


@pytest.fixture
async def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditedDaemons:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.trained(2)
    return daemons


async def test_both_sides_export_and_an_auditor_verifies(trained: AuditedDaemons) -> None:
    folder = trained.folder
    [session] = trained.sessions

    def audited() -> str:
        for party in ("telco", "bank"):
            file = folder / f"{party}.transcript"
            done = fedmq(
                "transcript", "export", folder / party / "party.toml", session, "--output", file
            )
            assert done.code == 0, done.err
            assert file.stat().st_mode & 0o077 == 0
        verified = fedmq(
            "transcript",
            "verify",
            folder / "telco.transcript",
            "--signed",
            folder / "bank.transcript",
            "--federation",
            folder / "federation.toml",
        )
        assert verified.code == 0, verified.err
        return verified.out

    shown = await asyncio.to_thread(audited)
    assert "in 2 trees are those that its table gives (40 rows, columns x0, x1" in shown
    assert "signed by both sides: 2 of 2 trees" in shown


async def test_a_session_of_which_nothing_is_kept_is_named(trained: AuditedDaemons) -> None:
    party = trained.folder / "telco" / "party.toml"
    error = await asyncio.to_thread(fedmq, "transcript", "export", party, "nothing")
    assert error.code == 3
    assert "nothing is kept of session 'nothing'" in error.error
