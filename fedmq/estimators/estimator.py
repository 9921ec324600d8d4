"""Classifier and regressor of scikit-learn, by federated trees.

The shared base comes first: parameters, checks of tables, and the training.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fedmq.boosting.callbacks import TrainingCallback
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.estimators.columns import TrainedColumns, column_names, is_per_party
from fedmq.estimators.daemons import DaemonTraining, check_left_out
from fedmq.estimators.parameters import (
    DEFAULT_ROUNDS,
    PARAMETERS,
    check_known,
    metric_function,
    named_metrics,
    objective_function,
    with_training_parameters,
)
from fedmq.party.data.data_frame import PartyFeatures
from fedmq.privacy.registry import engine_named
from fedmq.protocol.inference.computations import Scores
from fedmq.simulation.evaluation_rows import RowSet, joined
from fedmq.simulation.model import SimulatedModel, scored
from fedmq.simulation.repeated_ids import check_duplicates
from fedmq.simulation.simulate import Surroundings, train
from fedmq.simulation.tables import ACTIVE, MatchedRows, active_table, with_queries
from fedmq.workbench.asked_model import ids_of
from fedmq.workbench.model import PartyModel

__all__ = [
    "FederatedClassifier",
    "FederatedEstimator",
    "FederatedRegressor",
    "beside_rows",
    "of_set",
]

_SEEDS = 2**31
_TWO, _MORE = ("binary:logistic",), ("multi:softprob", "multi:softmax")
_DEFAULT_OBJECTIVE = "reg:squarederror"
_MEANS = ("gain", "cover")
_TRAINING_ROWS = "train"
_ENGINE, _HIDES_PEOPLE = "plain", "lattice"
_ELSEWHERE = {
    "apply": "model_.predict(..., pred_leaf=True) has the leaves",
    "save_model": "joblib.dump(estimator, path) keeps labels and columns too, and "
    "estimator.model_.save(path) the model alone",
    "load_model": "joblib.load(path) reads an estimator, and fedmq.SimulatedModel.load(path) what "
    "model_.save(path) wrote",
    "get_xgb_params": "get_params() has them",
    "get_num_boosting_rounds": "get_params()['n_estimators'] has it",
    "best_score": "model_.metrics has it",
    "intercept_": "trees have none; get_booster().save_config() has the base score",
    "coef_": "trees have none; feature_importances_ weighs the columns",
}
"""XGBoost's names, and what to use here."""


class FederatedEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of the estimators.

    After ``fit``, ``model_`` is the ``fedmq.SimulatedModel``, or the party's model at daemons.
    """

    model_: SimulatedModel | PartyModel

    @with_training_parameters
    def __init__(
        self,
        *,
        parties: Any = None,
        federation: str | Path | None = None,
        job: Mapping[str, Any] | None = None,
        engine: str | None = None,
        engine_options: Mapping[str, Any] | None = None,
        workers: int | None = None,
        smallest_cell: int = 0,
        duplicates: Literal["each", "hidden"] = "each",
        callbacks: Sequence[Any] | None = None,
        importance_type: str | None = None,
        missing: float | None = None,
        **params: Any,
    ) -> None:
        check_known(type(self).__name__, params)
        self.parties = parties
        self.federation = federation
        self.job = job
        self.engine = engine
        self.engine_options = engine_options
        self.workers = workers
        self.smallest_cell = smallest_cell
        self.duplicates = duplicates
        self.callbacks = callbacks
        self.importance_type = importance_type
        self.missing = missing
        for name in PARAMETERS:
            setattr(self, name, params.get(name))

    if not TYPE_CHECKING:  # for type checkers every name would exist

        def __getattr__(self, name: str) -> Any:
            if name in _ELSEWHERE:
                raise AttributeError(f"{type(self).__name__} has no {name}: {_ELSEWHERE[name]}")
            return object.__getattribute__(self, name)  # raises what it raised before

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    @abstractmethod
    def _learn_labels(self, y: NDArray[Any], classes: NDArray[Any] | None = None) -> dict[str, Any]:
        """The parameters that depend on the labels ``y``, (rows,) or (rows, targets).

        ``classes``: those whose places ``y`` holds.
        """

    @abstractmethod
    def _numbers(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels ``y``, (rows,) or (rows, targets), in the objective's form."""

    def fit(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        base_margin: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        sample_weight_eval_set: Sequence[Any] | None = None,
        base_margin_eval_set: Sequence[Any] | None = None,
        xgb_model: Any = None,
        verbose: bool | int | None = None,
    ) -> Self:
        """Train on ``X``, (rows, features), and ``y``: (rows,), or (rows, targets) of a regressor.

        ``X`` is an array, a data frame or a SciPy sparse table, whose columns ``parties`` deals
        out; or a dict of a table per party, the active party's being "active". pandas objects are
        matched by their indexes.
        ``sample_weight`` (rows,): how often each row counts; ``base_margin`` (rows,): where each
        row starts. ``eval_set``: pairs of such an X and y that are scored after each round, as
        "validation_0", "validation_1", ...; early stopping watches the last. ``xgb_model``: a model
        whose trees come first: a ``fedmq.SimulatedModel``, the file of one, or an estimator
        that was fitted. ``verbose``: print the metrics of each round, or of every so many rounds.

        With ``federation`` daemons train on their own tables, and labels are the active party's.
        ``X`` may then be left out, or has the ids of all people of the training, whose labels are
        compared with ``y``; ``verbose`` prints when the training has ended.

        Raises:
            ConfigError, DataError, ValueError: a parameter, table or label is wrong.
            FedmqError: daemons cannot train, as ``fedmq train`` says it.
        """
        if self.federation is not None:
            given = {
                "sample_weight": sample_weight,
                "base_margin": base_margin,
                "eval_set": eval_set,
                "sample_weight_eval_set": sample_weight_eval_set,
                "base_margin_eval_set": base_margin_eval_set,
                "xgb_model": xgb_model,
            }
            return self._fit_daemons(X, y, given, verbose)
        if self.job is not None:
            raise ConfigError("job: it is for daemons; name the party's file: federation=")
        weights, margins = sample_weight_eval_set, base_margin_eval_set
        sets = [
            (
                table,
                beside_rows(
                    labels,
                    of_set(weights, number, "sample_weight_eval_set"),
                    of_set(margins, number, "base_margin_eval_set"),
                ),
            )
            for number, (table, labels) in enumerate(eval_set or ())
        ]
        return self._fit_tables(
            X, beside_rows(y, sample_weight, base_margin), sets, xgb_model, verbose
        )

    def _fit_tables(
        self,
        X: Any,
        given: Mapping[str, Any],
        eval_sets: Sequence[tuple[Any, Mapping[str, Any]]],
        xgb_model: Any,
        verbose: bool | int | None,
    ) -> Self:
        """Train here, on ``X`` and what is ``given`` beside its rows; each of ``eval_sets`` alike.

        With ``qid`` among what is given, rows are ranked within queries.
        """
        X = self._checked(X, reset=True)
        check_duplicates(self.duplicates)
        hides_people = self.duplicates == "hidden"
        columns, values, matched = TrainedColumns.of(
            X, self.parties, given, hides_people=hides_people
        )
        decided = self._learn_labels(_labels(matched.beside["y"]))
        named = self._parameters() | decided
        if "monotone_constraints" in named:
            named["monotone_constraints"] = columns.signs(named["monotone_constraints"])
        params = TrainParams.parse(named, type(self).__name__)
        earlier = _earlier(xgb_model)
        sets = {}
        for number, (table, held) in enumerate(eval_sets):
            scored_rows = self._checked(table, reset=False)
            found = columns.values(scored_rows, held, trains=True)
            sets[f"validation_{number}"] = self._row_set(*found)
        rows, evaluation = joined(self._row_set(values, matched), sets)
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
            person=rows.person,
        )
        options = self.engine_options or {}
        engine = engine_named(
            self.engine or (_HIDES_PEOPLE if hides_people else _ENGINE),
            options,
            type(self).__name__,
        )
        surroundings = Surroundings(workers=self.workers, smallest_cell=self.smallest_cell)
        callbacks = [*(self.callbacks or ()), *([_PrintedRounds(int(verbose))] if verbose else [])]
        self.model_ = train(own, others, params, engine, surroundings, callbacks, earlier)
        self._columns = columns
        return self

    def _fit_daemons(
        self, X: Any, y: Any, given: Mapping[str, Any], verbose: bool | int | None
    ) -> Self:
        assert self.federation is not None
        check_left_out(
            {
                "parties": self.parties,
                "workers": self.workers,
                "smallest_cell": self.smallest_cell or None,
                "duplicates": None if self.duplicates == "each" else self.duplicates,
                "callbacks": self.callbacks,
                **given,
            }
        )
        if callable(self.objective) or metric_function(self.eval_metric) is not None:
            raise ConfigError(
                "objective, eval_metric: daemons run no function of this program; name it under "
                "[functions] in the party's file, and in job"
            )
        training = DaemonTraining(self.federation, self.job)
        training.check(X, y)
        decided = self._learn_labels(training.label, training.classes)
        params = TrainParams.parse(self._parameters() | decided, type(self).__name__)
        self.model_ = training.train(params, self.engine, self.engine_options)
        if verbose:
            _print_all(self.model_.evals_result, int(verbose))
        return self

    @property
    def feature_importances_(self) -> NDArray[np.float32]:
        """Each column's part of ``importance_type``, "gain" if that is None: float32 (features,).

        In the order of the table's columns, or the active party's first with a table per party.
        The categories of a column count together. The sum is 1, or 0 if no node was split.

        Raises:
            NotFittedError: there is no model yet.
            ConfigError: XGBoost has no such ``importance_type``.
        """
        model = self._simulated("feature_importances_")
        kind = self.importance_type or "gain"
        columns = self._columns.by_column()
        found = _sums(model.get_score(f"total_{kind}" if kind in _MEANS else kind), columns)
        if kind in _MEANS:
            found /= np.maximum(_sums(model.get_score("weight"), columns), 1)
        total = found.sum()
        return (found / total if total else found).astype(np.float32)

    @property
    def best_iteration(self) -> int | None:
        """The last round that predictions use, from 0; None without early stopping."""
        check_is_fitted(self)
        return self.model_.best_iteration

    def evals_result(self) -> dict[str, dict[str, list[float]]]:
        """Each metric of each set after each round: ``["validation_0"]["logloss"]``."""
        check_is_fitted(self)
        return self.model_.evals_result

    def get_booster(self) -> Any:
        """The joined trees as XGBoost's ``Booster``; its columns are named ``party.feature``.

        Raises:
            ConfigError: xgboost is not installed.
        """
        return self._simulated("get_booster").to_xgboost()

    def _predictions(self, X: Any, base_margin: Any = None) -> NDArray[Any]:
        """The predictions of the rows of ``X``, or of these ids, by every party's share."""
        check_is_fitted(self)
        if isinstance(self.model_, PartyModel):
            return self.model_.predict(X, base_margin=base_margin)
        return self._scores(X, base_margin).predictions

    def _scores(self, X: Any, base_margin: Any = None) -> Scores:
        """Margins and predictions of the rows of ``X`` by a simulation."""
        model = self._simulated("predict")
        beside = {} if base_margin is None else {"base_margin": base_margin}
        values, matched = self._columns.values(self._checked(X, reset=False), beside)
        given = matched.beside.get("base_margin")
        return scored(model.share, model.passive_shares, values, given)

    def _simulated(self, what: str) -> SimulatedModel:
        check_is_fitted(self)
        if isinstance(self.model_, PartyModel):
            raise ConfigError(f"{what}: no party has all trees of {self.model_.name}; see model_")
        return self.model_

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Check ``X`` by scikit-learn's rules; with ``reset`` remember its columns."""
        if is_per_party(X):
            return X
        if column_names(X) is not None:
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_data(
            self, X, reset=reset, ensure_all_finite="allow-nan", accept_sparse="csr"
        )

    def _row_set(self, values: Mapping[str, NDArray[np.float32]], matched: MatchedRows) -> RowSet:
        beside = matched.beside
        label = self._numbers(_labels(beside["y"]))
        check_consistent_length(values[ACTIVE], label)
        weight, margin = beside["sample_weight"], beside["base_margin"]
        return RowSet(
            values,
            with_queries(label, beside.get("qid")),
            None if weight is None else _weights(weight, label),
            None if margin is None else _margins(margin, label),
            matched.person,
        )

    def _parameters(self) -> dict[str, Any]:
        """The given parameters of the training."""
        given = {
            field: getattr(self, name)
            for name, field in PARAMETERS.items()
            if getattr(self, name) is not None
        }
        if self.missing is not None and not np.isnan(self.missing):
            raise ConfigError(f"missing = {self.missing}: NaN is missing; write NaN in its place")
        if callable(given.get("objective")):
            del given["objective"]
        if "eval_metric" in given:
            given["eval_metric"] = named_metrics(given["eval_metric"])
            if not given["eval_metric"]:
                del given["eval_metric"]
        given.setdefault("num_boost_round", DEFAULT_ROUNDS)
        if isinstance(given.get("seed"), np.random.RandomState):
            given["seed"] = check_random_state(given["seed"]).randint(_SEEDS)
        return given


