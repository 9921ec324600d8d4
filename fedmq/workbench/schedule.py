"""What a schedule says is done where it is due: a training, an evaluation, a look at drift.

A task that fails stays due. Which have been done, and when, lies in the party's state folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from fedmq.errors import ConfigError, FedmqError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.schedule import Schedule, next_time
from fedmq.party.store.documents import chosen_model
from fedmq.workbench.connection import Party, connect

__all__ = ["Outcome", "due_tasks", "run_task"]

_MODEL = "model"
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """What ``task`` has ``said``; ``alarms`` are for its owner, ``failure`` is why it stays due."""

    task: str
    said: str
    alarms: tuple[str, ...] = ()
    failure: FedmqError | None = None


def due_tasks(schedule: Schedule, today: date) -> list[str]:
    """The tasks that are due, in their order; all are that were never done.

    Raises:
        ConfigError: the file of what was done is damaged.
    """
    done = _done(_place(schedule))
    return [
        task
        for task, every in schedule.tasks.items()
        if task not in done or next_time(done[task], every) <= today
    ]


def run_task(schedule: Schedule, task: str, today: date) -> Outcome:
    """Do ``task`` by the party's daemon, and keep that it was done."""
    tasks: Mapping[str, Callable[[Schedule, Party, date], Outcome]] = {
        "train": _train,
        "evaluate": _evaluate,
        "drift": _drift,
    }
    try:
        outcome = tasks[task](schedule, connect(schedule.party), today)
        place = _place(schedule)
        kept = {**_done(place), task: today}
        text = json.dumps({name: day.isoformat() for name, day in kept.items()})
        write_atomically(place, text, 0o600)
    except FedmqError as error:
        return Outcome(task, str(error), failure=error)
    except OSError as error:
        failure = ConfigError(f"{_place(schedule)}: cannot be written: {error.strerror}")
        return Outcome(task, str(failure), failure=failure)
    return outcome


def _train(schedule: Schedule, party: Party, today: date) -> Outcome:
    wanted = schedule.train
    assert wanted is not None
    job = TrainingJob.read(wanted.job)
    day = f"-{today.isoformat()}"
    name = (job.model or _MODEL)[: _LONGEST_NAME - len(day)] + day
    if name not in party.models:  # it is, where it was trained and could not be activated
        if wanted.align is not None:
            aligned = AlignmentJob.read(wanted.align)
            party.ask("align", job=aligned.model_dump(mode="json"))
        party.train(job=wanted.job, model=name).wait()
    model = party.models[name]
    low = _below(dict(model.metrics), wanted.at_least, name, f"{wanted.job}: train.at_least")
    if wanted.activate is None or low:
        return Outcome("train", f"trained {name}", low)
    model.activate(wanted.activate)
    return Outcome("train", f"trained {name}, which is served as {wanted.activate}")


def _evaluate(schedule: Schedule, party: Party, _: date) -> Outcome:
    wanted = schedule.evaluate
    assert wanted is not None
    state = PartyFile.read(schedule.party)[0].state
    name = chosen_model(state, wanted.model).model
    metrics = party.models[name].evaluate(wanted.rows, label=wanted.label).metrics
    figures = ", ".join(f"{metric} {value:.5f}" for metric, value in metrics.items())
    low = _below(metrics, wanted.at_least, name, "evaluate.at_least")
    return Outcome("evaluate", f"evaluated {name}: {figures}", low)


def _drift(_: Schedule, party: Party, __: date) -> Outcome:
    drift = party.status()["drift"]
    columns = [
        f"{found['column']} of model {found['model']} drifts: its population stability index is "
        f"{found['index']:.2f}"
        for found in drift["columns"]
        if found["alarm"]
    ]
    others = [f"{name} says that its columns drift" for name in drift["parties"]]
    said = "looked for drift" if columns or others else "looked for drift: there is none"
    return Outcome("drift", said, (*columns, *others))


def _below(
    metrics: Mapping[str, float], least: Mapping[str, float], model: str, where: str
) -> tuple[str, ...]:
    """An alarm for each metric that is too low; ConfigError for one that there is not."""
    unknown = next((name for name in least if name not in metrics), None)
    if unknown is not None:
        known = ", ".join(metrics) or "none: the job holds no rows out"
        raise ConfigError(f"{where}: there is no {unknown!r} of {model}; there are {known}")
    return tuple(
        f"{name} of {model} is {metrics[name]:.5f}, less than {value:g}"
        for name, value in least.items()
        if not metrics[name] >= value
    )


def _place(schedule: Schedule) -> Path:
    return PartyFile.read(schedule.party)[0].state / "schedule.json"


def _done(place: Path) -> dict[str, date]:
    """The day on which each task was last done."""
    try:
        kept = json.loads(place.read_bytes())
        return {str(name): date.fromisoformat(day) for name, day in kept.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError):
        raise ConfigError(
            f"{place}: is damaged; delete it, and everything is due once more"
        ) from None
