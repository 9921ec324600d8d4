"""``schedule.toml``: what a party does again and again without anybody at the keyboard."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from fedmq.messages.fields import ModelId
from fedmq.party.configuration.toml_file import FilePath, Section, read_toml

__all__ = ["Every", "Schedule", "next_time"]

Every = Literal["day", "week", "month"]


def next_time(last: date, every: Every) -> date:
    """The day on which what was last done on ``last`` is due again.

    A month later is the same day of the next month, or its last day.
    """
    if every == "month":
        first = (last.replace(day=1) + timedelta(days=32)).replace(day=1)
        following = (first + timedelta(days=32)).replace(day=1)
        return min(first + timedelta(days=last.day - 1), following - timedelta(days=1))
    return last + timedelta(days=1 if every == "day" else 7)


class _Training(Section):
    """A model is trained anew on the people of today, whom an alignment may find again."""

    every: Every = "month"
    """How often: once a ``"day"``, ``"week"`` or ``"month"``."""
    job: FilePath = Path("train.toml")
    """The training job. Its model's name gets the day: ``credit-2026-11-26``."""
    align: FilePath | None = None
    """An alignment job that is made anew first; none is when left out."""
    at_least: Mapping[str, float] = Field(default_factory=dict)
    """The least of each metric, such as ``{ eval-auc = 0.7 }``: below it there is an alarm, and the
    model is not activated."""
    activate: ModelId | None = None
    """The name under which the new model is served at once; left out, it is not."""


class _Evaluation(Section):
    """A model is evaluated by all parties together."""

    every: Every = "week"
    """As of ``[train]``."""
    model: ModelId | None = None
    """The model, or an activated name; what is in production when left out."""
    rows: FilePath | None = None
    """A CSV file of people with labels; those that the training held out when left out."""
    label: str | None = None
    """The label's column in ``rows``; as in ``[data]`` when left out."""
    at_least: Mapping[str, float] = Field(default_factory=dict)
    """The least of each figure, such as ``{ auc = 0.7 }``: below it there is an alarm."""


class _Drift(Section):
    """Drifting columns and scores of what is served are an alarm, at other parties as well."""

    every: Every = "day"
    """As of ``[train]``. What drifts is what ``[online.drift]`` says."""


class Schedule(Section):
    """What ``fedmq schedule`` does where it is due; a table that is left out is never."""

    file = "schedule"

    party: FilePath = Path("party.toml")
    """The active party's file; relative to the folder of this one."""
    train: _Training | None = None
    """A training."""
    evaluate: _Evaluation | None = None
    """An evaluation."""
    drift: _Drift | None = None
    """A look at what drifts."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.tasks:
            raise ValueError("nothing is scheduled: add [train], [evaluate] or [drift]")
        return self

    @property
    def tasks(self) -> dict[str, Every]:
        """How often each scheduled task is due, in the order in which they are done."""
        found = {"train": self.train, "evaluate": self.evaluate, "drift": self.drift}
        return {name: task.every for name, task in found.items() if task is not None}

    @classmethod
    def read(cls, path: Path) -> Schedule:
        """Raises ConfigError naming file and key."""
        return read_toml(path, cls)
