"""How much is disclosed to the active party of another party's columns, by sums and by directions?

::

    python -m benchmarks.disclosed_columns [--page FILE]

The same trees under each engine, or nearly: rounded gradients and merged cells change them. What
sums tell is what the audit's attack *bins from sums* reads; where no sum is shown it finds nothing
to begin with. Directions are those of rows in nodes that the other party has won.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.merged_cells import MADE_UP_ROWS, audited, made_up
from benchmarks.page import write_page
from fedmq import TrainParams
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
    "What is disclosed to an honest active party of another party's four columns in "
    f"{TREES} trees of depth 3, 32 bins, over {MADE_UP_ROWS:,} made-up rows. *Placed* and "
    "*candidate bits* are as in [Merged cells](merged-cells.md), read from sums. *Directions*: of "
    "how many splits of the other party a row's side is disclosed, in all trees together. What "
    "sums tell is more: [exact sums show the columns]"
    "(../privacy/attacks.md#exact-sums-solved-together)."
)


def directions(tree: Tree, leaves: NDArray[np.int32]) -> float:
    """Splits of others that a row meets on its way to its leaf, on the average."""
    met = np.zeros(len(tree), np.int64)
    for node in np.flatnonzero(~tree.is_leaf):  # the root first
        met[[tree.left[node], tree.right[node]]] = met[node] + (tree.owner[node] != ACTIVE_PARTY)
    return float(met[leaves].mean())


def line_of(title: str, case: dict[str, Any]) -> str:
    """A row of the table: train, audit and count."""
    settings = dict(case)
    params = TrainParams(
        num_boost_round=TREES,
        max_depth=3,
        max_bin=32,
        gradient_bits=settings.pop("gradient_bits", None),
        xgboost_arithmetic=OLDEST,
    )
    model, found = audited(params, **settings)
    tables = [model.share.lookup_table, model.passive_shares["passive"].lookup_table]
    values = made_up()[:2]
    disclosed = sum(
        directions(tree, walk_pooled(tree, tables, values)) for tree in model.share.trees
    )
    placed = found.get("passive's cells between two cuts")
    read = found.get("passive's candidate bits, all links known")
    cells = (
        f"{placed.value:.2%}" if placed else "no sum",
        f"{read.value:.1%}" if read else "no sum",
        f"{read.chance:.1%}" if read else "",
        f"{disclosed:.1f}",
    )
    return f"| {title} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    lines = [
        "| engine | placed | candidate bits | by guessing | directions of a row |",
        "|---|---:|---:|---:|---:|",
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
