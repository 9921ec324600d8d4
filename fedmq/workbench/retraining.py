"""A model is trained once more without a person, and compared with the old one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedmq.errors import ConfigError, DataError
from fedmq.evaluation.evaluate import ScoredRows, kind_of
from fedmq.evaluation.quantiles import pinball_loss
from fedmq.messages.fields import NAME_OF_MODEL
from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.control import request_daemon
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.documents import (
    ModelStore,
    check_unserved,
    held_out_rows,
    training_records,
)
from fedmq.workbench.erasure import person_of
from fedmq.workbench.evaluation import scored_rows
from fedmq.workbench.under_way import alignment_holds, in_own_table

__all__ = ["Retrained", "delete_old", "retrain"]

_LONGEST_NAME = 64
_SUFFIX = "-anew"


@dataclass(frozen=True, slots=True)
class Retrained:
    """The ``model`` trained instead of ``old``, and both losses on ``rows`` that both held out.

    Less of ``metric`` is better. ``why`` says why they were not compared, if they were not.
    """

    old: str
    model: str
    rows: int = 0
    metric: str = ""
    before: float | None = None
    after: float | None = None
    why: str = ""

    @property
    def as_good(self) -> bool:
        """Whether it is equal or better; not if that is unknown."""
        return self.before is not None and self.after is not None and self.after <= self.before


def retrain(
    party: Path,
    old: str,
    name: str,
    align: Path | None = None,
    called: str | None = None,
    on_progress: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Retrained:
    """Train ``old`` by its own job without the person of the id ``name``, for all parties' consent.

    ``align``: a job by which the alignment is made anew first. ``called``: the new model's name.

    Raises:
        ConfigError: this is not the active party, a name is taken, or scikit-learn is missing.
        DataError: the person is in the table or the alignment still, or the job is not known.
        DaemonError: no daemon runs, or the training fails.
    """
    if find_spec("sklearn") is None:  # before hours of training
        raise ConfigError("scikit-learn is not installed; run: pip install 'fedmq[report]'")
    config, federation = PartyFile.read(party)
    if config.party != federation.active:
        raise ConfigError(f"{party}: only {federation.active}, which has the label, trains")
    ModelStore(config.state).active(old)
    record = training_records(config.state).find(old)
    if record is None:
        raise DataError(f"model {old}: its job is not kept; train it anew with: fedmq train")
    ask = partial(request_daemon, config.state)
    job = _job(config, record.job, old, called)
    _check_gone(config, person_of(config, name))
    if align is not None:
        made = AlignmentJob.read(align)
        ask({"do": "align", "job": made.model_dump(mode="json")}, on_progress)
        job = job.model_copy(update={"alignment": made.name})
    _check_alignment(config, job, person_of(config, name))
    ask({"do": "train", "job": job.model_dump(mode="json")}, on_progress)
    assert job.model is not None
    return _compared(config, old, job.model, ask)


def delete_old(config: PartyFile, old: str, seconds: float) -> dict[str, str]:
    """Delete ``old`` at all parties that agree; by party, why a share of it is left.

    Raises:
        DaemonError: no daemon runs.
    """
    try:
        check_unserved(config.state, old)
    except ConfigError as error:
        return {config.party: str(error)}
    asked: Mapping[str, Any] = request_daemon(
        config.state, {"do": "delete_everywhere", "model": old, "seconds": seconds}
    )
    left = {name: answer["refused"] for name, answer in asked.items() if "refused" in answer}
    if left:
        left[config.party] = "kept until all other parties have deleted their shares"
    return left


def _job(config: PartyFile, job: TrainingJob, old: str, called: str | None) -> TrainingJob:
    if job.continue_from is not None:
        raise DataError(
            f"model {old}: it continues {job.continue_from}, whose trees may have learned from the "
            "person; train that one anew first, and then this one with: fedmq train"
        )
    name = called or old[: _LONGEST_NAME - len(_SUFFIX)] + _SUFFIX
    if re.fullmatch(NAME_OF_MODEL, name) is None:
        raise ConfigError(
            f"--as: {name!r} names no model; write a letter or digit, and up to 63 letters, "
            "digits, dots, _ or -"
        )
    if name in ModelStore(config.state).ids():
        raise ConfigError(f"model {name} exists already; choose another name with --as")
    return job.model_copy(update={"model": name})


def _check_gone(config: PartyFile, person: str) -> None:
    if in_own_table(config, person):
        raise DataError(
            f"{config.party}: the person is in {config.data.place} still, so a model would learn "
            "from the person again; take the person out first"
        )


def _check_alignment(config: PartyFile, job: TrainingJob, person: str) -> None:
    if job.alignment is None:
        return
    if job.alignment in AlignmentStore(config.state).names():
        if not alignment_holds(config, job.alignment, person):
            return
        why = "holds the person"
    else:
        why = "is not kept"
    raise DataError(f"alignment {job.alignment} {why}; make it anew with --align JOB.toml")


def _compared(config: PartyFile, old: str, new: str, ask: Callable[[Any], Any]) -> Retrained:
    """Both losses on the rows that neither training has learned from."""
    from sklearn.metrics import log_loss, root_mean_squared_error

    share = ModelStore(config.state).active(new)
    found = [held_out_rows(config.state).find(model) for model in (old, new)]
    before, after = found
    if before is None or after is None:
        return Retrained(old, new, why="the job holds no rows out")
    if after.label.ndim > 1:
        return Retrained(old, new, why="its rows have several labels; see: fedmq evaluate")
    try:
        kind = kind_of(share.params)
    except DataError as error:
        return Retrained(old, new, why=str(error))
    both = np.flatnonzero(np.isin(np.array(after.ids), np.array(before.ids)))
    ids = tuple(after.ids[row] for row in both)
    if not ids:
        return Retrained(old, new, why="no row was held out by both trainings")
    label = after.label[both].astype(np.float64)
    rows = ScoredRows(ids, ("both",) * len(ids), label, np.full(len(ids), np.nan))
    losses = []
    for model in (old, new):
        usable, without_score, _, _ = scored_rows(ask, model, rows)
        if without_score:
            why = f"{without_score} of {len(ids)} rows have no score by {model}"
            return Retrained(old, new, why=why)
        if kind == "regression":
            losses.append(float(root_mean_squared_error(usable.label, usable.score)))
        elif kind == "quantiles":
            losses.append(pinball_loss(usable.label, usable.score, share.params.quantiles))
        else:
            classes = np.arange(usable.score.shape[1]) if kind == "classes" else [0, 1]
            losses.append(float(log_loss(usable.label, usable.score, labels=classes)))
    metric = {"regression": "rmse", "quantiles": "pinball loss"}.get(kind, "log loss")
    return Retrained(old, new, len(ids), metric, losses[0], losses[1])
