"""Daemons whose owners are asked: sessions wait for the answer, through restarts on both sides."""

from __future__ import annotations

import asyncio
import errno
import getpass
import json
import os
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import DaemonError
from fedmq.party.configuration.job import AlignmentJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.terms import asked_in_words, terms_in_words
from fedmq.party.operations import consent_commands as policy_file
from tests.party.daemons_in_memory import DaemonsInMemory

TERMS = {"rows": 40, "engine": "plain", "trees": 2, "max_depth": 2, "max_bin": 8, "alignment": ""}


def asking(demo: DaemonsInMemory, *parties: str, more: str = "") -> None:
    """Let the owners of these parties be asked."""
    for party in parties:
        path = demo.folder / party / "party.toml"
        path.write_text(path.read_text() + f'consent = "ask"\n{more}')


async def says(demo: DaemonsInMemory, party: str, words: str) -> None:
    """Wait until a session at ``party`` waits in these words."""

    async def said() -> bool:
        status = await demo.ask(party, "status")
        return any(words in wait for session in status["sessions"] for wait in session["waiting"])

    await demo.until(said)


async def told_to_wait(demo: DaemonsInMemory, party: str) -> None:
    """Wait until a session of ``party`` knows that an owner is asked: a stop then leaves it."""
    sessions = demo.daemons[party].parts.context.sessions

    async def told() -> bool:
        running = sessions.running.values()
        return any(session.runner.session.machine.awaits_consent for session in running)

    await demo.until(told)


async def approve(demo: DaemonsInMemory, party: str, request: str) -> None:
    await demo.ask(party, "approve", request=request)


async def align(demo: DaemonsInMemory, name: str, **how: Any) -> Any:
    job = AlignmentJob(name=name, **how)
    return await demo.ask("bank", "align", job=job.model_dump(mode="json"))


def audited(demo: DaemonsInMemory, party: str) -> list[dict[str, Any]]:
    lines = (demo.folder / party / "state" / "audit.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


async def test_a_training_waits_for_the_consent_of_two_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco", "retail")
    async with demo:
        training = asyncio.create_task(demo.train("m", 2))
        await says(demo, "bank", "waits for telco's consent")
        await says(demo, "bank", "waits for retail's consent")
        asked = await demo.waiting("telco")
        assert (asked["kind"], asked["peer"], asked["name"]) == ("training", "bank", "m")
        assert {key: asked["terms"][key] for key in TERMS} == TERMS
        assert asked["terms"]["spent"]["trainings"] == 1
        await approve(demo, "telco", asked["request"])
        await says(demo, "bank", "waits for retail's consent")
        assert not training.done()
        await approve(demo, "retail", (await demo.waiting("retail"))["request"])
        assert (await training)["trees"] == 2
        answered = [entry for entry in audited(demo, "telco") if entry["event"] == "owner agreed"]
        assert [(entry["by"], entry["training"]) for entry in answered] == [
            (getpass.getuser(), "m")
        ]
        with pytest.raises(DaemonError, match="no longer waits: approved by"):
            await approve(demo, "telco", asked["request"])


async def test_a_refusal_ends_the_training_with_the_owners_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco")
    async with demo:
        training = asyncio.create_task(demo.train("m", 2))
        request = (await demo.waiting("telco"))["request"]
        await demo.ask("telco", "refuse", request=request, reason="ask in May")
        with pytest.raises(DaemonError, match="telco refused: ask in May"):
            await training
    assert demo.models() == {"bank": [], "telco": [], "retail": []}


async def test_who_does_not_answer_in_time_has_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco", more="consent_within = 0.0001\n")
    async with demo:
        with pytest.raises(DaemonError, match=r"telco did not answer within 0\.0001 hours"):
            await demo.train("m", 2)
        [request] = await demo.ask("telco", "inbox")
        assert (request["state"], request["decided_by"]) == ("refused", "consent_within")


async def test_what_the_active_party_gives_up_is_asked_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco")
    async with demo:
        training = asyncio.create_task(demo.train("m", 2))
        asked = await demo.waiting("telco")
        await demo.ask("bank", "cancel", session=asked["session"])
        with pytest.raises(DaemonError, match="cancelled"):
            await training

        async def withdrawn() -> bool:
            [request] = await demo.ask("telco", "inbox")
            return bool(request["state"] == "withdrawn")

        await demo.until(withdrawn)


@pytest.mark.parametrize("restarted", ["telco", "bank"])
@pytest.mark.parametrize("answered", ["before", "after"])
async def test_a_training_waits_through_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: str, answered: str
) -> None:
    settings = "[retry]\nfirst = 0.1\nceiling = 0.2\nprobe = 0.2\n"
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco", more=settings)
    async with demo:
        training = asyncio.create_task(demo.train("m", 2))
        asked = await demo.waiting("telco")
        await demo.stop(restarted)
        if restarted == "bank" and answered == "before":
            await approve(demo, "telco", asked["request"])
        await demo.start(restarted)
        if restarted == "bank":
            with pytest.raises(DaemonError):
                await training
        [again] = await demo.ask("telco", "inbox")
        assert again["request"] == asked["request"]
        if again["state"] == "waiting":
            if answered == "after":
                await says(demo, "bank", "waits for telco's consent")
            await approve(demo, "telco", asked["request"])
        await demo.until(lambda: finished(demo, "m"))
    assert demo.models() == {"bank": ["m"], "telco": ["m"], "retail": ["m"]}


