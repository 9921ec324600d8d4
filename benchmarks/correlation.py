"""Correlations across two parties beside SecretFlow's `PearsonR` and `VIF`, in one run.

::

    python -m benchmarks.correlation [DATA] [--sizes 2000x5 10000x20] [--json] [--page FILE]

DATA holds ``credit2_*.csv``; sizes are made-up tables of so many rows, and so many columns of each
party. SecretFlow's environment is that of `benchmarks.secretflow`; its parties share secrets
(SEMI2K, a ring of 128 bits). Both take a missing value for the mean. fedmq's coefficients are under
noise of half a hundredth, and rounded to hundredths; SecretFlow shows both parties exact ones. All
parties are on one machine; fedmq's talk over a private RabbitMQ node.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.broker import private_node
from benchmarks.credit import LABELS
from benchmarks.made_up_table import write_table
from benchmarks.page import write_page
from benchmarks.screening import screened, table_of, tables_of
from benchmarks.secretflow import VERSION, environment, free_ports, told_by_alice

SIZES = ("2000x5", "10000x20", "100000x50")
HEAD = (
    "Seconds of `fedmq.screen` with `correlation=True` and without the label, which also inflates, "
    f"and of SecretFlow {VERSION}'s `PearsonR` and `VIF` by secret sharing, all parties on the "
    "cores of one machine. *Farthest*: the largest difference of a coefficient across parties from "
    "pandas' on the joined table; fedmq's have noise of half a hundredth, and are rounded to "
    "hundredths."
)
CORRELATED = """\
found = screen(active=active, label=label, passive={"bob": passive}, measured=False,
               correlation=True, most_rows=100_000, broker=job["broker"])
seconds = time.perf_counter() - begun
told = found.found["parties"]["bob"]
between = [[None if value != value else value for value in row]
           for row in found.correlation.to_numpy().tolist()]
print(json.dumps({"seconds": seconds, "names": list(found.correlation.index),
                  "coefficients": between, "bytes": found.found["bytes_sent"]}))
"""


def joined(job: dict[str, Any]) -> Any:
    """The coefficients of the joined table: a pandas data frame, named as `fedmq.screen` does."""
    import pandas

    parts = []
    for which, prefix in (("active", ""), ("passive", "bob: ")):
        table = pandas.read_csv(job[f"{which} table"])
        table = table.drop(columns=["id", job["label"]], errors="ignore").astype(float)
        parts.append(table.fillna(table.mean()).add_prefix(prefix))
    return pandas.concat(parts, axis=1).corr()


def farthest_of(found: dict[str, Any], exact: Any) -> float:
    """The largest difference from the ``exact`` coefficients of two parties' columns."""
    names = found["names"]
    own = [place for place, name in enumerate(names) if not name.startswith("bob: ")]
    others = [place for place in range(len(names)) if place not in own]
    told = np.array(found["coefficients"], np.float64)[np.ix_(own, others)]
    wanted = exact.loc[[names[place] for place in own], [names[place] for place in others]]
    return float(np.nanmax(np.abs(told - wanted.to_numpy()), initial=0.0))


def measured(python: Path, job: dict[str, Any], broker: str) -> dict[str, float | None]:
    """The figures of one table."""
    ours, exact = screened(CORRELATED, job, broker), joined(job)
    found: dict[str, float | None] = {
        "fedmq": ours["seconds"],
        "fedmq, MB": ours["bytes"] / 1e6,
        "fedmq, farthest": farthest_of(ours, exact),
    }
    ports = dict(zip(("alice", "bob"), free_ports(2), strict=True))
    asked = job | {"schema": "ou", "sharing ports": ports}
    theirs = told_by_alice(python, "benchmarks.secretflow_correlation_party", asked)
    names = {"names": list(exact.index)}
    return found | {
        "SecretFlow, PearsonR": theirs["seconds"] if theirs else None,
        "SecretFlow, VIF": theirs["vif seconds"] if theirs else None,
        "SecretFlow, farthest": farthest_of(theirs | names, exact) if theirs else None,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--sizes", nargs="*", default=SIZES, help="rows x columns of each party")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    python = environment()
    if python is None:
        print("skipped: SecretFlow needs Python 3.10, and there is none here", file=sys.stderr)
        return
    figures: dict[str, dict[str, float | None]] = {}
    with ExitStack() as stack:
        broker = stack.enter_context(private_node())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tables = {}
        if options.data is not None:
            tables["Credit 2"] = (options.data.absolute(), "credit2", LABELS["credit2"])
        for size in options.sizes:
            rows, columns = map(int, size.split("x"))
            write_table(folder, size, rows, (columns, columns))
            tables[f"{rows:,} x ({columns} + {columns})"] = (folder, size, "label")
        for title, (where, name, label) in tables.items():
            paths = tables_of(where, name)
            figures[title] = measured(python, {"label": label, **paths}, broker)
            print(title, figures[title], file=sys.stderr)
    if options.page:
        command = "make bench-correlation"
        write_page(options.page, "Correlations beside SecretFlow", command, HEAD, table_of(figures))
    print(json.dumps(figures) if options.json else table_of(figures))


if __name__ == "__main__":
    main()
