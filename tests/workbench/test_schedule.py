"""What is due is done by daemons, once; what fails is due again, and alarms reach the owner."""

from __future__ import annotations

import asyncio
import calendar
import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.cli.consent import approve
from fedmq.cli.schedule import schedule
from fedmq.errors import Alarm, ConfigError, DaemonError
from fedmq.party.configuration.schedule import Schedule, next_time
from fedmq.workbench.schedule import Outcome, due_tasks, run_task
from tests.documentation.fences import DOCS, to_run
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

TODAY = "2026-03-31"


class ThatDay(date):
    """The day on which these tests are made, so that none of them ends on another one."""

    @classmethod
    def today(cls) -> date:
        return date.fromisoformat(TODAY)


JOB = """\
model = "credit"
engine = "plain"
alignment = "people"
evaluation = 0.4
[params]
num_boost_round = 2
max_depth = 2
eval_metric = "auc"
"""


async def called(federation: DaemonsInMemory, text: str, *options: str) -> None:
    """``fedmq schedule`` of a file with this text, in a thread of its own."""
    bank = federation.folder / "bank"
    (bank / "train.toml").write_text(JOB)
    (bank / "align.toml").write_text('name = "people"\n')
    (bank / "schedule.toml").write_text(text)
    words = [str(bank / "schedule.toml"), "--json", *options]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedmq.cli.schedule.date", ThatDay)
        await asyncio.to_thread(schedule.main, words, standalone_mode=False)


async def test_what_is_due_is_done_once(
    federation: DaemonsInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        '[train]\nalign = "align.toml"\nactivate = "production"\n[evaluate]\nat_least = {auc = 0}\n'
        "[drift]\n"
    )
    await called(federation, text)
    done = json.loads(capsys.readouterr().out)["done"]
    assert done[0]["said"] == f"trained credit-{TODAY}, which is served as production"
    assert done[1]["said"].startswith(f"evaluated credit-{TODAY}: auc ")
    assert done[2]["said"] == "looked for drift: there is none"
    served = await federation.ask("bank", "serving")
    assert served["models"]["production"]["model"] == f"credit-{TODAY}"
    await called(federation, text)
    assert json.loads(capsys.readouterr().out) == {"done": [], "failed": []}
    await called(federation, text, "--now", "--dry-run")
    assert json.loads(capsys.readouterr().out) == {"due": ["train", "evaluate", "drift"]}


async def test_a_figure_that_is_too_low_is_an_alarm_and_activates_nothing(
    federation: DaemonsInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    low = '[train]\nalign = "align.toml"\nactivate = "production"\nat_least = {eval-auc = 1.01}\n'
    with pytest.raises(Alarm, match=rf"^eval-auc of credit-{TODAY} is [\d.]+, less than 1.01$"):
        await called(federation, low)
    assert json.loads(capsys.readouterr().out)["done"][0]["alarms"]
    assert (await federation.ask("bank", "serving"))["models"] == {}


async def test_what_fails_is_due_again_and_the_rest_is_done(
    federation: DaemonsInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[train]\n[drift]\n"
    with pytest.raises(DaemonError, match="bank has no alignment 'people'") as failed:
        await called(federation, text)
    assert failed.value.exit_code == 6
    told = json.loads(capsys.readouterr().out)
    assert [done["task"] for done in told["done"]] == ["drift"]
    assert [done["task"] for done in told["failed"]] == ["train"]
    await called(federation, text, "--dry-run")
    assert json.loads(capsys.readouterr().out) == {"due": ["train"]}
    unknown = '[train]\nalign = "align.toml"\nat_least = {auk = 1}\n'
    with pytest.raises(ConfigError, match=r"train.at_least: there is no 'auk' of .* eval-auc"):
        await called(federation, unknown)


async def test_a_standing_consent_lets_the_next_months_training_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = 'consent = "ask"\n'
    async with DaemonsInMemory(tmp_path, monkeypatch, settings=settings) as federation:
        bank = federation.folder / "bank"
        (bank / "train.toml").write_text(JOB)
        (bank / "align.toml").write_text('name = "people"\n')
        (bank / "schedule.toml").write_text('[train]\nalign = "align.toml"\n')
        wanted = Schedule.read(bank / "schedule.toml")

        async def trained(day: date) -> Outcome:
            return await asyncio.to_thread(run_task, wanted, "train", day)

        first = asyncio.create_task(trained(date(2026, 11, 1)))
        for _ in range(2):  # the alignment, then the training
            for party in PARTIES[1:]:
                file = federation.folder / party / "party.toml"
                [asked] = await federation.until(lambda party=party: waiting(federation, party))
                words = [str(file), asked["request"], "--alike", "--yes", "--json"]
                await asyncio.to_thread(approve.main, words, standalone_mode=False)
        assert (await first).said == "trained credit-2026-11-01"
        assert (await trained(date(2026, 12, 1))).said == "trained credit-2026-12-01"


async def waiting(federation: DaemonsInMemory, party: str) -> list[Any]:
    found = await federation.ask(party, "inbox")
    return [request for request in found if request["state"] == "waiting"]


def test_wrong_files_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = DaemonsInMemory(tmp_path, monkeypatch).folder / "bank"
    path = bank / "schedule.toml"
    for text, line in (
        ("", "nothing is scheduled: add"),
        ("[train]\nevry = 'week'\n", "train.evry: there is no such key; did you mean 'every'"),
        ('[drift]\nevery = "year"\n', "drift.every: "),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=line):
            Schedule.read(path)
    path.write_text("[drift]\n")
    (bank / "state").mkdir()
    (bank / "state" / "schedule.json").write_text('{"drift": 5}')
    with pytest.raises(ConfigError, match=r"schedule.json: is damaged; delete it"):
        due_tasks(Schedule.read(path), date.today())


@given(st.dates(date(2000, 1, 1), date(2100, 1, 1)))
def test_a_month_later_is_the_next_month(last: date) -> None:
    due = next_time(last, "month")
    assert (due.year * 12 + due.month) - (last.year * 12 + last.month) == 1
    assert due.day == min(last.day, calendar.monthrange(due.year, due.month)[1])
    assert next_time(last, "week") == last + timedelta(days=7)
    assert next_time(last, "day") == last + timedelta(days=1)


def test_the_page_shows_a_schedule(tmp_path: Path) -> None:
    [fence] = to_run("toml", DOCS / "how-to" / "schedule.md")
    path = tmp_path / "schedule.toml"
    path.write_text(fence.text)
    assert Schedule.read(path).tasks == {"train": "month", "evaluate": "week", "drift": "day"}
