"""A training by daemons becomes a run of MLflow, with what this party knows of it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlflow
from mlflow.entities import Metric, Param, RunTag

from fedmq.boosting.model.share import ActiveShare
from fedmq.evaluation.card import card_of, markdown_of
from fedmq.evaluation.page import html_of
from fedmq.evaluation.report import Report
from fedmq.mlflow.models import first_line, log_model
from fedmq.party.card.signed_card import CardFile
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.documents import cards, training_records
from fedmq.workbench.connection import WATCHED_BY, Party
from fedmq.workbench.evaluation import Evaluation
from fedmq.workbench.model import EVALUATED, PartyModel
from fedmq.workbench.own_shares import OwnShares
from fedmq.workbench.run import Run

__all__ = ["autolog"]

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 1000
"""Metrics of one request to a tracking server."""
_LONGEST = 5000
"""Characters of a parameter or tag."""


@dataclass(frozen=True, slots=True)
class _Logged:
    """What is logged beside parameters, figures and card."""

    share: bool
    models: bool
    registered: str | None


_runs: dict[tuple[str, str], str] = {}
"""The run of each model that this program has trained, by the party's file and the model's name."""


def autolog(
    *,
    log_share: bool = True,
    log_models: bool = True,
    registered_model_name: str | None = None,
    disable: bool = False,
) -> None:
    """Log every training that this program begins by daemons, until ``disable`` ends it.

    A run has parameters, each metric after each round, the model's card, this party's share, and
    the model for `load_model`. An active run is used, or a new one begun and ended. What
    `PartyModel.evaluate` finds is added, as figures and report; no id and no score of a person is.
    A tracking store that fails is warned of, and no training ends by it.

    ``log_share``: without it no tree, column or threshold of this party is logged.
    ``registered_model_name``: every model becomes a version of it.
    """
    WATCHED_BY[:] = [other for other in WATCHED_BY if getattr(other, "func", None) is not _Training]
    EVALUATED[:] = [other for other in EVALUATED if other is not _evaluated]
    if not disable:
        wanted = _Logged(log_share, log_models, registered_model_name)
        WATCHED_BY.append(partial(_Training, wanted))
        EVALUATED.append(_evaluated)


class _Training:
    """Logs one training, or cross-validation, of ``party``."""

    def __init__(self, wanted: _Logged, party: Party, job: TrainingJob) -> None:
        self._wanted = wanted
        self._party = party
        self._job = job
        active = mlflow.active_run()  # asked for here: each thread has its own
        self._run = "" if active is None else active.info.run_id
        self._begun_here = active is None
        self._rounds = 0

    def opened(self, run: Run[Any]) -> None:
        with _warned("begin a run"):
            if self._begun_here:
                self._run = mlflow.start_run(run_name=run.model).info.run_id
            tags = {
                "fedmq.party": self._party.name,
                "fedmq.session": run.session,
                "fedmq.model": run.model or "",
            }
            _client().log_batch(
                self._run,
                params=[Param(name, value[:_LONGEST]) for name, value in _parameters(self._job)],
                tags=[RunTag(name, value) for name, value in tags.items()],
            )

    def progressed(self, run: Run[Any]) -> None:
        trees = self._job.params.trees_per_round
        done, rest = divmod(run.progress.done, trees)
        if rest or done != self._rounds + 1 or self._job.nfold or not self._run:
            return  # what was not told of is logged at the end
        with _warned("log a round"):
            _log(self._run, {name: {done - 1: at} for name, at in run.progress.metrics.items()})
            self._rounds = done

    def ended(self, result: Mapping[str, Any] | None, failure: BaseException | None) -> None:
        if not self._run:
            return
        with _warned("log a training"):
            if failure is not None:
                _client().set_tag(self._run, "fedmq.error", str(failure)[:_LONGEST])
            elif result is not None and "figures" in result:
                figures = {name: values for name, values in result["figures"].items() if values}
                _log(self._run, {name: dict(enumerate(values)) for name, values in figures.items()})
            elif result is not None:
                self._log_model(self._party.models[result["model"]])
        if self._begun_here:
            with _warned("end a run"):
                mlflow.end_run("FAILED" if failure is not None else "FINISHED")

    def _log_model(self, model: PartyModel) -> None:
        shares = OwnShares(model.party_file)
        share = shares.checked(model.name)
        assert isinstance(share, ActiveShare)  # only the active party begins trainings
        _runs[_key(model)] = self._run
        _log(
            self._run,
            {name: dict(enumerate(at)) for name, at in share.history.items()},
            after=self._rounds,
        )
        _log_card(self._run, shares, share, None)
        if self._wanted.share:
            _client().log_text(self._run, share.dumps(), "share.json")
        if self._wanted.models:
            last = max((len(values) for values in share.history.values()), default=1) - 1
            name = self._wanted.registered
            log_model(model, registered_model_name=name, run_id=self._run, step=last)


def _evaluated(model: PartyModel, evaluation: Evaluation) -> None:
    """Log an evaluation under the run of its model, or the active one."""
    active = mlflow.active_run()
    run = _runs.get(_key(model)) or (None if active is None else active.info.run_id)
    if run is None:
        return
    with _warned("log an evaluation"):
        _log(run, {f"report {name}": {0: value} for name, value in evaluation.metrics.items()})
        report = evaluation.report
        _client().log_text(run, report.model_dump_json(indent=1), "report.json")
        _client().log_text(run, html_of(report), "report.html")
        shares = OwnShares(model.party_file)
        share = shares.checked(model.name)
        assert isinstance(share, ActiveShare)  # only the active party evaluates
        _log_card(run, shares, share, report)


def _log_card(run: str, shares: OwnShares, share: ActiveShare, report: Report | None) -> None:
    """Log the card that the party has, or one that nobody has signed yet."""
    kept = cards(shares.state).find(share.model_id)
    file = None if kept is None else CardFile.model_validate_json(kept)
    # A card outlives its model, and another one may be trained under the same name.
    if file is None or (file.card.training and file.card.training.session != share.training):
        record = training_records(shares.state).find(share.model_id)
        drift = shares.config.online.drift
        card = card_of(share, shares.federation.name, record, report, {}, drift)
        file = CardFile(card=card)
    page = markdown_of(file, file.signatures(shares.federation))
    _client().log_text(run, file.model_dump_json(indent=1), "card.json")
    _client().log_text(run, page, "card.md")


def _parameters(job: TrainingJob) -> list[tuple[str, str]]:
    """The parameters of the training, and the keys of the job that are set."""
    keys = job.model_dump(mode="json", exclude={"party", "model", "params"}, exclude_defaults=True)
    params = job.params.model_dump(mode="json", exclude_none=True)
    return [(name, str(value)) for name, value in {**params, **keys}.items()]


def _log(run: str, figures: Mapping[str, Mapping[int, float]], after: int = 0) -> None:
    """Log figures by name and step, from the step ``after`` on."""
    now = int(time.time() * 1000)
    found = [
        Metric(name.replace("@", " at "), value, now, step)  # MLflow takes no @, as in ndcg@5
        for name, values in figures.items()
        for step, value in values.items()
        if step >= after
    ]
    for start in range(0, len(found), _MOST_AT_ONCE):
        _client().log_batch(run, metrics=found[start : start + _MOST_AT_ONCE])


def _client() -> Any:
    return mlflow.MlflowClient()


def _key(model: PartyModel) -> tuple[str, str]:
    return str(model.party_file.resolve()), model.name


@contextlib.contextmanager
def _warned(what: str) -> Iterator[None]:
    """What fails within is warned of: a training does not end by its record."""
    try:
        yield
    except Exception as error:  # of a store's driver, too: there are many
        log.warning("MLflow could not %s: %s", what, first_line(error))
