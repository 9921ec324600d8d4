"""What transcripts prove of a training, as a dossier says it: signatures, and replays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgpack
import pytest

from fedmq.accountability.transcript_file import export
from fedmq.errors import DataError
from fedmq.party.store.documents import training_records
from fedmq.transport.sealing.keys import PrivateKeys
from fedmq.workbench.own_shares import OwnShares
from fedmq.workbench.proofs import proofs_of
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory


async def test_signatures_are_counted_and_what_is_shown_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {party: PrivateKeys.generate() for party in PARTIES}
    async with DaemonsInMemory(tmp_path, monkeypatch, keys=keys) as demo:
        await demo.train("credit", 2)
        await demo.train("other", 1)
    shares = OwnShares(tmp_path / "bank" / "party.toml")
    session = training_records(shares.state).read("credit").session
    unknown = proofs_of(shares, "unknown", ())
    assert not unknown.signed and "no party has signed an answer" in unknown.none
    proofs = await asyncio.to_thread(proofs_of, shares, session, ())
    assert proofs.signed == {"telco": 2, "retail": 2} and not proofs.verdicts and not proofs.none

    shown = tmp_path / "telco.transcript"
    export(tmp_path / "telco" / "state", "telco", session, shown)
    [(party, verdict)] = proofs_of(shares, session, [shown]).verdicts.items()
    assert party == "telco"
    assert verdict.startswith("honest: ") and "in 2 trees are those that its table of 40" in verdict
    assert "2 of these trees are signed by both sides" in verdict

    another_table(shown)
    [(_, lie)] = proofs_of(shares, session, [shown]).verdicts.items()
    assert lie.startswith("not honest: ")

    other = training_records(shares.state).read("other").session
    with pytest.raises(DataError, match=f"a transcript of session {session}, not {other}"):
        proofs_of(shares, other, [shown])


def another_table(path: Path) -> None:
    """Commit to other values than were summed."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(path.read_bytes())
    records = list(unpacker)
    for record in records:
        if record[0] == "commitment":
            values = record[2]["values"]
            record[2]["values"] = values[4:] + values[:4]
    path.write_bytes(b"".join(map(msgpack.packb, records)))


async def test_without_transcripts_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch) as demo:
        await demo.train("credit", 1)
    shares = OwnShares(tmp_path / "bank" / "party.toml")
    session = training_records(shares.state).read("credit").session
    for of in (session, "unknown"):
        assert proofs_of(shares, of, ()).none == "the federation has no keys"
