"""Numbers by federated trees, as a scikit-learn regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from fedmq.errors import ConfigError
from fedmq.estimators.estimator import FederatedEstimator

__all__ = ["FederatedRegressor"]

_DEFAULT = "reg:squarederror"


class FederatedRegressor(RegressorMixin, FederatedEstimator):  # type: ignore[misc]  # see base
    """A regressor of scikit-learn whose columns lie at several parties, all in this process.

    Parameters and attributes are those of ``FederatedClassifier``; ``objective`` is
    "reg:squarederror" where it is left out, and any but those of classes and of bounds of times.
    """

    def _learn_labels(self, y: NDArray[Any]) -> dict[str, Any]:
        asked = None if callable(self.objective) else self.objective
        objective = _DEFAULT if asked is None else asked
        if str(objective).startswith(("multi:", "survival:")):
            raise ConfigError(f"objective: {objective} is not for a regressor")
        return {"objective": objective}

    def _numbers(self, y: NDArray[Any]) -> NDArray[Any]:
        return y.astype(np.float64)

    def predict(self, X: Any, *, base_margin: Any = None) -> NDArray[np.float32]:
        """The prediction of each row, which starts at its ``base_margin``: float32 (rows,).

        Raises:
            DataError, ValueError: ``X`` has other columns than in ``fit``.
        """
        return self._scores(X, base_margin).predictions
