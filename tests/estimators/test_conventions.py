"""scikit-learn's own checks of estimators, whose every other column is another party's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from fedmq.estimators.estimator import FederatedClassifier, FederatedEstimator, FederatedRegressor
from tests.boosting.tables import scattered

EVERY_OTHER = {"telco": slice(1, None, 2)}
ESTIMATORS = [
    FederatedClassifier(n_estimators=3, parties=EVERY_OTHER),
    FederatedRegressor(n_estimators=3, parties=EVERY_OTHER),
]
EXEMPT = {
    "check_sample_weight_equivalence_on_dense_data": (
        "it asks for equality to 1e-7; gradients are float32, as XGBoost's, so that a weight of 2 "
        "and two rows differ in the last bits"
    ),
    "check_array_api_input": "scikit-learn skips it itself without SCIPY_ARRAY_API",
}


def checks() -> list[Any]:
    found = []
    for estimator in ESTIMATORS:
        for number, (example, check) in enumerate(estimator_checks_generator(estimator, mark=None)):
            name = getattr(check, "func", check).__name__
            marks = [pytest.mark.skip(reason=EXEMPT[name])] if name in EXEMPT else []
            again = bool(getattr(check, "keywords", {}).keys() & {"readonly_memmap", "X_dtype"})
            again = again or name == "check_estimator_sparse_matrix"  # as check_..._sparse_array
            if estimator is not ESTIMATORS[0] or again:  # they share all that the checks look at
                marks.append(pytest.mark.long)
            test = f"{type(estimator).__name__}-{number}-{name}"
            found.append(pytest.param(example, check, id=test, marks=marks))
    return found


@pytest.mark.parametrize(("estimator", "check"), checks())
def test_it_keeps_to_scikit_learns_conventions(estimator: FederatedEstimator, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # several checks provoke them
        check(estimator)


def test_a_weight_is_so_many_rows() -> None:
    X, y = scattered(200, 4, seed=3)
    weight = np.arange(200) % 3 + 1
    given = {"n_estimators": 5, "max_depth": 3, "parties": EVERY_OTHER}
    weighted = FederatedClassifier(**given).fit(X, y, sample_weight=weight)
    repeated = FederatedClassifier(**given).fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(
        weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-5, atol=1e-6
    )
