from __future__ import annotations

import numpy as np
import pytest

from fedmq.leakage.attacks.bins_from_sums import SubsetSums

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("rows", [1, 2, 7, 30])
def test_the_rows_of_a_sum_are_found(rows: int) -> None:
    own = RANDOM.integers(0, 2**64, rows, dtype=np.uint64)
    chosen = RANDOM.random(rows) < 0.5
    with np.errstate(over="ignore"):
        total = own[chosen].sum(dtype=np.uint64)
    found = SubsetSums(own).rows(total)
    assert found is not None
    np.testing.assert_array_equal(found, chosen)


def test_a_sum_of_several_sets_or_of_none_names_nobody() -> None:
    sums = SubsetSums(np.array([1, 2, 3], np.uint64))
    assert sums.rows(np.uint64(3)) is None
    assert sums.rows(np.uint64(7)) is None
