"""One of two parties whose columns SecretFlow bins by weight of evidence, in its own environment.

::

    python -m benchmarks.secretflow_screen_party alice JOB

JOB is JSON as `benchmarks.screening` writes it. Alice has the labels. The last line is JSON: the
seconds, and the information value of each column.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

from benchmarks.secretflow_party import begin, finish


def main() -> None:
    """Bin all columns once, and print what it took."""
    party, job = sys.argv[1], json.loads(sys.argv[2])
    secretflow, alice, bob, cipher = begin(party, job)
    frames: Any = importlib.import_module("secretflow.component.core.dataframe")
    binning: Any = importlib.import_module("secretflow.preprocessing.binning.vert_woe_binning")
    tables = {alice: alice(_table)(job, "active"), bob: bob(_table)(job, "passive")}
    names = {device: secretflow.reveal(device(_names)(table)) for device, table in tables.items()}
    wanted = {device: [name for name in names[device] if name != job["label"]] for device in tables}
    vertical = frames.CompVDataFrame(
        {device: frames.CompPartition(table) for device, table in tables.items()}
    )
    begun = time.perf_counter()
    rules = binning.VertWoeBinning(cipher).binning(
        vertical, bin_num=job["bins"], bin_names=wanted, label_name=job["label"], positive_label="1"
    )
    told = secretflow.reveal(rules[alice])
    seconds = time.perf_counter() - begun
    found = {one["name"]: float(one["feature_iv"]) for one in told["feature_iv_info"]}
    finish({"seconds": seconds, "iv": found})


def _table(job: dict[str, Any], which: str) -> Any:
    """The columns of a party, with the label at the active one: an Arrow table."""
    pandas: Any = importlib.import_module("pandas")
    arrow: Any = importlib.import_module("pyarrow")
    table = pandas.read_csv(job[f"{which} table"]).drop(columns="id")
    columns = [name for name in table.columns if name != job["label"]]
    table[columns] = table[columns].astype(float)
    return arrow.Table.from_pandas(table, preserve_index=False)


def _names(table: Any) -> list[str]:
    return list(table.column_names)


if __name__ == "__main__":
    main()
