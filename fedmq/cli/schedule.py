"""``fedmq schedule``: trainings, evaluations and looks at drift that nobody has to think of."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import click

from fedmq.cli.output import joined, json_option, print_result
from fedmq.errors import Alarm
from fedmq.party.configuration.schedule import Schedule
from fedmq.workbench.schedule import due_tasks, run_task

__all__ = ["schedule"]


@click.command()
@click.argument("schedule_file", metavar="SCHEDULE", type=click.Path(path_type=Path))
@click.option("--now", is_flag=True, help="Do everything, due or not.")
@click.option("--dry-run", is_flag=True, help="Only say what is due.")
@json_option
def schedule(schedule_file: Path, now: bool, dry_run: bool, as_json: bool) -> None:
    """Do what SCHEDULE says is due: train anew, evaluate, look for drift.

    A timer of the system calls it, once a day or oftener. Other parties are asked as for any
    training: what their policies allow, and their owners have consented to, goes on. What fails is
    tried again by the next call, and ends this one with its exit code; 11 stands for an alarm: a
    figure that is too low, or drift.
    """
    wanted, today = Schedule.read(schedule_file), date.today()
    tasks = list(wanted.tasks) if now else due_tasks(wanted, today)
    if dry_run:
        print_result({"due": tasks}, as_json, lambda _: ", ".join(tasks) or "nothing is due")
        return
    outcomes = [run_task(wanted, task, today) for task in tasks]
    result = {
        "done": [
            {"task": done.task, "said": done.said, "alarms": list(done.alarms)}
            for done in outcomes
            if done.failure is None
        ],
        "failed": [
            {"task": done.task, "said": done.said} for done in outcomes if done.failure is not None
        ],
    }
    print_result(result, as_json, _in_words)
    failed = next((done.failure for done in outcomes if done.failure is not None), None)
    if failed is not None:
        raise failed
    alarms = [alarm for done in outcomes for alarm in done.alarms]
    if alarms:
        raise Alarm("; ".join(alarms))


def _in_words(result: Any) -> Any:
    lines = [done["said"] for done in result["done"]]
    lines += [f"{failed['task']} failed, and is due again" for failed in result["failed"]]
    return joined(*lines) if lines else "nothing is due"
