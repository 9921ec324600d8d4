"""How much is the label holder told of another party's columns, by sums and by directions?

::

    python -m benchmarks.told_columns [--page FILE]

The same trees under each engine, or nearly: rounded gradients and merged cells change them. What
sums tell is what the audit's attack *bins from sums* reads; where no sum is shown it finds nothing
to begin with. Directions are those of rows in nodes that the other party has won.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.merged_cells import MADE_UP_ROWS, made_up
from benchmarks.page import write_page
from fedmq import TrainParams, audit, simulate
from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.xgboost.arithmetic import OLDEST
from fedmq.boosting.xgboost.pooled_tree import PooledTree

TREES = 25
CASES: dict[str, dict[str, Any]] = {
    "`ou`": {"engine": "ou", "engine_options": {"key_bits": 1024, "allow_weak_keys": True}},
    "`lattice`": {"engine": "lattice"},
    "`lattice`, `gradient_bits = 4`": {"engine": "lattice", "gradient_bits": 4},
    "`lattice`, `smallest_cell = 10`": {"engine": "lattice", "smallest_cell": 10},
    '`lattice`, `sums = "hidden"`': {"engine": "lattice", "engine_options": {"sums": "hidden"}},
}
HEAD = (
    f"What an honest label holder is told of another party's four columns in {TREES} trees of "
    f"depth 3, 32 bins, over {MADE_UP_ROWS:,} made-up rows. *Placed* and *candidate bits* are as "
    "in [Merged cells](merged-cells.md), read from sums. *Directions*: of how many splits of the "
    "other party a row's side is told, in all trees together."
)


def directions(tree: PooledTree, values: NDArray[np.float32]) -> float:
    """Splits of others that a row meets, on the average."""
    met, place = 0, np.zeros(len(values), np.intp)
    while not tree.tree.is_leaf[place].all():
        inside = np.flatnonzero(~tree.tree.is_leaf[place])
        nodes = place[inside]
        met += int((tree.tree.owner[nodes] != LABEL_HOLDER).sum())
        goes_left = values[inside, tree.feature[nodes]] <= tree.threshold[nodes]
        place[inside] = np.where(goes_left, tree.tree.left[nodes], tree.tree.right[nodes])
    return met / len(values)


def line_of(title: str, case: dict[str, Any]) -> str:
    """A row of the table: train, audit and count."""
    active, passive, label = made_up()
    tables = {"passive": passive}
    bits, rest = case.get("gradient_bits"), {k: v for k, v in case.items() if k != "gradient_bits"}
    params = TrainParams(
        num_boost_round=TREES,
        max_depth=3,
        max_bin=32,
        gradient_bits=bits,
        xgboost_arithmetic=OLDEST,
    )
    with tempfile.TemporaryDirectory() as folder:
        model = simulate(
            active=active, label=label, passive=tables, params=params, record=folder, **rest
        )
        report = audit(
            Path(folder) / "active.recording",
            passive=tables,
            label=label,
            leaf_weights=model.leaf_weights(active=active, passive=tables),
        )
    found = {finding.target: finding for finding in report.findings}
    told = sum(directions(tree, np.hstack([active, passive])) for tree in model.joined_trees())
    placed = found.get("passive's cells between two cuts")
    read = found.get("passive's candidate bits, all links known")
    cells = (
        f"{placed.value:.2%}" if placed else "no sum",
        f"{read.value:.1%}" if read else "no sum",
        f"{read.chance:.1%}" if read else "",
        f"{told:.1f}",
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
        write_page(options.page, "Columns told", "make bench-told-columns", HEAD, "\n".join(lines))


if __name__ == "__main__":
    main()
