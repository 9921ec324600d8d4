"""What noise that is made ahead brings, where each party has a core of its own.

::

    python -m benchmarks.apart DATA [--trees 6] [--json]

DATA holds ``credit1_*.csv`` and ``credit2_*.csv``. Two daemons train over a private RabbitMQ node,
each bound to a core, as if on machines of their own: with ``noise_ahead``, and without. Seconds
per tree are the median, the first and the last tree left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.broker import private_node
from benchmarks.estimate import BANK, TELCO, Job, Parties

JOBS = [
    Job("credit2", "ou"),
    Job("credit2", "ou", 6),
    Job("credit2", "paillier"),
    Job("credit1", "ou"),
]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--trees", type=int, default=6, help="trees of each training (6)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    found = {}
    with private_node(parties=(BANK, TELCO)) as broker, tempfile.TemporaryDirectory() as folder:
        parties = Parties(Path(folder), options.data, broker, apart=True)
        for job in JOBS:
            found[job.name] = {
                way: parties.train(parties.prepare(job, options.trees, f"noise_ahead = {way}"))
                for way in ("true", "false")
            }
    seconds = {
        name: {way: taken.seconds for way, taken in ways.items()} for name, ways in found.items()
    }
    if options.json:
        print(json.dumps(seconds))
        return
    print(f"{'seconds per tree':<28}{'ahead':>10}{'not':>10}{'ratio':>10}")
    for name, ways in seconds.items():
        ahead, otherwise = ways["true"], ways["false"]
        print(f"{name:<28}{ahead:>10.3f}{otherwise:>10.3f}{ahead / otherwise:>10.2f}")


if __name__ == "__main__":
    main()