async def finished(demo: DaemonsInMemory, model: str) -> bool:
    return all(model in models for models in demo.models().values())


async def test_an_alignment_waits_and_one_that_the_active_party_asks_for_again_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco")
    async with demo:
        first = asyncio.create_task(align(demo, "people"))
        asked = await demo.waiting("telco")
        assert asked["terms"]["parties"] == ["bank", "telco", "retail"]
        await told_to_wait(demo, "bank")
        await demo.stop("bank")
        with pytest.raises(DaemonError):
            await first
        await approve(demo, "telco", asked["request"])
        await demo.start("bank")
        assert (await align(demo, "people"))["rows"] == 40
        # One yes is for one alignment.
        second = asyncio.create_task(align(demo, "people"))
        assert (await demo.waiting("telco"))["request"] != asked["request"]
        await demo.ask(
            "telco", "refuse", request=(await demo.waiting("telco"))["request"], by="olga"
        )
        with pytest.raises(DaemonError, match="telco refused"):
            await second


async def test_an_alignment_waits_through_a_restart_of_who_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco")
    bank = demo.folder / "bank" / "party.toml"
    bank.write_text(bank.read_text() + "[retry]\nprobe = 0.2\n")
    async with demo:
        aligning = asyncio.create_task(align(demo, "people"))
        asked = await demo.waiting("telco")
        await demo.stop("telco")
        await demo.start("telco")
        await approve(demo, "telco", asked["request"])
        assert (await aligning)["rows"] == 40


async def test_who_says_yes_to_an_inner_join_for_ever_is_asked_about_a_left_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco")
    table = demo.folder / "telco" / "data.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-10]) + "\n")
    async with demo:

        async def agreed_to(**how: Any) -> tuple[dict[str, Any], Any]:
            aligning = asyncio.create_task(align(demo, "people", **how))
            asked = await demo.waiting("telco")
            diff = (await demo.ask("telco", "alike", request=asked["request"]))["diff"]
            await demo.ask("telco", "approve", request=asked["request"], diff=diff)
            return asked, await aligning

        _, inner = await agreed_to()
        assert (inner["rows"], inner["lacked_at"]) == (30, {})
        asked, left = await agreed_to(join="left")
        words = dict(terms_in_words({"peer": "bank", **asked}))
        assert "all people of bank" in words["people"]
        assert "which of its own people each party holds" in words["active party learns"]
        assert "which of its people each party holds" in asked_in_words(asked)
        assert (left["rows"], left["lacked_at"]) == (40, {"telco": 10})
        known_to = {"telco": 30, "retail": 40}
        assert left["choices"] == {"left": 40, "inner": 30, "known_to": known_to}
        assert (await align(demo, "people", join="left"))["rows"] == 40, "asked no more"
        with pytest.raises(DaemonError, match="at_least: shop is no passive party"):
            await align(demo, "people", join="left", at_least=("shop",))


async def test_alike_is_written_into_the_policy_and_asks_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco", more="# who asks me is asked back\n")
    path = demo.folder / "telco" / "party.toml"
    async with demo:
        training = asyncio.create_task(demo.train("m", 2))
        request = (await demo.waiting("telco"))["request"]
        before = path.read_text()
        shown = await demo.ask("telco", "alike", request=request)
        assert "+most_trees = 2\n" in shown["diff"]
        with pytest.raises(DaemonError, match="has changed since it was shown"):
            await demo.ask("telco", "approve", request=request, diff="-all\n")
        assert path.read_text() == before
        await demo.ask("telco", "approve", request=request, diff=shown["diff"])
        await training
        assert path.read_text().startswith(before.rstrip())
        assert (await demo.train("smaller", 1))["trees"] == 1
        larger = asyncio.create_task(demo.train("larger", 3))
        await demo.ask("telco", "refuse", request=(await demo.waiting("telco"))["request"])
        with pytest.raises(DaemonError, match="telco refused"):
            await larger
    [standing] = PartyFile.read(path)[0].policy.approved
    assert (standing.peer, standing.most_trees, standing.most_rows) == ("bank", 2, 40)


async def test_a_daemon_that_may_not_write_its_file_says_what_to_write_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(policy_file, "write_atomically", refused)
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco")
    path = demo.folder / "telco" / "party.toml"
    async with demo:
        training = asyncio.create_task(demo.train("m", 2))
        request = (await demo.waiting("telco"))["request"]
        before = path.read_text()
        diff = (await demo.ask("telco", "alike", request=request))["diff"]
        with pytest.raises(DaemonError, match="Read-only file system") as told:
            await demo.ask("telco", "approve", request=request, diff=diff)
        said, _, lines = str(told.value).partition(":\n")
        assert said.startswith(f"request {request} is approved, but {path}: cannot be written")
        assert (await training)["trees"] == 2
        assert path.read_text() == before
        # What it says is what makes alike requests pass without a question.
        path.write_text(f"{before}\n{lines}\n")
        await demo.ask("telco", "reload")
        assert (await demo.train("alike", 2))["trees"] == 2


async def test_a_policy_that_asks_no_more_agrees_to_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    asking(demo, "telco")
    path = demo.folder / "telco" / "party.toml"
    async with demo:
        training = asyncio.create_task(demo.train("m", 2))
        await demo.waiting("telco")
        path.write_text(path.read_text().replace('consent = "ask"', 'consent = "policy"'))
        await demo.ask("telco", "reload")
        assert (await training)["trees"] == 2
