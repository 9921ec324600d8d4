"""How much do the directions of splits tell the active party of another party's columns?

::

    python -m benchmarks.disclosed_columns [--page FILE]

The same trees under each engine, or nearly: rounded gradients and merged cells change them.
Directions are those of rows in nodes that the other party has won. What shown sums tell stands on
the page of leaks (`benchmarks.papers`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.merged_cells import MADE_UP_ROWS, made_up
from benchmarks.page import write_page
from fedmq import TrainParams, simulate
from fedmq.boosting.model.tree import ACTIVE_PARTY, Tree
from fedmq.boosting.params import OLDEST
from fedmq.boosting.xgboost_comparison.pooled_tree import walk_pooled

TREES = 25
CASES: dict[str, dict[str, Any]] = {
    "`ou`": {"engine": "ou", "engine_options": {"key_bits": 1024, "allow_weak_keys": True}},
    "`lattice`": {"engine": "lattice"},
    "`lattice`, `gradient_bits = 4`": {"engine": "lattice", "gradient_bits": 4},
    "`lattice`, `smallest_cell = 10`": {"engine": "lattice", "smallest_cell": 10},
    '`lattice`, `sums = "hidden"`': {"engine": "lattice", "engine_options": {"sums": "hidden"}},
}
HEAD = (
    "What the directions of splits disclose to an honest active party of another party's four "
    f"columns in {TREES} trees of depth 3, 32 bins, over {MADE_UP_ROWS:,} made-up rows: of how "
    "many splits of the other party a row's side is disclosed, in all trees together. The model "
    "needs them, whatever else is hidden. Shown sums tell more: [they show the columns]"
    "(leakage.md#columns-read-from-shown-sums)."
)


def directions(tree: Tree, leaves: NDArray[np.int32]) -> float:
    """Splits of others that a row meets on its way to its leaf, on the average."""
    met = np.zeros(len(tree), np.int64)
    for node in np.flatnonzero(~tree.is_leaf):  # the root first
        met[[tree.left[node], tree.right[node]]] = met[node] + (tree.owner[node] != ACTIVE_PARTY)
    return float(met[leaves].mean())


def line_of(title: str, case: dict[str, Any]) -> str:
    """A row of the table: train and count."""
    settings = dict(case)
    params = TrainParams(
        num_boost_round=TREES,
        max_depth=3,
        max_bin=32,
        gradient_bits=settings.pop("gradient_bits", None),
        xgboost_arithmetic=OLDEST,
    )
    active, passive, label = made_up()
    model = simulate(
        active=active, label=label, passive={"passive": passive}, params=params, **settings
    )
    tables = [model.share.lookup_table, model.passive_shares["passive"].lookup_table]
    disclosed = sum(
        directions(tree, walk_pooled(tree, tables, (active, passive))) for tree in model.share.trees
    )
    return f"| {title} | {disclosed:.1f} |"


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    lines = [
        "| engine | directions of a row |",
        "|---|---:|",
    ]
    for title, case in CASES.items():
        lines.append(line_of(title, case))
        print(lines[-1], flush=True)
    if options.page:
        write_page(
            options.page,
            "Disclosed columns",
            "make bench-disclosed-columns",
            HEAD,
            "\n".join(lines),
        )


if __name__ == "__main__":
    main()
