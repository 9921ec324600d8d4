from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import DataError
from fedmq.party.data.data_frame import feature_matrix


def test_values_become_float32_and_missing_ones_nan() -> None:
    X = feature_matrix([[0.1, None], [2, 3]], ["age", "income"], "bank.csv")
    assert X.dtype == np.float32
    assert X[0, 0] == np.float32(0.1)
    assert np.isnan(X[0, 1])


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_an_infinite_value_is_refused_by_column_and_first_row(value: float) -> None:
    table = np.zeros((5, 2))
    table[2:, 1] = value
    with pytest.raises(DataError, match=r"^bank\.csv: column 'income', row 3 is infinite"):
        feature_matrix(table, ["age", "income"], "bank.csv")


def test_a_table_of_another_width_is_refused() -> None:
    with pytest.raises(DataError, match="expected 3 feature columns"):
        feature_matrix(np.zeros((5, 2)), ["a", "b", "c"], "bank.csv")
