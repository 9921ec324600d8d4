"""What classifier and regressor share: parameters, checks of tables, the training itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError
from fedmq.estimators.functions import metric_function, named_metrics, objective_function
from fedmq.estimators.parameters import (
    DEFAULT_ROUNDS,
    TRAINING_PARAMETERS,
    check_known,
    with_training_parameters,
)
from fedmq.estimators.party_columns import column_names, is_per_party
from fedmq.estimators.row_sets import RowSet, joined
from fedmq.estimators.trained_columns import TrainedColumns
from fedmq.party.data.data_frame import PartyFeatures
from fedmq.privacy.registry import engine_named
from fedmq.protocol.inference.computations import Scores
from fedmq.simulation.active_table import ACTIVE, SEVERAL_TARGETS, active_table
from fedmq.simulation.model import SimulatedModel
from fedmq.simulation.scoring import scored
from fedmq.simulation.training import Surroundings, train

__all__ = ["FederatedEstimator"]

_SEEDS = 2**31


class FederatedEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of the estimators. After ``fit``, ``model_`` is the ``fedmq.SimulatedModel``."""

    model_: SimulatedModel

    @with_training_parameters
    def __init__(
        self,
        *,
        parties: Any = None,
        engine: str = "plain",
        engine_options: Mapping[str, Any] | None = None,
        workers: int | None = None,
        smallest_cell: int = 0,
        callbacks: Sequence[Any] | None = None,
        **params: Any,
    ) -> None:
        check_known(type(self).__name__, params)
        self.parties = parties
        self.engine = engine
        self.engine_options = engine_options
        self.workers = workers
        self.smallest_cell = smallest_cell
        self.callbacks = callbacks
        for name in TRAINING_PARAMETERS:
            setattr(self, name, params.get(name))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        return tags

    @abstractmethod
    def _learn_labels(self, y: NDArray[Any]) -> dict[str, Any]:
        """The parameters that the labels ``y`` (rows,) decide."""

    @abstractmethod
    def _numbers(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels ``y`` (rows,) as the objective takes them."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        base_margin: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        sample_weight_eval_set: Sequence[Any] | None = None,
        base_margin_eval_set: Sequence[Any] | None = None,
        xgb_model: Any = None,
    ) -> Self:
        """Train on ``X``, (rows, features), and the labels ``y``, (rows,).

        ``X`` is an array or a data frame, whose columns ``parties`` deals out; or a dict of a table
        per party, the label holder's being "active". pandas objects are matched by their indexes.
        ``sample_weight`` (rows,): how often each row counts; ``base_margin`` (rows,): where each
        row starts. ``eval_set``: pairs of such an X and y that are scored after each round, as
        "validation_0", "validation_1", ...; early stopping watches the last. ``xgb_model``: a model
        whose trees come first: a ``fedmq.SimulatedModel``, the file of one, or an estimator
        that was fitted.

        Raises:
            ConfigError, DataError, ValueError: a parameter, table or label is wrong.
        """
        X = self._checked(X, reset=True)
        given = _beside(y, sample_weight, base_margin)
        columns, values, beside = TrainedColumns.of(X, self.parties, given)
        decided = self._learn_labels(_labels(beside["y"]))
        params = TrainParams.parse(self._parameters(columns) | decided, type(self).__name__)
        earlier = _earlier(xgb_model)
        sets = [self._row_set(values, beside)]
        for number, (table, labels) in enumerate(eval_set or ()):
            weight = _of_set(sample_weight_eval_set, number, "sample_weight_eval_set")
            margin = _of_set(base_margin_eval_set, number, "base_margin_eval_set")
            scored_rows = self._checked(table, reset=False)
            sets.append(
                self._row_set(*columns.values(scored_rows, _beside(labels, weight, margin)))
            )
        rows, evaluation = joined(sets)
        others = {
            party: PartyFeatures(rows.values[party], names, columns.category_columns[party])
            for party, names in columns.features.items()
        }
        own = active_table(
            others.pop(ACTIVE),
            params,
            rows.label,
            weight=rows.weight,
            base_margin=rows.base_margin,
            evaluation=evaluation,
            obj=objective_function(self.objective, weighted=rows.weight is not None),
            custom_metric=metric_function(self.eval_metric),
        )
        engine = engine_named(self.engine, self.engine_options or {}, type(self).__name__)
        surroundings = Surroundings(workers=self.workers, smallest_cell=self.smallest_cell)
        callbacks = self.callbacks or ()
        self.model_ = train(own, others, params, engine, surroundings, callbacks, earlier)
        self._columns = columns
        return self

    def _scores(self, X: Any, base_margin: Any = None) -> Scores:
        """Margins and predictions of the rows of ``X``, by every party's share."""
        check_is_fitted(self)
        beside = {} if base_margin is None else {"base_margin": base_margin}
        values, given = self._columns.values(self._checked(X, reset=False), beside)
        model = self.model_
        return scored(model.share, model.passive_shares, values, given.get("base_margin"))

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """``X`` if it is a table by scikit-learn's rules; with ``reset`` its columns are noted."""
        if is_per_party(X):
            return X
        if column_names(X) is not None:
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_data(self, X, reset=reset, ensure_all_finite="allow-nan")

    def _row_set(
        self, values: Mapping[str, NDArray[np.float32]], beside: Mapping[str, Any]
    ) -> RowSet:
        label = self._numbers(_labels(beside["y"]))
        check_consistent_length(values[ACTIVE], label)
        weight, margin = beside["sample_weight"], beside["base_margin"]
        return RowSet(
            values,
            label,
            None if weight is None else _weights(weight, label),
            None if margin is None else _margins(margin, label),
        )

    def _parameters(self, columns: TrainedColumns) -> dict[str, Any]:
        """The training's parameters, as far as they are given; columns as the training has them."""
        given = {
            field: getattr(self, name)
            for name, field in TRAINING_PARAMETERS.items()
            if getattr(self, name) is not None
        }
        if callable(given.get("objective")):
            del given["objective"]
        if "eval_metric" in given:
            given["eval_metric"] = named_metrics(given["eval_metric"])
            if not given["eval_metric"]:
                del given["eval_metric"]
        given.setdefault("num_boost_round", DEFAULT_ROUNDS)
        if isinstance(given.get("seed"), np.random.RandomState):
            given["seed"] = check_random_state(given["seed"]).randint(_SEEDS)
        if "monotone_constraints" in given:
            given["monotone_constraints"] = columns.signs(given["monotone_constraints"])
        return given