class _PrintedRounds(TrainingCallback):
    """Prints the metrics of every ``period`` rounds, as XGBoost's estimators do.

    Those of the training's rows only where no other rows are scored.
    """

    def __init__(self, period: int) -> None:
        self._period = period

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch % self._period == 0:
            sets = [name for name in evals_log if name != _TRAINING_ROWS] or evals_log
            figures = [
                f"{name}-{metric}:{values[-1]:.5f}"
                for name in sets
                for metric, values in evals_log[name].items()
            ]
            sys.stdout.write("\t".join([f"[{epoch}]", *figures]) + "\n")
        return False


def _print_all(evals_log: Mapping[str, Mapping[str, Sequence[float]]], period: int) -> None:
    """Print the rounds of a training that has ended."""
    printed = _PrintedRounds(period)
    rounds = max((len(values) for log in evals_log.values() for values in log.values()), default=0)
    for epoch in range(rounds):
        until = {
            held: {metric: values[: epoch + 1] for metric, values in log.items()}
            for held, log in evals_log.items()
        }
        printed.after_iteration(None, epoch, until)


def _sums(score: Mapping[str, float], columns: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """The ``score`` of all features of each column, (columns,)."""
    return np.array([sum(score.get(name, 0.0) for name in names) for names in columns], np.float64)


def beside_rows(y: Any, sample_weight: Any, base_margin: Any) -> dict[str, Any]:
    """What belongs to the rows of a table, by name."""
    return {"y": y, "sample_weight": sample_weight, "base_margin": base_margin}


def _earlier(model: Any) -> SimulatedModel | None:
    """The model to continue, as `fit` takes it."""
    if isinstance(model, FederatedEstimator):
        return model._simulated("xgb_model")
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
        targets: NDArray[Any] = checked
        return targets
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


def of_set(given: Sequence[Any] | None, number: int, name: str) -> Any:
    """What ``given``, the argument ``name``, has for this pair of eval_set; None if left out."""
    if given is None:
        return None
    if number >= len(given):
        raise ConfigError(f"{name}: one for each pair of eval_set is needed")
    return given[number]


class FederatedClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]  # see base
    """A classifier of scikit-learn whose columns lie at several parties, all in this process.

    ``parties`` names the columns of the others, ``{"telco": ["calls", "data"]}``, as
    ``ColumnTransformer`` takes them: names, places, a slice, a mask, or a function of the table.
    All other columns, and the labels, are the active party's. ``engine``, ``engine_options``,
    ``workers``, ``smallest_cell`` and ``callbacks`` are those of ``fedmq.simulate``; exact
    engines give the same model, so that "plain", the default, is enough to search with.
    ``duplicates``: the index of X may name a person several times, and each of these rows counts;
    with "hidden" the other parties, which have one row of each person, do not learn how many there
    are. It takes engine "lattice", which is then the default. People of an eval_set count as
    others than those of X.

    With ``federation``, the active party's ``party.toml``, its daemon trains with the other
    parties' daemons instead, each on its own table, and ``model_`` is the party's model. ``job``
    has keys of ``train.toml``, such as ``{"alignment": "people", "evaluation": 0.2}``; the engine
    is the job's where it is left out. X is then a column of ids, in ``predict`` as well.

    All other parameters are those of ``fedmq.TrainParams`` by the names that
    ``xgboost.XGBClassifier`` has for them: ``n_estimators`` (100), ``learning_rate``,
    ``random_state``, ``max_depth``, ... None stands for XGBoost's default.
    ``monotone_constraints`` name columns of the table, or have a sign for each. Parameters that
    change no model here, such as ``n_jobs`` and ``tree_method="hist"``, are taken and kept; of
    several categories of a frame's column each is a feature, with ``enable_categorical`` or not.

    After ``fit``: ``classes_``, ``n_features_in_``, ``feature_names_in_`` of a frame,
    ``feature_importances_``, and ``model_``, the ``fedmq.SimulatedModel``.
    """

    def _learn_labels(self, y: NDArray[Any], classes: NDArray[Any] | None = None) -> dict[str, Any]:
        if y.ndim > 1:
            raise ConfigError(
                "y: a classifier learns one label; several of 0 and 1 are the targets of a "
                "regressor with objective='binary:logistic', which predicts their probabilities"
            )
        check_classification_targets(y)
        self.classes_ = np.unique(y) if classes is None else classes
        number = len(self.classes_)
        if number < 2:
            raise ValueError("y has one class; a classifier needs at least two")
        fitting = _TWO if number == 2 else _MORE
        asked = None if callable(self.objective) else self.objective
        if asked is not None and asked not in fitting:
            raise ConfigError(
                f"objective: {asked} is not for {number} classes; leave it out, or take "
                f"{fitting[0]}"
            )
        # Probabilities give the likeliest class, but not the reverse.
        return {"objective": fitting[0]} | ({"num_class": number} if number > 2 else {})

    def _numbers(self, y: NDArray[Any]) -> NDArray[Any]:
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise ValueError(f"eval_set: class {y[unknown][0]!r} is not among the labels of fit")
        return np.searchsorted(self.classes_, y)

    def predict_proba(self, X: Any, *, base_margin: Any = None) -> NDArray[np.float32]:
        """The probability of each class: float32 (rows, classes), in the order of ``classes_``.

        ``base_margin``, (rows,) or (rows, classes): where each row starts.

        Raises:
            DataError, ValueError: ``X`` has other columns than in ``fit``.
        """
        found = self._predictions(X, base_margin)
        return found if found.ndim > 1 else np.stack((1 - found, found), axis=1)

    def predict(self, X: Any, *, base_margin: Any = None) -> NDArray[Any]:
        """The likeliest class of each row: (rows,); ``base_margin`` as in `predict_proba`.

        Raises:
            DataError, ValueError: ``X`` has other columns than in ``fit``.
        """
        found = self.predict_proba(X, base_margin=base_margin)
        unknown = np.flatnonzero(np.isnan(found).any(axis=1))
        if len(unknown):
            person = ids_of(X)[unknown[0]]
            raise DataError(
                f"X: {len(unknown)} of {len(found)} people have no score, such as {person!r}, whom "
                "a party does not know; predict_proba has NaN for them"
            )
        classes: NDArray[Any] = self.classes_[found.argmax(axis=1)]
        return classes


