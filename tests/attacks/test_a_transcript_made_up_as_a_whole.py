"""A passive party plays a training with itself, and shows the auditor the transcript of that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedmq.accountability.verification import verify
from fedmq.errors import DataError, Inconsistent
from fedmq.party.configuration.federation import Federation
from fedmq.transport.sealing.keys import PrivateKeys
from tests.accountability import audited
from tests.accountability.audited import AuditedDaemons
from tests.party.daemons_in_memory import PARTIES


@pytest.fixture
async def daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditedDaemons:
    """Of the training that took place."""
    folder = tmp_path / "true"
    folder.mkdir()
    made = AuditedDaemons(folder, monkeypatch)
    await made.trained(2)
    return made


@pytest.fixture
async def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditedDaemons:
    """Of the training that telco plays, with another key for the bank."""
    folder = tmp_path / "played"
    folder.mkdir()
    keys = {**audited.KEYS, "bank": PrivateKeys.generate()}
    with monkeypatch.context() as patch:
        patch.setattr(audited, "KEYS", {party: keys[party] for party in PARTIES})
        made = AuditedDaemons(folder, patch)
        await made.trained(2)
    return made


def federation(daemons: AuditedDaemons) -> Federation:
    return Federation.read(daemons.folder / "federation.toml")


async def test_a_transcript_under_which_the_bank_has_signed_nothing_is_refused(
    daemons: AuditedDaemons, played: AuditedDaemons
) -> None:
    assert verify(played.shown("telco"), federation(played)).signed == 2
    with pytest.raises(DataError, match="bank has signed none of its 2 trees: a party can make up"):
        verify(played.shown("telco"), federation(daemons))
    assert verify(daemons.shown("telco"), federation(daemons)).signed == 2


async def test_beside_the_banks_file_it_is_a_lie(
    daemons: AuditedDaemons, played: AuditedDaemons
) -> None:
    held = daemons.shown("bank")
    shown = replace(played.shown("telco"), session=held.session)
    with pytest.raises(Inconsistent, match="it does not show the messages, or the table, that it"):
        verify(shown, federation(daemons), held)
