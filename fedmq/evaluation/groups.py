"""Rates and calibration by group, and the four-fifths ratio.

The ratio is that of the US Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4 D:
a group's selection rate divided by the highest group's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from fedmq.evaluation.report import Cell, ReportTable

__all__ = ["GroupCounts", "group_table", "table_of_sums"]


_OTHER = "other"
_HEADERS = (
    "group",
    "rows",
    "share of ones",
    "mean score",
    "auc",
    "selected",
    "by the highest rate",
    "selected of label 0",
    "selected of label 1",
)


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """A group of a column at another party: counts, and the sum of the scores."""

    group: str
    people: int
    ones: int
    selected: int
    selected_ones: int
    score: float


def group_table(
    label: NDArray[np.float64],
    score: NDArray[np.float64],
    groups: Sequence[str],
    column: str,
    threshold: float,
    smallest: int,
) -> ReportTable:
    """Each group of at least ``smallest`` rows; smaller groups join as "other".

    While "other" is smaller, the next larger group joins: it would show a few people's labels.
    People who score below ``threshold`` are selected: label 1 is the undesired outcome.
    """
    names, group_of = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    counts = np.bincount(group_of)
    joins, together = names == _OTHER, int(counts[names == _OTHER].sum())
    for place in np.argsort(counts, kind="stable").tolist():
        if not joins[place] and (counts[place] < smallest or 0 < together < smallest):
            joins[place], together = True, together + int(counts[place])
    kinds = np.where(joins[group_of], _OTHER, names[group_of])
    selected = score < threshold
    rates = {name: float(selected[kinds == name].mean()) for name in np.unique(kinds).tolist()}
    highest = max(rates.values())
    rows: list[tuple[Cell, ...]] = []
    for name, rate in rates.items():
        here = kinds == name
        both = np.ptp(label[here]) > 0
        rows.append(
            (
                name,
                int(here.sum()),
                float(label[here].mean()),
                float(score[here].mean()),
                float(metrics.roc_auc_score(label[here], score[here])) if both else None,
                rate,
                rate / highest if highest else None,
                _rate(selected[here & (label == 0)]),
                _rate(selected[here & (label == 1)]),
            )
        )
    return ReportTable(
        name=f"Groups of {column}",
        headers=_HEADERS,
        rows=tuple(rows),
        about=(
            f"Selected: a score below {threshold:g}. A rate below four fifths of the highest one "
            f"is what 29 CFR 1607.4 D looks at. Groups below {smallest} rows stand together."
        ),
    )


def table_of_sums(
    groups: Sequence[GroupCounts], column: str, owner: str, threshold: float
) -> ReportTable:
    """The table from sums that ``owner`` added up; without AUC, which sums do not give."""
    highest = max(group.selected / group.people for group in groups)
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        rate, zeros = group.selected / group.people, group.people - group.ones
        rows.append(
            (
                group.group,
                group.people,
                group.ones / group.people,
                group.score / group.people,
                None,
                rate,
                rate / highest if highest else None,
                (group.selected - group.selected_ones) / zeros if zeros else None,
                group.selected_ones / group.ones if group.ones else None,
            )
        )
    return ReportTable(
        name=f"Groups of {column} at {owner}",
        headers=_HEADERS,
        rows=tuple(rows),
        about=(
            f"Selected: a score below {threshold:g}. {owner} added up what it could not read, and "
            "joined small groups as its policy says. A rate below four fifths of the highest one "
            "is what 29 CFR 1607.4 D looks at."
        ),
    )


def _rate(selected: NDArray[np.bool_]) -> float | None:
    return float(selected.mean()) if len(selected) else None
