"""A search for parameters: each trial is a cross-validation by the daemons, chosen by Optuna."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmq.boosting.metrics import watched_maximizes
from fedmq.errors import ConfigError
from fedmq.party.configuration.job import TrainingJob
from fedmq.workbench.asked_model import frame

__all__ = ["Choice", "Found", "Range", "Space", "Trial", "search", "space_named", "space_of"]


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones if both are whole.

    ``log``: as many between 0.01 and 0.1 as between 0.1 and 1.
    """

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values."""

    values: tuple[str | float | int | bool, ...]


Space = Mapping[str, Range | Choice]
"""By name of a training parameter, what it may be."""


@dataclass(frozen=True, slots=True)
class Trial:
    """``settings`` that were tried, and the watched metric's best mean over the folds."""

    settings: Mapping[str, Any]
    value: float


@dataclass(frozen=True, slots=True)
class Found:
    """All ``trials`` in their order; ``metric`` is the one that was watched, the job's last."""

    metric: str
    maximize: bool
    trials: tuple[Trial, ...] = field(default=())

    def frame(self) -> Any:
        """A pandas data frame with a row for each trial, the best first."""
        rows = [{**trial.settings, self.metric: trial.value} for trial in self.trials]
        ranked = sorted(rows, key=lambda row: row[self.metric], reverse=self.maximize)
        return frame({name: [row[name] for row in ranked] for name in ranked[0]})

    @property
    def best(self) -> Trial:
        """The best trial, the first of several."""
        chosen = max if self.maximize else min
        return chosen(self.trials, key=lambda trial: trial.value)


def space_of(texts: Sequence[str]) -> Space:
    """The space that texts such as ``eta=0.01:0.3:log`` and ``max_depth=3,4,6`` name.

    Raises:
        ConfigError: a text names nothing, or its range is empty.
    """
    space: dict[str, Range | Choice] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not (name and equals and values):
            raise ConfigError(f"{text!r}: write NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A,B,C")
        if name in space:
            raise ConfigError(f"{text!r}: {name} is given twice")
        space[name] = _range(text, values) if ":" in values else _choice(text, values)
    return _some(space)


def _range(text: str, values: str) -> Range:
    low, high, *log = (_value(part) for part in values.split(":"))
    if log not in ([], ["log"]) or not all(_is_number(end) for end in (low, high)):
        raise ConfigError(f"{text!r}: write NAME=LOW:HIGH, or NAME=LOW:HIGH:log")
    if not low < high:
        raise ConfigError(f"{text!r}: {low} is not below {high}")
    if log and low <= 0:
        raise ConfigError(f"{text!r}: a range by logarithms begins above 0")
    return Range(low, high, bool(log))


def _choice(text: str, values: str) -> Choice:
    found = tuple(_value(part.strip()) for part in values.split(","))
    if len(found) < 2:
        raise ConfigError(f"{text!r}: a single value is no choice; give it with --set")
    return Choice(found)


def space_named(over: Mapping[str, str | Sequence[str | float | int | bool]]) -> Space:
    """The space of ``{"eta": "0.01:0.3:log", "max_depth": [3, 4, 6]}``, as `space_of` reads texts.

    Raises:
        ConfigError: a range or a choice cannot be read.
    """
    space: dict[str, Range | Choice] = {}
    for name, values in over.items():
        if isinstance(values, str):
            space |= space_of([f"{name}={values}"])
        elif len(values) < 2:
            raise ConfigError(f"{name}: a single value is no choice; give it as a parameter")
        else:
            space[name] = Choice(tuple(values))
    return _some(space)


def _some(space: Space) -> Space:
    if not space:
        raise ConfigError("there is nothing to search: name a parameter and its range")
    return space


def _value(text: str) -> Any:
    """``text`` as a number or a truth value, if it is one."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def search(
    job: TrainingJob,
    space: Space,
    trials: int,
    cross_validate: Callable[[Mapping[str, Any]], Mapping[str, Sequence[float]]],
    *,
    seed: int = 0,
    on_trial: Callable[[Found], None] = lambda _: None,
) -> Found:
    """Try ``trials`` settings of ``space``: Optuna's TPE proposes each from those before.

    ``cross_validate`` gives the figures of settings, as `Party.cv` has them; what it raises ends
    the search. ``on_trial`` is called after each trial with all that was found.

    Raises:
        ConfigError: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise ConfigError("optuna is not installed; run: pip install 'fedmq[search]'") from None
    if job.custom_metric is not None:
        raise ConfigError("custom_metric: a search watches a metric of eval_metric; leave it out")
    watched = job.params.eval_metric[-1]
    maximize = watched_maximizes(watched, job.params, None)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize" if maximize else "minimize",
        sampler=optuna.samplers.TPESampler(seed=seed),
    )
    found = Found(watched, maximize)
    for _ in range(trials):
        trial = study.ask()
        settings = {name: _suggested(trial, name, values) for name, values in space.items()}
        figures = cross_validate(settings)[f"test-{watched}-mean"]
        value = float((max if maximize else min)(figures))
        study.tell(trial, value)
        found = Found(watched, maximize, (*found.trials, Trial(settings, value)))
        on_trial(found)
    return found


def _suggested(trial: Any, name: str, values: Range | Choice) -> Any:
    if isinstance(values, Choice):
        return trial.suggest_categorical(name, list(values.values))
    if isinstance(values.low, int) and isinstance(values.high, int):
        return trial.suggest_int(name, values.low, values.high, log=values.log)
    return trial.suggest_float(name, values.low, values.high, log=values.log)
