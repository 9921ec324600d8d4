"""What names people is deleted once its period is over, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fedmq.errors import ConfigError
from fedmq.party.configuration.policy import PolicySection, RetentionSection
from fedmq.party.configuration.toml_file import parse_toml
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.store.expired import delete_expired
from tests.party.daemons_in_memory import DaemonsInMemory

DAY = 24 * 3600.0
NOW = 2_000_000_000.0

FILES = {
    "recordings": "recordings/ab12.1.telco.recording",
    "held_out": "state/models/credit.held-out.csv",
    "question_logs": "state/audit/questions-2026-01-01.jsonl",
    "transcripts": "state/transcripts/ab12/1.opening",
    "alignments": "state/alignments/people.json",
}
OTHERS = ("state/models/credit.json", "state/audit/key", "state/audit.jsonl", "recordings/notes")


def written(folder: Path, days: float, now: float = NOW) -> None:
    """All files, and others beside them, last written so many ``days`` ago."""
    for name in (*FILES.values(), *OTHERS):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("p07")
    for path in sorted(folder.rglob("*"), reverse=True):  # a folder has its time from its files
        os.utime(path, (now - days * DAY,) * 2)


def deleted(folder: Path, days: dict[str, int], running: frozenset[str] = frozenset()) -> set[str]:
    counts = delete_expired(folder / "state", folder / "recordings", days, NOW, running)
    gone = {key for key, name in FILES.items() if not (folder / name).exists()}
    assert counts == dict.fromkeys(gone, 1)
    assert all((folder / name).exists() for name in OTHERS)
    return gone


@pytest.mark.parametrize("key", FILES)
def test_a_file_goes_when_its_own_period_is_over_and_not_before(tmp_path: Path, key: str) -> None:
    written(tmp_path, 90.5)
    assert deleted(tmp_path, {key: 91}) == set()
    assert deleted(tmp_path, {key: 90}) == {key}


def test_what_a_session_under_way_writes_and_needs_stays(tmp_path: Path) -> None:
    written(tmp_path, 90.5)
    days = dict.fromkeys(FILES, 30)
    assert deleted(tmp_path, days, frozenset({"ab12"})) == {"held_out", "question_logs"}
    others = delete_expired(
        tmp_path / "state", tmp_path / "recordings", days, NOW, frozenset({"cd34"})
    )
    assert others == {"recordings": 1, "transcripts": 1}


def test_a_transcript_is_as_old_as_its_newest_file(tmp_path: Path) -> None:
    written(tmp_path, 90.5)
    path = tmp_path / FILES["transcripts"]
    os.utime(path, (NOW, NOW))
    assert deleted(tmp_path, {"transcripts": 30}) == set()


def test_periods_are_days_weeks_and_years() -> None:
    section = RetentionSection(recordings="90d", held_out="2w", transcripts="2y")
    assert section.days == {"recordings": 90, "held_out": 14, "transcripts": 730}
    assert PolicySection().retention.days == {}


@pytest.mark.parametrize("period", ["90", "0d", "1m", "-1d", "1 y", "100000d"])
def test_a_period_that_is_none_is_one_line(period: str, tmp_path: Path) -> None:
    text = f'retention = {{ recordings = "{period}" }}'
    with pytest.raises(ConfigError, match=r"retention\.recordings: .* is no period; write days"):
        parse_toml(text, tmp_path / "party.toml", PolicySection)


@pytest.mark.asyncio
async def test_a_daemon_deletes_at_its_start_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch, 'retention = { held_out = "1y" }\n')
    folder = tmp_path / "telco"
    written(folder, 400, time.time())
    (folder / "state" / "audit.jsonl").unlink()
    (folder / "state" / "models" / "credit.json").unlink()
    try:
        await demo.start("telco")

        async def noted() -> list[dict[str, object]]:
            entries = AuditLog(folder / "state").entries()
            return [entry for entry in entries if entry["event"] == "expired"]

        (entry,) = await demo.until(noted)
        assert entry["deleted"] == {"held_out": 1}
        assert entry["periods"] == {"held_out": "1y"}
        assert not (folder / FILES["held_out"]).exists()
        assert (folder / FILES["alignments"]).exists()
        status = await demo.ask("telco", "status")
        assert status["retention"] == {"held_out": "1y"}
        assert await demo.daemons["telco"].parts.retention.keep() == {}
    finally:
        await demo.stop()