def _beside(y: Any, sample_weight: Any, base_margin: Any) -> dict[str, Any]:
    return {"y": y, "sample_weight": sample_weight, "base_margin": base_margin}


def _earlier(model: Any) -> SimulatedModel | None:
    """The model to continue, as `fit` takes it."""
    if isinstance(model, FederatedEstimator):
        check_is_fitted(model)
        return model.model_
    if isinstance(model, str | Path):
        return SimulatedModel.load(model)
    if model is not None and not isinstance(model, SimulatedModel):
        raise ConfigError(
            f"xgb_model: {type(model).__name__} is no model of fedmq; its trees must know whose "
            "columns they split"
        )
    return model


def _labels(y: Any) -> NDArray[Any]:
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")
    checked = check_array(y, ensure_2d=False, dtype=None, input_name="y")
    if checked.ndim == 2 and checked.shape[1] > 1:
        raise ConfigError(f"y: {SEVERAL_TARGETS}")
    labels: NDArray[Any] = column_or_1d(checked, warn=True)
    return labels


def _weights(weight: Any, label: NDArray[Any]) -> NDArray[np.float64]:
    weights = np.asarray(weight, dtype=np.float64)
    if weights.ndim == 0:
        return np.full(len(label), weights)
    if weights.ndim > 1:
        raise ValueError("sample_weight must be 1D array or scalar")
    check_consistent_length(weights, label)
    if not weights.any():
        raise ValueError("every sample_weight is zero: there is nothing to learn from")
    return weights


def _margins(margin: Any, label: NDArray[Any]) -> NDArray[np.float64]:
    margins = np.asarray(margin, dtype=np.float64)
    check_consistent_length(margins, label)
    return margins


def _of_set(given: Sequence[Any] | None, number: int, name: str) -> Any:
    if given is None:
        return None
    if number >= len(given):
        raise ConfigError(f"{name}: one for each pair of eval_set is needed")
    return given[number]
