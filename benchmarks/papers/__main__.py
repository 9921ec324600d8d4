"""Run all experiments and write ``papers.md``, ``leakage.md`` and their plots.

::

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.papers DATA [--out docs/measured] [--leakage]

DATA holds ``credit1_active.csv``, ``credit1_passive.csv``, ``credit2_active.csv`` and
``credit2_passive.csv``. One thread of BLAS, because threads that wait for each other count as
processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.credit import Credit
from benchmarks.papers import fedxgboost, leakage, secureboost, times
from benchmarks.papers.scalability import scalability
from fedmq.party.compute.processes import cores

PAPERS_HEAD = """# The papers' experiments, run again

Written by `make papers DATA=<folder>`; do not edit. Settings as published: two thirds of the rows
for training, the features in two halves, depth 3, subsample 0.8, eta 0.3. The number of bins is 32.
All parties run in one process of this project, through the daemons' machines and messages.

The published figures of [SecureBoost](https://arxiv.org/abs/1901.08755v3), Tables 1 and 2 and the
curves, stand in the paper and are not copied here: no text that holds them was at hand when this
page was written. Of [FedXGBoost](https://arxiv.org/abs/2106.10662) the times per tree are, beside
the measured ones, at the end of this page. What differs by design is said with each table.
"""

LEAKAGE_HEAD = """# What the engines leak, measured

Written by `make papers DATA=<folder>`; do not edit. The attacks are those of `fedmq audit`
([how to](../how-to/audit.md)); the engines are described [here](../explanation/engines.md).
"""


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/measured"))
    parser.add_argument("--leakage", action="store_true", help="only leakage.md and its plots")
    args = parser.parse_args()
    plots = args.out / "data"
    plots.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    credit1 = Credit.read(args.data, "credit1")
    credit2 = Credit.read(args.data, "credit2")
    part = Credit.read(args.data, "credit1", rows=20_000)
    leaks = [
        LEAKAGE_HEAD,
        *leakage.exact([part, credit2]),
        *leakage.directions_alone(credit2),
        *leakage.shown_sums(credit2),
        *leakage.explained([part, credit2]),
        *leakage.masked(credit2, plots),
        *leakage.noisy(credit2, plots),
    ]
    write(args.out / "leakage.md", leaks)
    if args.leakage:
        return
    many = {"plain": 5, "ldp": 5, "paillier": 1}
    pieces = [
        PAPERS_HEAD,
        "## SecureBoost\n",
        *secureboost.loss_curves([credit1, credit2], plots),
        *secureboost.purity_and_quality([credit1, credit2]),
        *scalability(args.out / "data"),
        "## FedXGBoost\n",
        *fedxgboost.by_rows(credit2, plots),
        "### Figure 5 and Table 1: loss and time of every engine\n",
        FEDXGBOOST_NOTE,
        *fedxgboost.engines(credit2, plots),
        *fedxgboost.engines(part, plots),
        "### Time per tree, published and measured\n",
        times.NOTE,
        *times.beside_published(
            credit2, {"plain": 10, "ldp": 10, "smm1": 8, "smm2": 3, "paillier": 2}, 3, True
        ),
        *times.beside_published(credit1, many, 1, False),
        f"Written in {time.perf_counter() - begun:.0f} s on {cores()} cores, NumPy "
        f"{np.__version__}. Times depend on the machine and on what else it did; ratios within a "
        "table are what to read.\n",
    ]
    write(args.out / "papers.md", pieces)


FEDXGBOOST_NOTE = """SMM and Paillier grow the very trees of plain: the run stops if one loss
differs. Noise was drawn with a fixed seed. In the second order, h is disclosed as well, with a
budget of its own; a side whose h drowns in noise is no candidate here, which the paper does not
have: the loss of epsilon = 1 is higher without. Time is processor time of all parties together, one
thread of BLAS, which other work on the machine disturbs little; Paillier's spreads over all cores.
"""


def write(path: Path, pieces: Iterable[str]) -> None:
    """Write a page."""
    path.write_text("\n".join(pieces))
    print(path)


if __name__ == "__main__":
    main()
