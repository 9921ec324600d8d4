"""Measured success of attacks on each engine, from docs/measured/leakage.md, for owners.

A test compares the figures with the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedmq.privacy.engine import Engine

__all__ = ["MEASURED_LEAKS", "PAGE", "MeasuredLeak", "measured_leaks"]

PAGE = "docs/measured/leakage.md"


@dataclass(frozen=True, slots=True)
class MeasuredLeak:
    """One attack on public data: ``value`` of ``measure``, beside what ``guessing`` reaches.

    ``who`` mounts it, and ``what`` is its target; ``row`` holds the first cells of its line on the
    page, or the header of its column.
    """

    who: str
    what: str
    measure: str
    value: float
    guessing: float
    row: Sequence[str]

    def described(self) -> dict[str, Any]:
        """Plain data, for people."""
        described = asdict(self)
        del described["row"]
        return described


_CREDIT = "Credit 2, 30,000 rows"
_FROM_SUMS = "bins from sums"
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
_CELLS = MeasuredLeak(
    "the active party",
    "people placed between two cuts of this party's columns, from the sums of 25 trees",
    "share",
    0.001,
    0.0,
    (_CREDIT, _FROM_SUMS, "passive's cells between two cuts"),
)
_LINKED = MeasuredLeak(
    "the active party",
    "the side of each person at this party's cuts, if candidates keep their numbers",
    "accuracy",
    0.901,
    0.767,
    (_CREDIT, _FROM_SUMS, "passive's candidate bits, all links known"),
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
    "paillier": (_LABELS_OF_NODES, _ORDER, _CELLS),
    "ou": (_LABELS_OF_NODES, _ORDER, _CELLS),
    "lattice": (_ORDER, _CELLS, _LINKED),
    "ldp": (_NOISY_LABELS, _ORDER),
}
"""By engine. ``plain`` hides nothing; smm1 and smm2 describe their own leaks."""


def measured_leaks(engine: Engine) -> Sequence[MeasuredLeak]:
    """The leaks of a job's ``engine``; if it hides sums, only those of attacks without sums."""
    leaks = MEASURED_LEAKS.get(engine.name, ())
    return [leak for leak in leaks if not engine.hides_sums or _FROM_SUMS not in leak.row]
