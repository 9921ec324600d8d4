"""Parties that answer in mode sealed alone: files, online scores, and what outlives a restart."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from fedmq.errors import DaemonError
from tests.party.daemons_in_memory import DaemonsInMemory

SEALED = '[online]\nmode = "sealed"\nmodes = ["sealed"]\ndeadline = 9.0\n'
PEOPLE = [f"p{row:02}" for row in range(12)]


async def online(demo: DaemonsInMemory, people: list[str]) -> list[float]:
    answer = await demo.ask("bank", "score", name="production", ids=people)
    assert answer["mode"] == "sealed"
    return [row["score"] for row in answer["scores"]]


async def test_where_sealed_stands_alone_files_and_people_are_scored_so_and_no_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch, SEALED) as demo:
        await demo.train("m", 3)
        await demo.ask("bank", "activate", model="m", name="production", mode=None)
        in_file = await demo.ask("bank", "predict", model="m", ids=PEOPLE)
        assert in_file["mode"] == "sealed"
        assert len(set(in_file["scores"])) > 3
        assert await online(demo, PEOPLE) == pytest.approx(in_file["scores"], rel=1e-5)

        kept = tmp_path / "bank" / "state" / "sealed" / "m.secret"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert [path.name for path in (tmp_path / "telco/state/sealed").iterdir()] == ["m.terms"]
        secret = kept.read_bytes()
        await demo.stop()
        await demo.start()
        assert await online(demo, PEOPLE[:5]) == pytest.approx(in_file["scores"][:5], rel=1e-5)
        await demo.ask("bank", "activate", model="m", name="again", mode=None)
        assert kept.read_bytes() == secret

        with pytest.raises(DaemonError, match="does not answer in mode hop"):
            await demo.ask("bank", "activate", model="m", name="production", mode="hop")
        with pytest.raises(DaemonError, match=r"sealed alone \(predict --mode sealed\)"):
            await demo.ask("bank", "predict", model="m", ids=PEOPLE, mode="hop")
        assert len(await online(demo, PEOPLE[5:8])) == 3


async def test_a_party_that_has_lost_its_terms_gets_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch, SEALED) as demo:
        await demo.train("m", 3)
        await demo.ask("bank", "activate", model="m", name="production", mode=None)
        before = await online(demo, PEOPLE[:3])
        await demo.stop("telco")
        (tmp_path / "telco" / "state" / "sealed" / "m.terms").write_bytes(b"\x81 no terms")
        await demo.start("telco")
        async with asyncio.timeout(20):
            assert await online(demo, PEOPLE[:3]) == pytest.approx(before, rel=1e-5)
