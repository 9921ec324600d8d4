from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting import binning, machine_bins
from fedmq.boosting.binning import BinMatrix, Cuts
from tests.boosting.tables import scattered

pytest.importorskip("llvmlite")


@pytest.mark.parametrize("max_bin", [2, 33, 255, 256, 257, 600])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_machine_code_and_numpy_find_the_same_bins(
    max_bin: int, missing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = scattered(3_000, 4, seed=1, missing=missing)
    X[:, 2] = 0
    X[:5, 2] = np.nan
    cuts = Cuts.of(X[:2_500], max_bin)
    by_numpy = BinMatrix.of(X, cuts).codes
    monkeypatch.setattr(binning, "FEWEST_VALUES", 0)
    for order in ("C", "F"):
        by_machine = BinMatrix.of(np.asarray(X, order=order), cuts).codes  # type: ignore[call-overload]
        assert by_machine.dtype == by_numpy.dtype
        assert by_machine.flags.f_contiguous
        np.testing.assert_array_equal(by_machine, by_numpy)


def test_codes_of_another_length_touch_no_memory() -> None:
    with pytest.raises(ValueError, match="codes of"):
        machine_bins.write_codes(
            np.empty(3, np.uint8), np.zeros(4, np.float32), np.zeros(2, np.float32)
        )