class FederatedRegressor(RegressorMixin, FederatedEstimator):  # type: ignore[misc]  # see base
    """A regressor of scikit-learn whose columns lie at several parties, all in this process.

    Parameters and attributes are those of ``FederatedClassifier``; ``objective`` is
    "reg:squarederror" where it is left out, and any but those of classes, of ranks and of bounds
    of times.
    """

    def _learn_labels(self, y: NDArray[Any], classes: NDArray[Any] | None = None) -> dict[str, Any]:
        asked = None if callable(self.objective) else self.objective
        objective = _DEFAULT_OBJECTIVE if asked is None else asked
        if str(objective).startswith(("multi:", "rank:", "survival:aft")):
            raise ConfigError(f"objective: {objective} is not for a regressor")
        return {"objective": objective} | ({"num_target": y.shape[1]} if y.ndim > 1 else {})

    def _numbers(self, y: NDArray[Any]) -> NDArray[Any]:
        return y.astype(np.float64)

    def predict(self, X: Any, *, base_margin: Any = None) -> NDArray[np.float32]:
        """The prediction of each row, which starts at its ``base_margin``: float32 (rows,).

        Several targets or quantiles: (rows, margins).

        Raises:
            DataError, ValueError: ``X`` has other columns than in ``fit``.
        """
        return self._predictions(X, base_margin)
