"""What ``smallest_cell`` costs of a model, and how many people sums still place between two cuts.

::

    python -m benchmarks.merged_cells DATA [--page FILE]

DATA holds ``credit1_*.csv`` and ``credit2_*.csv``. Losses are those of a third of the rows that was
held out, under engine ``plain``, which every engine but ``lattice`` equals. Nodes are compared with
those of XGBoost on the joined table; below a node that differs no other counts as identical.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.credit import Credit
from benchmarks.page import write_page
from fedmq import TrainParams, audit, simulate
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.leakage.attacks.finding import Finding
from fedmq.simulation.model import SimulatedModel

SIZES = (0, 5, 10, 20)
DATA = {"credit1": "Credit 1", "credit2": "Credit 2"}
SHAPES = ((3, 32), (6, 256))
TREES = 30
MADE_UP_ROWS, MADE_UP_TREES = 6000, 10
HEAD = (
    "What [`smallest_cell`](../how-to/consent.md#cells-of-few-rows) costs of a model, and how many "
    "people an honest active party still places between two cuts. With 0 models are XGBoost's. "
    "All sums together tell more: [they show the "
    "columns](leakage.md#columns-read-from-shown-sums)."
)


def trained(credit: Credit, params: TrainParams, smallest_cell: int) -> SimulatedModel:
    """A model on two thirds of the rows."""
    return simulate(
        active=credit.active,
        label=credit.label,
        passive={"passive": credit.passive},
        params=params,
        engine="plain",
        evaluation=credit.held_out(0),
        smallest_cell=smallest_cell,
    )


def loss_lines(folder: Path) -> list[str]:
    """A table of losses and of nodes that differ, by table, shape of trees, and smallest cell."""
    lines = [
        "| table | depth, bins | smallest cell | log loss | beside 0 | identical nodes, tree 1 | "
        f"identical nodes, {TREES} trees | core seconds per tree |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, title in DATA.items():
        credit = Credit.read(folder, name)
        training = ~credit.held_out(0)
        for depth, bins in SHAPES:
            params = TrainParams(num_boost_round=TREES, max_depth=depth, max_bin=bins)
            values = credit.joined()[training]
            table = BinMatrix.of(values, Cuts.of(values, bins))
            reference = train_reference(table, credit.label[training], params)
            first = None
            for smallest in SIZES:
                started = time.process_time()
                model = trained(credit, params, smallest)
                seconds = (time.process_time() - started) / TREES
                loss = model.evals_result["eval"]["logloss"][-1]
                first = loss if first is None else first
                trees = model.joined_trees()
                one, all_of = (
                    compare(reference[:1], trees[:1], table),
                    compare(reference, trees, table),
                )
                lines.append(
                    f"| {title} | {depth}, {bins} | {smallest} | {loss:.5f} | {loss - first:+.5f} "
                    f"| {one.identical} of {one.total} | {all_of.identical} of {all_of.total} "
                    f"| {seconds:.2f} |"
                )
                print(lines[-1], flush=True)
    return lines


def made_up() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Normal columns of two parties, four each, and a label that depends on all."""
    random = np.random.default_rng(1)
    columns = random.normal(size=(MADE_UP_ROWS, 8)).astype(np.float32)
    weights = np.array([1, 0.5, -0.7, 0.3, 0.9, -0.8, 0.6, 0.4])
    noise = random.normal(size=MADE_UP_ROWS) * 1.5
    return columns[:, :4], columns[:, 4:], (columns @ weights + noise > 0).astype(np.float32)


def audited(params: TrainParams, **settings: Any) -> tuple[SimulatedModel, dict[str, Finding]]:
    """A model of the made-up table, and by target what its active party's recording tells."""
    active, passive, label = made_up()
    tables = {"passive": passive}
    with tempfile.TemporaryDirectory() as folder:
        model = simulate(
            active=active, label=label, passive=tables, params=params, record=folder, **settings
        )
        report = audit(
            Path(folder) / "active.recording",
            passive=tables,
            label=label,
            leaf_weights=model.leaf_weights(active=active, passive=tables),
            solve=False,
        )
    return model, {finding.target: finding for finding in report.findings}


def placed_lines() -> list[str]:
    """A table of what the audit's attack *bins from sums* reads."""
    lines = [
        "| smallest cell | gradient bits | placed | beside a cut | training loss |",
        "|---:|---|---:|---:|---:|",
    ]
    for smallest in SIZES:
        for bits in (None, 4):
            params = TrainParams(
                num_boost_round=MADE_UP_TREES, max_depth=6, max_bin=256, gradient_bits=bits
            )
            model, found = audited(params, engine="plain", smallest_cell=smallest)
            placed = found["passive's cells between two cuts"].value
            beside = found["passive's cells beside a cut"].value
            loss = model.evals_result["train"]["logloss"][-1]
            lines.append(
                f"| {smallest} | {bits or 'off'} | {placed:.2%} | {beside:.2%} | {loss:.5f} |"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    text = [
        "## The model\n\nLog loss of a third of the rows, held out. Once a node differs, later "
        "trees grow from other gradients, so that hardly any of their nodes can be identical.\n",
        *loss_lines(options.data),
        f"\n## The attack\n\n{MADE_UP_ROWS:,} made-up rows, four columns a party, {MADE_UP_TREES} "
        "trees of depth 6, 256 bins. *Placed*: (row, column) pairs that a sum, or a difference of "
        "two, names as one of 1, 2 or 3 rows between two cuts; sums of a node that follow from "
        "its parent's and its sibling's count as seen. *Beside a cut*: pairs whose side of some "
        "cut is read by trying all sets of rows in nodes of up to 32.\n",
        *placed_lines(),
    ]
    if options.page:
        command = "python -m benchmarks.merged_cells DATA"
        write_page(options.page, "Merged cells", command, HEAD, "\n".join(text))


if __name__ == "__main__":
    main()
