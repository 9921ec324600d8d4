"""A short list against a long one, blinded once: seconds and bytes, the first time and later.

Both parties run in this process, on one pool of two worker processes::

    python -m benchmarks.prepared_alignment                     # 10^4 ids against 10^6
    python -m benchmarks.prepared_alignment --own 10000 --other 10000000

Half of the short list is on the long one. The ordinary alignment of the same lists comes first;
``--prepared-only`` leaves it out. To read the tables is no part of it, to compare ids with those
that were blinded before is.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.alignment import PARTIES, own_ids
from fedmq.computation import Given
from fedmq.party.compute.processes import ProcessPool
from fedmq.party.data.loading import AlignmentIds, OthersKeptList
from fedmq.party.store.kept_blindings import KeptPoints, OwnBlinding
from fedmq.party.telemetry.metrics import Traffic
from fedmq.protocol.alignment.active import ActiveAlignment
from fedmq.protocol.alignment.passive import PassiveAlignment
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines


def measured(what: str, bank: AlignmentIds, telco: AlignmentIds, state: Path) -> dict[str, Any]:
    """One alignment, ``what`` "ordinary" or with a blinding that lies below ``state``."""
    begun = time.perf_counter()
    kept_list = None
    if what != "ordinary":
        points = KeptPoints(state, "telco")
        kept_list = OthersKeptList(points, *points.head())
        blinding = OwnBlinding(state, 30, kept_list.name, kept_list.kept).of(telco.ids)
        telco = replace(telco, blinding=blinding)
    active = ActiveAlignment(
        "bench", PARTIES, bank.ids, (), os.urandom(32), bank.keep, kept_list=kept_list
    )
    passive = PassiveAlignment("telco", PARTIES, Given(telco), lambda _: None, os.urandom(32))
    traffic = Traffic()
    machines = {"bank": active, "telco": passive}
    common, _ = in_own_loop(run_machines(machines, ProcessPool(2), MEMORY, "training", traffic))
    assert common == len(bank.ids) // 2
    seconds = round(time.perf_counter() - begun, 2)
    return {
        "alignment": what,
        "own_ids": len(bank.ids),
        "other_ids": len(telco.ids),
        "seconds": seconds,
        "megabytes_sent": round(traffic.total.bytes / 1e6, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--own", type=int, default=10_000)
    parser.add_argument("--other", type=int, default=1_000_000)
    parser.add_argument("--prepared-only", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    turns = ["ordinary"] * (not options.prepared_only) + ["prepared first", "prepared later"]
    with tempfile.TemporaryDirectory() as folder:
        bank = own_ids("bank", range(options.own), Path(folder))
        half = options.own // 2
        telco = own_ids("telco", range(half, half + options.other), Path(folder))
        rows = [measured(what, bank, telco, Path(folder)) for what in turns]
    if options.json:
        print(json.dumps(rows))
        return
    print("| " + " | ".join(name.replace("_", " ") for name in rows[0]) + " |")
    print("|" + " ---: |" * len(rows[0]))
    for row in rows:
        print(
            "| "
            + " | ".join(
                f"{value:,}" if value is not row["alignment"] else value for value in row.values()
            )
            + " |"
        )


if __name__ == "__main__":
    main()
