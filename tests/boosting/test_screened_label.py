"""Chi-square, F and their p-values are those of SciPy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from sklearn.feature_selection import f_classif

from fedmq.boosting.screened_columns import ScreenedColumn, screened_columns
from fedmq.boosting.screened_label import ScreenedLabel, strength
from fedmq.boosting.tail_probability import above_chi_square, above_f
from fedmq.errors import DataError

ROWS = 600


def column(seed: int) -> ScreenedColumn:
    values = np.random.default_rng(seed).normal(size=(ROWS, 1)).astype(np.float32)
    values[: ROWS // 9] = np.nan
    [found] = screened_columns(values, ["x"], {}, 8, 1)
    return found


def told(label: ScreenedLabel, by: ScreenedColumn) -> dict[str, float]:
    return label.told_by(by.counts, label.by_bin(by))


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_chi_square_is_scipys(seed: int, classes: int) -> None:
    by = column(seed)
    codes = (np.random.default_rng(9 + seed).integers(9, size=ROWS) + by.bin_of * seed) % classes
    kind = "binary" if classes == 2 else "classes"
    found = told(ScreenedLabel.of(codes.astype(np.float32), kind, "bank"), by)
    table = np.zeros((by.bin_of.max() + 1, classes))
    np.add.at(table, (by.bin_of, codes), 1)
    wanted = scipy.stats.chi2_contingency(table, correction=False)
    assert found["chi2"] == pytest.approx(wanted.statistic)
    assert found["p"] == pytest.approx(wanted.pvalue, rel=1e-8, abs=1e-250)


@pytest.mark.parametrize("effect", [0.0, 0.02, 1.0])
def test_f_is_scipys_and_scikit_learns(effect: float) -> None:
    by = column(4)
    random = np.random.default_rng(5)
    label = (1e4 + 300 * random.gamma(0.5, size=ROWS) + 300 * effect * by.bin_of).astype(np.float32)
    found = told(ScreenedLabel.of(label, "number", "bank"), by)
    wide = label.astype(np.float64)
    wanted = scipy.stats.f_oneway(*(wide[by.bin_of == number] for number in set(by.bin_of)))
    assert found["f"] == pytest.approx(wanted.statistic)
    assert found["p"] == pytest.approx(wanted.pvalue, rel=1e-6)
    [of_sklearn], _ = f_classif(wide[:, None], by.bin_of)
    assert found["f"] == pytest.approx(of_sklearn)
    means = [wide[by.bin_of == number].mean() for number in range(len(by.counts))]
    assert [one["mean"] for one in found["bins"]] == pytest.approx(means)


def test_chances_are_scipys() -> None:
    values = np.concatenate([[0.0, 1e-3], np.geomspace(0.01, 1000, 30)])
    for degrees in (1, 2, 9, 49, 450, 2401):
        found = [above_chi_square(value, degrees) for value in values]
        wanted = scipy.stats.chi2.sf(values, degrees)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-200)
    for between in (1, 2, 9, 49):
        for within in (3, 30, 500, 100_000):
            found = [above_f(value, between, within) for value in values]
            wanted = scipy.stats.f.sf(values, between, within)
            np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-200)


def test_a_column_of_one_bin_and_one_that_tells_the_label_exactly() -> None:
    label = ScreenedLabel.of(np.repeat([1.0, 2.0, 4.0], 20).astype(np.float32), "number", "bank")
    codes = np.repeat([0, 1, 2], 20).astype(np.uint16)
    one, exact = (
        told(label, ScreenedColumn("x", "number", 0.0, "3", codes * times)) for times in (0, 1)
    )
    assert (one["f"], one["p"]) == (0.0, 1.0)
    assert exact["f"] > 1e6 and exact["p"] < 1e-100
    assert strength(exact) > strength(one) > strength({})


def test_classes_that_nobody_has_change_nothing() -> None:
    by = column(1)
    codes = np.random.default_rng(2).integers(3, size=ROWS)
    three, spread = (
        told(ScreenedLabel.of(each.astype(np.float32), "classes", "bank"), by)
        for each in (codes, codes * 4)
    )
    assert three["chi2"] == pytest.approx(spread["chi2"]) and three["p"] == spread["p"]


@pytest.mark.parametrize("kind", ["binary", "classes", "number"])
def test_labels_that_are_all_alike_are_refused(kind: str) -> None:
    with pytest.raises(DataError, match=r"^bank: all labels are 1; "):
        ScreenedLabel.of(np.ones(5, np.float32), kind, "bank")  # type: ignore[arg-type]
