"""A training by the daemons of a federation, as an estimator asks for it.

People and labels are those of the active party's own table; what a program gives is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.columns import NumberSpelling
from fedmq.party.data.id_column import comparable
from fedmq.party.data.table import read_text_column
from fedmq.party.store.alignments import AlignmentStore
from fedmq.workbench.asked_model import ids_of
from fedmq.workbench.connection import connect
from fedmq.workbench.model import PartyModel

__all__ = ["DaemonTraining", "check_left_out"]

_ELSEWHERE = {
    "parties": "job = {'parties': ['telco']} names those that take part; columns are in their own "
    "tables",
    "workers": "[compute] in the party's file says it",
    "smallest_cell": "[policy] in each party's file says it",
    "duplicates": "[data] duplicates in the party's file says it",
    "callbacks": "a daemon runs none; the run of fedmq.connect(...).train is watched and cancelled",
    "sample_weight": "[data] weight in the party's file names the column",
    "base_margin": "[data] base_margin in the party's file names the column",
    "eval_set": "job = {'evaluation': 0.2} holds rows out",
    "sample_weight_eval_set": "[data] weight in the party's file names the column",
    "base_margin_eval_set": "[data] base_margin in the party's file names the column",
    "qid": "[data] qid in the party's file names the column",
    "group": "[data] qid in the party's file names the column of each row's query",
    "eval_qid": "job = {'evaluation': 0.2} holds rows out",
    "eval_group": "job = {'evaluation': 0.2} holds rows out",
    "xgb_model": "job = {'continue_from': 'NAME'} names a model of the party",
}
"""What a training by daemons takes from elsewhere."""

_OWN_KEYS = {
    "party": "it is federation",
    "params": "they are the estimator's parameters",
    "nfold": "folds are those of fedmq.connect(...).cv",
    "engine": "it is the estimator's engine",
    "engine_options": "they are the estimator's engine_options",
}
"""The keys of ``train.toml`` that an estimator has itself."""


def check_left_out(given: Mapping[str, Any]) -> None:
    """ConfigError if something of ``given`` is not None that daemons take from elsewhere."""
    for name, value in given.items():
        if value is not None and name in _ELSEWHERE:
            raise ConfigError(f"{name}: not with federation; {_ELSEWHERE[name]}")


class DaemonTraining:
    """A training of the active party whose file is ``party_file``.

    ``job``: keys of ``train.toml``.

    Raises:
        ConfigError: the file or a key is wrong, or the party holds no labels.
    """

    def __init__(self, party_file: str | Path, job: Mapping[str, Any] | None) -> None:
        self._config, federation = PartyFile.read(Path(party_file))
        self._party_file = party_file
        self._job = dict(job or {})
        for key, place in _OWN_KEYS.items():
            if key in self._job:
                raise ConfigError(f"job: {key}: {place}")
        if self._config.party != federation.active or not self._config.data.labels:
            raise ConfigError(
                f"{party_file}: only {federation.active}, which holds the labels, trains"
            )
        if len(self._config.data.labels) > 1:
            raise ConfigError(
                f"{party_file}: data.label: an estimator learns one label of daemons, and there "
                f"are {len(self._config.data.labels)}: use fedmq train"
            )
        [self._column] = self._config.data.labels

    @cached_property
    def labels(self) -> dict[str, float]:
        """By id, the label of each person of the training, as a number.

        Raises:
            DataError: there is no such alignment, or a label is missing or no number.
        """
        config = self._config
        texts = read_text_column(config.party, config.data, self._column)
        alignment = self._job.get("alignment")
        ids = texts if alignment is None else AlignmentStore(config.state).load(alignment).ids
        return {name: self._number(name, texts.get(name, "")) for name in ids if name is not None}

    @property
    def label(self) -> NDArray[Any]:
        """The labels (rows,): float64, or int64 where all are whole numbers."""
        found = np.fromiter(self.labels.values(), np.float64)
        whole = bool((found == np.round(found)).all())
        return found.astype(np.int64) if whole else found

    @property
    def classes(self) -> NDArray[Any] | None:
        """The words that the party's file has for 0, 1, ...; None if it has none."""
        words = self._config.data.label_classes
        return np.array(words) if words else None

    def check(self, people: Any, y: ArrayLike | None) -> None:
        """Compare ``people`` and their labels ``y`` with those of the party's own table.

        Raises:
            ConfigError: they are not all people of the training, or their labels differ.
        """
        if people is None:
            if y is not None:
                raise ConfigError("y: labels without ids cannot be compared; leave both out")
            return
        ids = comparable(ids_of(people), self._config.data)
        outside = next((name for name in ids if name not in self.labels), None)
        if outside is not None:
            raise ConfigError(f"X: {outside!r} is not among the people of the training")
        lacking = len(self.labels.keys() - set(ids))
        if lacking:
            raise ConfigError(
                f"X: {lacking} of {len(self.labels)} people of the training are not in it; daemons "
                "train on all of them. Folds are those of fedmq.connect(...).cv and fedmq search"
            )
        if y is None:
            return
        labels = np.asarray(y).reshape(-1).tolist()
        if len(labels) != len(ids):
            raise ConfigError(f"y: {len(labels)} labels for {len(ids)} people")
        for name, label in zip(ids, labels, strict=True):
            if np.float32(self._number(name, str(label))) != np.float32(self.labels[name]):
                raise ConfigError(
                    f"y: the label of {name!r} is another one than in column "
                    f"{self._column!r} of {self._config.data.place}, which daemons learn"
                )

    def train(
        self, params: TrainParams, engine: str | None, engine_options: Mapping[str, Any] | None
    ) -> PartyModel:
        """The model, when all parties have it; errors are those of ``fedmq train``."""
        chosen = {"engine": engine, "engine_options": engine_options}
        keys: dict[str, Any] = {
            **self._job,
            **{key: value for key, value in chosen.items() if value is not None},
        }
        return connect(self._party_file).train(params, **keys).wait()

    def _number(self, name: str, text: str) -> float:
        words = self._config.data.label_classes
        if text in words:
            return float(words.index(text))
        try:
            return NumberSpelling.of(self._config.data).number(text)
        except ValueError:
            raise DataError(
                f"{self._config.data.place}, column {self._column!r}: {text[:40]!r} of "
                f"{name!r} is not a label"
            ) from None
