"""What is the label that a screen looks at, and how well does a column in bins alone tell it?

A label of two classes is told by the ones of each bin (see `fedmq.boosting.screened_columns`), one
of more classes by the people of each class, one of numbers by its sum. Chi-square compares people
of bins and classes with what they would be if the column said nothing, without Yates' correction.
F compares the label between bins with the label within them (analysis of variance): its sum of
squares is the active party's own, so sums of bins suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.screened_columns import ScreenedColumn, Strength
from fedmq.boosting.standard_columns import standardised
from fedmq.boosting.tail_probability import above_chi_square, above_f
from fedmq.errors import DataError

__all__ = ["LabelType", "ScreenedLabel", "strength"]

LabelType = Literal["binary", "classes", "number"]

_LEAST_WITHIN = 2.0**-24
"""The share of a label within bins that the fixed point of its sums tells from none."""


@dataclass(frozen=True, slots=True, eq=False)
class ScreenedLabel:
    """The label of the rows that are looked at.

    ``values`` (rows,): bool of two classes; uint8 from 0 on of more ``classes``; of numbers, with
    ``classes`` 0, float64, standardised: ``mean`` and ``deviation`` are those of the label itself.
    """

    values: NDArray[Any]
    classes: int = 2
    mean: float = 0.0
    deviation: float = 1.0

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, label: NDArray[np.float32], kind: LabelType, where: str) -> ScreenedLabel:
        """The ``label`` (rows,) that fits its ``kind``.

        Raises:
            DataError: all of its values are alike; the text begins with ``where``.
        """
        first = float(label[0])
        if (label == label[0]).all():
            needed = "both are needed" if kind == "binary" else "several are needed"
            raise DataError(f"{where}: all labels are {first:g}; {needed}")
        if kind == "binary":
            return cls(label > 0.5)
        if kind == "classes":
            codes = label.astype(np.uint8)
            return cls(codes, max(3, int(codes.max()) + 1))
        wide = label.astype(np.float64)
        return cls(standardised(wide[:, None])[:, 0], 0, float(wide.mean()), float(wide.std()))

    @property
    def kind(self) -> LabelType:
        """What it is."""
        return "number" if self.classes == 0 else "binary" if self.classes == 2 else "classes"

    @property
    def described(self) -> dict[str, Any]:
        """As plain data: people by class; of numbers, mean and standard deviation."""
        if self.kind == "number":
            return {"mean": round(self.mean, 6), "deviation": round(self.deviation, 6)}
        people = np.bincount(self.values.astype(np.int64), minlength=self.classes)
        if self.kind == "binary":
            return {"ones": int(people[1])}
        return {"classes": people.tolist()}

    def by_bin(self, column: ScreenedColumn) -> NDArray[Any]:
        """What tells it by the bins of a ``column``.

        Int64 (bins,) ones, int64 (bins, classes) people, or float64 (bins,) sums.
        """
        bins = len(column.counts)
        if self.kind == "binary":
            return column.ones(self.values)
        if self.kind == "number":
            return np.bincount(column.bin_of, self.values, minlength=bins)
        cells = column.bin_of.astype(np.int64) * self.classes + self.values
        counted = np.bincount(cells, minlength=bins * self.classes)
        return counted.reshape(bins, self.classes)

    def told_by(self, counts: NDArray[np.integer], by_bin: NDArray[Any]) -> dict[str, Any]:
        """How well a column tells it, as plain data: by the people of its bins, and `by_bin`.

        Chi-square and its p-value of classes, for two beside IV, KS and AUC; F and its p-value of
        numbers; with them the ``bins``.
        """
        told = _TOLD[self.kind]
        return told(self, np.asarray(counts, np.int64), by_bin)

    def _binary(self, counts: NDArray[np.int64], ones: NDArray[np.int64]) -> dict[str, Any]:
        strength = Strength.of(counts, ones)
        if strength is None:
            return {}
        bins = zip(counts.tolist(), ones.tolist(), strength.woe, strict=True)
        return {
            "iv": strength.iv,
            "ks": strength.ks,
            "auc": strength.auc,
            **_chi_square(np.column_stack([counts - ones, ones])),
            "bins": [{"people": people, "ones": held, "woe": woe} for people, held, woe in bins],
        }

    def _classes(self, counts: NDArray[np.int64], people: NDArray[np.int64]) -> dict[str, Any]:
        bins = zip(counts.tolist(), people.tolist(), strict=True)
        return {
            **_chi_square(people),
            "bins": [{"people": of_all, "classes": of_each} for of_all, of_each in bins],
        }

    def _number(self, counts: NDArray[np.int64], sums: NDArray[np.float64]) -> dict[str, Any]:
        means = self.mean + self.deviation * sums / counts
        bins = zip(counts.tolist(), means.tolist(), strict=True)
        return {
            **_f(counts, sums),
            "bins": [{"people": people, "mean": mean} for people, mean in bins],
        }


_TOLD: Mapping[LabelType, Callable[..., dict[str, Any]]] = {
    "binary": ScreenedLabel._binary,
    "classes": ScreenedLabel._classes,
    "number": ScreenedLabel._number,
}


def _chi_square(people: NDArray[np.int64]) -> dict[str, Any]:
    """Chi-square of ``people`` (bins, classes), and the chance of a larger one."""
    held = people[:, people.sum(axis=0) > 0].astype(np.float64)
    degrees = (held.shape[0] - 1) * (held.shape[1] - 1)
    if not degrees:
        return {"chi2": 0.0, "p": 1.0}
    expected = np.outer(held.sum(axis=1), held.sum(axis=0)) / held.sum()
    value = float(((held - expected) ** 2 / expected).sum())
    return {"chi2": value, "p": above_chi_square(value, degrees)}


def _f(counts: NDArray[np.int64], sums: NDArray[np.float64]) -> dict[str, Any]:
    """F of a standardised label by its ``sums`` in bins, and the chance of a larger one."""
    rows = float(counts.sum())
    between, within = len(counts) - 1, int(rows) - len(counts)
    if not between or not within:
        return {"f": 0.0, "p": 1.0}
    explained = float((sums**2 / counts).sum() - sums.sum() ** 2 / rows)
    rest = max(rows - explained, rows * _LEAST_WITHIN)
    value = max(0.0, explained / between / (rest / within))
    return {"f": value, "p": above_f(value, between, within)}


def strength(column: Mapping[str, Any]) -> tuple[float, float]:
    """How well a ``column`` of plain data tells the label, to compare with others of its screen.

    By IV; where there is none by the lowest p-value, and of those alike by chi-square or F. A
    column without any is below all others.
    """
    if "iv" in column:
        return column["iv"], 0.0
    if "p" in column:
        return -column["p"], column.get("chi2", column.get("f", 0.0))
    return -math.inf, 0.0
