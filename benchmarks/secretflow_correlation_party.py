"""One of two parties whose columns SecretFlow correlates by secret sharing, in its own environment.

::

    python -m benchmarks.secretflow_correlation_party alice JOB

JOB is JSON as `benchmarks.correlation` writes it. The last line is JSON: the seconds of the
coefficients, those of variance inflation, and both.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

from benchmarks.secretflow_party import begin, finish


def main() -> None:
    """Correlate all columns once, inflate them once, and print what it took."""
    party, job = sys.argv[1], json.loads(sys.argv[2])
    secretflow, alice, bob, _ = begin(party, job)
    core: Any = importlib.import_module("secretflow.data.core")
    vertical: Any = importlib.import_module("secretflow.data.vertical")
    pearson: Any = importlib.import_module("secretflow.stats.ss_pearsonr_v")
    inflation: Any = importlib.import_module("secretflow.stats.ss_vif_v")
    # What its documentation recommends for large tables, so that both fit.
    shares = secretflow.SPU(
        {
            "nodes": [
                {"party": name, "address": f"127.0.0.1:{port}"}
                for name, port in job["sharing ports"].items()
            ],
            "runtime_config": {"protocol": "SEMI2K", "field": "FM128", "fxp_fraction_bits": 40},
        }
    )
    table = vertical.VDataFrame(
        {
            device: core.partition(device(_table)(job, which))
            for device, which in ((alice, "active"), (bob, "passive"))
        }
    )
    begun = time.perf_counter()
    coefficients = pearson.PearsonR(shares).pearsonr(table)
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    factors = inflation.VIF(shares).vif(table)
    finish(
        {
            "seconds": seconds,
            "vif seconds": time.perf_counter() - begun,
            "coefficients": [[float(each) for each in row] for row in coefficients],
            "vif": [float(each) for each in factors],
        }
    )


def _table(job: dict[str, Any], which: str) -> Any:
    """The columns of a party as a pandas data frame; what is missing stands at the mean."""
    pandas: Any = importlib.import_module("pandas")
    table = pandas.read_csv(job[f"{which} table"])
    table = table.drop(columns=["id", job["label"]], errors="ignore").astype(float)
    return table.fillna(table.mean())


if __name__ == "__main__":
    main()
