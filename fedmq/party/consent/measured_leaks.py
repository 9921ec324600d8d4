"""Measured success of attacks on each engine, from docs/measured/leakage.md, for owners.

A test compares the figures with the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedmq.privacy.engine import Engine

__all__ = [
    "CORRELATED_IN_WORDS",
    "HIDDEN_SCREEN_IN_WORDS",
    "MEASURED_LEAKS",
    "PAGE",
    "PAIRED_IN_WORDS",
    "SCREENED_IN_WORDS",
    "MeasuredLeak",
    "measured_leaks",
]

PAGE = "docs/measured/leakage.md"

SCREENED_IN_WORDS = (
    "in which bin a person stands, guessed by the label: 45.3 % of 300,000 cells right on Credit "
    "2, where the fullest bin alone is right for 45.2 %; an active party that lies reads it of 15 "
    "of its 30,000 people, in every column (docs/explanation/screening.md)"
)
"""What the bins of a screen tell: no engine takes part in it."""

HIDDEN_SCREEN_IN_WORDS = (
    "an active party that lies reads 6 bits of each column, of whatever it asks: whether one "
    "person stands in a small bin or in a large one, for instance (docs/explanation/screening.md)"
)
"""What steps of information values tell a liar."""

CORRELATED_IN_WORDS = (
    "an active party that lies reads, for each column that it sends, the value of one person in "
    "each of your columns, to 10 bits at most (docs/explanation/screening.md)"
)
"""What coefficients tell a liar."""

PAIRED_IN_WORDS = (
    "an active party and the other of both that lie together read the same of your columns as an "
    "active party alone does by its own (docs/explanation/screening.md)"
)
"""What coefficients of two passive parties tell liars."""


@dataclass(frozen=True, slots=True)
class MeasuredLeak:
    """One attack on public data: ``value`` of ``measure``, beside what ``guessing`` reaches.

    ``who`` mounts it, and ``what`` is its target; ``row`` holds the first cells of its line on the
    page, or the header of its column. ``by_sums``: it needs sums that are shown.
    """

    who: str
    what: str
    measure: str
    value: float
    guessing: float
    row: Sequence[str]
    by_sums: bool = False

    def described(self) -> dict[str, Any]:
        """Plain data, for people."""
        described = asdict(self)
        del described["row"], described["by_sums"]
        return described


_CREDIT = "Credit 2, 30,000 rows"
_LABELS_OF_NODES = MeasuredLeak(
    "a party without the label",
    "labels, from people in the same nodes, with 300 labels known",
    "AUC",
    0.766,
    0.5,
    (_CREDIT, "nodes shared", "label"),
)
_ORDER = MeasuredLeak(
    "the active party",
    "the order of people in a column of this party: sorted pairs, from 81 splits",
    "share",
    0.482,
    0.0,
    (_CREDIT, "partitions", "passive's order of rows, pairs told apart"),
)
_LEARNING = "Credit 2, 24,033 people"
_USUAL = "50 trees of depth 3, 32 bins"
_SIDES = MeasuredLeak(
    "the active party",
    "the side of each person at this party's cuts, from all sums of 50 trees of depth 3",
    "accuracy",
    0.961,
    0.732,
    (_LEARNING, "`ou`", _USUAL),
    by_sums=True,
)
_CELLS = MeasuredLeak(
    "the active party",
    "the cell of each person in this party's columns, from all sums of 50 trees of depth 3",
    "share",
    0.713,
    0.149,
    (_LEARNING, "`lattice`", _USUAL),
    by_sums=True,
)
_NOISY_LABELS = MeasuredLeak(
    "a party without the label",
    "labels, from 25 trees of gradients with epsilon = 1 each (laplace)",
    "AUC",
    0.894,
    0.5,
    ("laplace", "1"),
)

MEASURED_LEAKS: Mapping[str, Sequence[MeasuredLeak]] = {
    "paillier": (_LABELS_OF_NODES, _ORDER, _SIDES),
    "ou": (_LABELS_OF_NODES, _ORDER, _SIDES),
    "lattice": (_ORDER, _CELLS),
    "ldp": (_NOISY_LABELS, _ORDER),
}
"""By engine. ``plain`` hides nothing; smm1 and smm2 describe their own leaks."""


def measured_leaks(engine: Engine) -> Sequence[MeasuredLeak]:
    """The leaks of a job's ``engine``; if it hides sums, only those of attacks without sums."""
    leaks = MEASURED_LEAKS.get(engine.name, ())
    return [leak for leak in leaks if not (engine.hides_sums and leak.by_sums)]
