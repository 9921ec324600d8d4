"""The audit of who asked about whom: by day, verifiable, and without anybody's name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from fedmq.errors import DataError
from fedmq.party.consent import audit_log as module
from fedmq.party.consent.audit_log import QuestionLog, question_logs


class Calendar(datetime):
    """A present that tests choose."""

    today_is = datetime(2030, 1, 1)

    @classmethod
    def now(cls, tz: object = None) -> Calendar:
        return cls(*cls.today_is.timetuple()[:6])


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never did")


def ask(audit: QuestionLog, *ids: str, answer: str = "yes") -> None:
    audit.note("bank", "online-1", "m", "hop", ids, answer)


async def test_questions_are_entries_of_a_log_that_can_be_verified(tmp_path: Path) -> None:
    audit = QuestionLog(tmp_path)
    ask(audit, "P1", "P2")
    ask(audit, "P1", answer="rate")
    await audit.close()

    [log] = question_logs(tmp_path)
    first, second = log.entries()
    assert first["ids"] == [audit.hashed("P1"), audit.hashed("P2")]
    assert {
        key: second[key] for key in ("event", "peer", "session", "model", "mode", "answer")
    } == {
        "event": "asked online",
        "peer": "bank",
        "session": "online-1",
        "model": "m",
        "mode": "hop",
        "answer": "rate",
    }
    assert "P1" not in log.path.read_text()

    log.path.write_text(log.path.read_text().replace("rate", "yes"))
    log.path.write_text("".join(log.path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(DataError, match="line 1 does not follow"):
        list(log.entries())


async def test_it_is_written_soon_and_in_order_while_questions_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WRITE_SECONDS", 0.01)
    audit = QuestionLog(tmp_path)
    for number in range(40):
        ask(audit, f"P{number}")
        await asyncio.sleep(0.002)
    await until(
        lambda: len([entry for log in question_logs(tmp_path) for entry in log.entries()]) == 40
    )

    [log] = question_logs(tmp_path)
    hashes = [audit.hashed(f"P{number}") for number in range(40)]
    assert [entry["ids"] for entry in log.entries()] == [[name] for name in hashes]
    await audit.close()


async def test_it_goes_on_after_a_restart_with_the_same_key(tmp_path: Path) -> None:
    for answer in ("yes", "model"):
        audit = QuestionLog(tmp_path)
        ask(audit, "P1", answer=answer)
        await audit.close()

    [log] = question_logs(tmp_path)
    first, second = log.entries()
    assert first["ids"] == second["ids"]
    assert (first["answer"], second["answer"]) == ("yes", "model")


async def test_a_day_that_is_deleted_leaves_the_others_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WRITE_SECONDS", 0.001)
    monkeypatch.setattr(module, "datetime", Calendar)
    audit = QuestionLog(tmp_path)
    for day in (1, 2, 3):
        monkeypatch.setattr(Calendar, "today_is", datetime(2030, 1, day))
        ask(audit, f"P{day}")
        await until(lambda day=day: len(question_logs(tmp_path)) == day)
    await audit.close()

    logs = question_logs(tmp_path)
    assert [log.path.name for log in logs] == [
        f"questions-2030-01-0{day}.jsonl" for day in (1, 2, 3)
    ]
    logs[0].path.unlink()
    assert [entry["ids"] for log in question_logs(tmp_path) for entry in log.entries()] == [
        [audit.hashed("P2")],
        [audit.hashed("P3")],
    ]


@pytest.mark.parametrize(("days", "kept"), [(None, [1, 2, 3, 9]), (1, [9]), (7, [2, 3, 9])])
async def test_days_are_kept_as_long_as_the_owner_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int | None, kept: list[int]
) -> None:
    monkeypatch.setattr(module, "datetime", Calendar)
    audit = QuestionLog(tmp_path, days)
    for day in (1, 2, 3, 9):
        monkeypatch.setattr(Calendar, "today_is", datetime(2030, 1, day))
        ask(audit, f"P{day}")
        await audit.close()
    assert [log.path.name for log in question_logs(tmp_path)] == [
        f"questions-2030-01-0{day}.jsonl" for day in kept
    ]


async def test_what_cannot_be_written_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit = QuestionLog(tmp_path)
    ask(audit, "P1")
    await audit.close()
    [log] = question_logs(tmp_path)
    log.path.write_text("forged\n")

    again = QuestionLog(tmp_path)
    ask(again, "P2")
    ask(again, "P3")
    await again.close()

    assert "2 questions are missing in the audit" in caplog.text
    assert "the log was changed" in caplog.text
