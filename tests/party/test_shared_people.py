"""Counts of shared people between whole daemons: what policies allow, and what nobody keeps."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import DaemonError
from fedmq.messages.overlap import ShuffledIds
from fedmq.party.configuration.job import AlignmentJob
from fedmq.party.consent.terms import terms_in_words
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory


def told(made: DaemonsInMemory, **overlap: str) -> DaemonsInMemory:
    """``overlap`` of each passive party's policy."""
    for party, allowed in overlap.items():
        path = made.folder / party / "party.toml"
        path.write_text(path.read_text() + f'overlap = "{allowed}"\n')
    return made


async def count(demo: DaemonsInMemory, *parties: str) -> Any:
    job = AlignmentJob(name="customers", parties=parties or None)
    return await demo.ask("bank", "overlap", job=job.model_dump(mode="json"))


def lacking(demo: DaemonsInMemory, party: str, people: int) -> None:
    path = demo.folder / party / "data.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-people]) + "\n")


async def test_a_count_says_how_many_people_all_hold_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = told(DaemonsInMemory(tmp_path, monkeypatch), telco="exact", retail="exact")
    lacking(demo, "telco", 12)
    async with demo:
        found = await count(demo)
        assert (found["people"], found["exact"], found["own_ids"]) == (28, True, 40)
        assert found["parties"] == list(PARTIES)
        assert (await count(demo, "retail"))["people"] == 40
        assert await demo.ask("bank", "alignments") == []


async def test_a_rounded_number_is_another_one_each_time_and_a_number_of_tens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = told(DaemonsInMemory(tmp_path, monkeypatch), telco="exact", retail="rounded")
    async with demo:
        drawn = [await count(demo) for _ in range(20)]
    assert not any(found["exact"] for found in drawn)
    numbers = {found["people"] for found in drawn}
    assert len(numbers) > 1
    assert all(number is None or number % 10 == 0 for number in numbers)


async def test_an_owner_that_says_nothing_of_counts_refuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with told(DaemonsInMemory(tmp_path, monkeypatch), telco="exact") as demo:
        with pytest.raises(DaemonError) as refused:
            await count(demo)
        assert str(refused.value) == (
            "retail refused: retail does not count shared people; "
            'overlap = "rounded" in its [policy] would allow it'
        )
        with pytest.raises(DaemonError, match="telco holds no label"):
            await demo.ask("telco", "overlap", job={"name": "customers"})


async def test_counts_and_alignments_share_a_days_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = told(DaemonsInMemory(tmp_path, monkeypatch), telco="exact", retail="exact")
    path = demo.folder / "telco" / "party.toml"
    path.write_text(path.read_text() + "most_alignments_per_day = 2\n")
    async with demo:
        await count(demo)
        job = AlignmentJob(name="customers").model_dump(mode="json")
        await demo.ask("bank", "align", job=job)
        with pytest.raises(DaemonError, match="2 alignments a day at most"):
            await count(demo)
        await demo.stop("telco")
        await demo.start("telco")
        with pytest.raises(DaemonError, match="2 alignments a day at most"):
            await demo.ask("bank", "align", job=job)


async def test_parties_that_write_ids_unlike_count_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = told(DaemonsInMemory(tmp_path, monkeypatch), telco="exact", retail="exact")
    path = demo.folder / "telco" / "party.toml"
    path.write_text(path.read_text().replace('id = "id"', 'id = "id"\nnormalise = ["digits"]'))
    async with demo:
        with pytest.raises(DaemonError, match="telco normalises ids by digits, bank by trim"):
            await count(demo)


async def test_an_owner_is_asked_and_a_yes_to_counts_is_none_to_alignments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = told(DaemonsInMemory(tmp_path, monkeypatch), telco="exact", retail="exact")
    path = demo.folder / "telco" / "party.toml"
    path.write_text(path.read_text().replace("[policy]\n", '[policy]\nconsent = "ask"\n'))
    async with demo:
        counting = asyncio.create_task(count(demo))
        asked = await demo.waiting("telco")
        words = dict(terms_in_words({"peer": "bank", **asked}))
        assert words["before alignment"] == "customers"
        assert words["retail learns"] == "the exact number of ids shared by all and by any of them"
        assert words["spent today"].startswith("1 of 50 alignments")
        diff = (await demo.ask("telco", "alike", request=asked["request"]))["diff"]
        assert '+session = "overlap"' in diff
        await demo.ask("telco", "approve", request=asked["request"], by="olga", diff=diff)
        assert (await counting)["people"] == 40
        assert (await count(demo))["people"] == 40

        job = AlignmentJob(name="customers").model_dump(mode="json")
        aligning = asyncio.create_task(demo.ask("bank", "align", job=job))
        asked = await demo.waiting("telco")
        assert asked["kind"] == "alignment"
        await demo.ask("telco", "refuse", request=asked["request"], by="olga")
        with pytest.raises(DaemonError, match="telco refused"):
            await aligning


async def test_the_audit_log_says_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = told(DaemonsInMemory(tmp_path, monkeypatch), telco="exact", retail="rounded")
    async with demo:
        await count(demo)
    log = (tmp_path / "retail" / "state" / "audit.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in log]
    asked = next(entry for entry in entries if entry["event"] == "asked")
    assert (asked["kind"], asked["name"]) == ("overlap open", "customers")
    agreed = next(entry for entry in entries if entry["event"] == "agreed")
    assert agreed["told"] == "rounded"


async def test_a_count_that_a_party_leaves_ends_by_name_and_can_be_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = told(DaemonsInMemory(tmp_path, monkeypatch), telco="exact", retail="exact")
    passing, gone = asyncio.Event(), asyncio.Event()

    async def hold(_: str, recipient: str, message: str) -> bool:
        if recipient == "retail" and ShuffledIds.kind in message and not gone.is_set():
            passing.set()
            return True
        return False

    demo.hold = hold
    async with demo:
        counting = asyncio.create_task(count(demo))
        await passing.wait()
        await demo.stop("retail")
        with pytest.raises(DaemonError, match="retail is shutting down"):
            await counting
        gone.set()
        await demo.start("retail")
        assert (await count(demo))["people"] == 40
