"""What does a program begin with a daemon? Alignments, screens, trainings, wherever it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

from fedmq.boosting.params import TrainParams
from fedmq.boosting.screened_label import LabelType
from fedmq.errors import ConfigError, DataError
from fedmq.evaluation.screening import Screen
from fedmq.party.configuration.job import AlignmentJob, ScreenJob, TrainingJob
from fedmq.workbench.asked_model import AskedModel, frame
from fedmq.workbench.daemon import Daemon
from fedmq.workbench.run import Run, Watcher
from fedmq.workbench.search import Found, Space, search, space_named

__all__ = ["FOLDS", "JobKeys", "ScreenKeys", "Sessions"]

Made = TypeVar("Made")
Model = TypeVar("Model", bound=AskedModel)

FOLDS = 3
"""Folds of a cross-validation that says nothing of them."""


class ScreenKeys(TypedDict, total=False):
    """The keys of ``screen.toml`` beside its name, as the reference describes them."""

    label_type: LabelType
    alignment: str
    parties: Sequence[str]
    bins: int
    most_rows: int
    seed: int
    sums: Literal["shown", "hidden"]
    iv_from: float
    correlation: bool
    select: Mapping[str, float]


class JobKeys(TypedDict, total=False):
    """The keys of ``train.toml``, as the reference describes them."""

    model: str
    alignment: str
    engine: str
    engine_options: Mapping[str, Any]
    continue_from: str
    refresh: str
    refresh_leaf: bool
    parties: Sequence[str]
    evaluation: float | Mapping[str, float]
    obj: str
    custom_metric: str
    maximize: bool
    split: str | Mapping[str, str]
    decoys: bool
    fallback: bool
    category_sets: bool
    select: Mapping[str, Any]


class Sessions(ABC, Generic[Model]):
    """What is begun at ``daemon``, whose jobs are of the party's ``file``.

    What the methods raise is what the commands of the name say.
    """

    def __init__(self, daemon: Daemon, file: Path) -> None:
        self._daemon = daemon
        self._file = file

    @abstractmethod
    def _model_of(self, result: Mapping[str, Any]) -> Model:
        """The model of which ``fedmq train --json`` prints ``result``."""

    def _watchers(self, job: TrainingJob) -> list[Watcher]:
        """Who is told of the training ``job``."""
        return []

    def ask(
        self,
        command: str,
        on_progress: Callable[[Mapping[str, Any]], None] = lambda _: None,
        **request: Any,
    ) -> Any:
        """The daemon's answer to one of the owner's commands, as the command line sends it."""
        return self._daemon.request({"do": command, **request}, on_progress)

    def status(self) -> dict[str, Any]:
        """What ``fedmq status --json`` prints of a daemon that runs."""
        found: dict[str, Any] = self.ask("status")
        return found

    def align(
        self,
        name: str,
        *,
        parties: Sequence[str] | None = None,
        join: Literal["inner", "left"] = "inner",
        at_least: Sequence[str] = (),
        on_progress: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> dict[str, Any]:
        """Find the people whom all ``parties`` hold, as ``fedmq align`` does; its JSON."""
        keys = {"name": name, "join": join, "at_least": tuple(at_least)}
        if parties is not None:
            keys["parties"] = tuple(parties)
        job = AlignmentJob.of(keys, "align")
        found: dict[str, Any] = self.ask("align", on_progress, job=job.model_dump(mode="json"))
        return found

    def count_shared(
        self,
        name: str,
        *,
        parties: Sequence[str] | None = None,
        on_progress: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> dict[str, Any]:
        """Count the people whom all ``parties`` hold, as ``fedmq align --count``; its JSON."""
        keys: dict[str, Any] = {"name": name}
        if parties is not None:
            keys["parties"] = tuple(parties)
        job = AlignmentJob.of(keys, "count_shared")
        found: dict[str, Any] = self.ask("overlap", on_progress, job=job.model_dump(mode="json"))
        return found

    def screen(self, name: str, **keys: Unpack[ScreenKeys]) -> Screen:
        """Look at all parties' columns before a training, as ``fedmq screen`` does."""
        wanted: dict[str, Any] = {"name": name, **keys}
        if "parties" in wanted:
            wanted["parties"] = tuple(wanted["parties"])
        job = ScreenJob.of(wanted, "screen")
        return Screen(self.ask("screen", job=job.model_dump(mode="json")))

    def train(
        self,
        params: TrainParams | Mapping[str, Any] | None = None,
        *,
        job: str | Path | None = None,
        **keys: Unpack[JobKeys],
    ) -> Run[Model]:
        """Begin a training with all parties; it goes on by itself.

        ``job``: a file as ``fedmq train`` takes it, whose keys and parameters the others replace.
        """
        wanted = self._job("train", params, job, keys).model_copy(update={"nfold": None})
        return self._begun(wanted, self._model_of, wanted.params.total_trees)

    def cv(
        self,
        params: TrainParams | Mapping[str, Any] | None = None,
        *,
        nfold: int | None = None,
        job: str | Path | None = None,
        **keys: Unpack[JobKeys],
    ) -> Run[Any]:
        """Begin a cross-validation: its ``wait()`` has a data frame with a row for each round.

        ``nfold``: 3 if neither it nor ``job`` says how many folds.
        """
        return self.cross_validate(self._job("cv", params, job, keys), nfold)

    def cross_validate(self, job: TrainingJob, nfold: int | None = None) -> Run[Any]:
        """Begin the cross-validation of a ``job`` that was read, as `cv` does."""
        folds = nfold or job.nfold or FOLDS
        wanted = job.model_copy(update={"nfold": folds})
        return self._begun(wanted, _figures, folds * wanted.params.total_trees)

    def search(
        self,
        over: Mapping[str, str | Sequence[str | float | int | bool]],
        params: TrainParams | Mapping[str, Any] | None = None,
        *,
        trials: int = 20,
        nfold: int | None = None,
        seed: int = 0,
        job: str | Path | None = None,
        on_trial: Callable[[Found], None] = lambda _: None,
        **keys: Unpack[JobKeys],
    ) -> Found:
        """Search the best parameters by cross-validations with all parties, as ``fedmq search``.

        ``over``: ranges and choices, ``{"eta": "0.01:0.3:log", "max_depth": [3, 4, 6]}``.
        An interrupt ends the trial as well.
        """
        space = space_named(over)
        given = params.model_dump(exclude_unset=True) if isinstance(params, TrainParams) else params
        fixed = dict(given or {})
        if both := sorted({*space} & {*fixed}):
            raise ConfigError(f"{both[0]} is a parameter and searched over; leave one of them out")

        def job_of(settings: Mapping[str, Any]) -> TrainingJob:
            return self._job("search", {**fixed, **settings}, job, keys)

        return self.search_jobs(job_of, space, trials, nfold=nfold, seed=seed, on_trial=on_trial)

    def search_jobs(
        self,
        job_of: Callable[[Mapping[str, Any]], TrainingJob],
        space: Space,
        trials: int,
        *,
        nfold: int | None = None,
        seed: int = 0,
        on_trial: Callable[[Found], None] = lambda _: None,
    ) -> Found:
        """Search among the jobs that ``job_of`` makes of settings, as `search` does."""

        def cross_validate(settings: Mapping[str, Any]) -> Mapping[str, Sequence[float]]:
            # A fallback model is of the last model alone.
            tried = job_of(settings).model_copy(update={"fallback": False})
            run = self.cross_validate(tried, nfold)
            try:
                run.wait()
            except KeyboardInterrupt:
                run.cancel()
                raise
            figures: Mapping[str, Sequence[float]] = run.result["figures"]
            return figures

        return search(job_of({}), space, trials, cross_validate, seed=seed, on_trial=on_trial)

    def follow(self, session: str) -> Run[Model]:
        """The training ``session`` that is under way."""
        return Run(self._daemon, {"do": "follow", "session": session}, self._model_of)

    def _job(
        self,
        what: str,
        params: TrainParams | Mapping[str, Any] | None,
        job: str | Path | None,
        keys: JobKeys,
    ) -> TrainingJob:
        given = params.model_dump(exclude_unset=True) if isinstance(params, TrainParams) else params
        if job is not None:
            named = {f"params.{name}": value for name, value in (given or {}).items()}
            return TrainingJob.read(Path(job), {**keys, **named})
        return TrainingJob.of({**keys, "party": self._file, "params": dict(given or {})}, what)

    def _begun(
        self, job: TrainingJob, made_of: Callable[[Mapping[str, Any]], Made], trees: int
    ) -> Run[Made]:
        request = {"do": "train", "job": job.model_dump(mode="json")}
        return Run(self._daemon, request, made_of, trees, self._watchers(job))


def _figures(result: Mapping[str, Any]) -> Any:
    figures = {name: values for name, values in result["figures"].items() if values}
    if not figures:
        raise DataError("the cross-validation has no figures")
    return frame(figures)
