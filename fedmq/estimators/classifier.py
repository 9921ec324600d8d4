"""Classes by federated trees, as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from fedmq.errors import ConfigError
from fedmq.estimators.estimator import FederatedEstimator

__all__ = ["FederatedClassifier"]

_TWO, _MORE = ("binary:logistic",), ("multi:softprob", "multi:softmax")


class FederatedClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]  # see base
    """A classifier of scikit-learn whose columns lie at several parties, all in this process.

    ``parties`` names the columns of the others, ``{"telco": ["calls", "data"]}``, as
    ``ColumnTransformer`` takes them: names, places, a slice, a mask, or a function of the table.
    All other columns, and the labels, are the label holder's. ``engine``, ``engine_options``,
    ``workers``, ``smallest_cell`` and ``callbacks`` are those of ``fedmq.simulate``; exact
    engines give the same model, so that "plain" is enough to search with.

    All other parameters are those of ``fedmq.TrainParams`` by the names that
    ``xgboost.XGBClassifier`` has for them: ``n_estimators`` (100), ``learning_rate``,
    ``random_state``, ``max_depth``, ... None stands for XGBoost's default.
    ``monotone_constraints`` name columns of the table, or have a sign for each.

    After ``fit``: ``classes_``, ``n_features_in_``, ``feature_names_in_`` of a frame, and
    ``model_``, the ``fedmq.SimulatedModel``.
    """

    def _learn_labels(self, y: NDArray[Any]) -> dict[str, Any]:
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        classes = len(self.classes_)
        if classes < 2:
            raise ValueError("y has one class; a classifier needs at least two")
        fitting = _TWO if classes == 2 else _MORE
        asked = None if callable(self.objective) else self.objective
        if asked is not None and asked not in fitting:
            raise ConfigError(
                f"objective: {asked} is not for {classes} classes; leave it out, or take "
                f"{fitting[0]}"
            )
        # The likeliest class follows from probabilities, but not they from it.
        return {"objective": fitting[0]} | ({"num_class": classes} if classes > 2 else {})

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
        found = self._scores(X, base_margin).predictions
        return found if found.ndim > 1 else np.stack((1 - found, found), axis=1)

    def predict(self, X: Any, *, base_margin: Any = None) -> NDArray[Any]:
        """The likeliest class of each row: (rows,); ``base_margin`` as in `predict_proba`.

        Raises:
            DataError, ValueError: ``X`` has other columns than in ``fit``.
        """
        likeliest = self.predict_proba(X, base_margin=base_margin).argmax(axis=1)
        classes: NDArray[Any] = self.classes_[likeliest]
        return classes
