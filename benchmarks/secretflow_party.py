"""One of two parties that train with SecretFlow's SGB; it runs in SecretFlow's own environment.

::

    python -m benchmarks.secretflow_party alice JOB

JOB is JSON as `benchmarks.secretflow` writes it: its ports are where this party listens, and where
it reaches the other one, perhaps over a link. Alice has the labels. The last line is JSON: the
seconds of a tree, from trainings that differ in their number of trees alone.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

MESSAGE_SECONDS = 3600
"""A message may take so long. After SecretFlow's minute one over a slow link would be given up, and
the other party would wait for it for ever."""


def begin(party: str, job: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """SecretFlow as ``party``, the devices of alice and bob, and alice's cipher, which bob adds."""
    secretflow: Any = importlib.import_module("secretflow")
    addresses = {
        name: {"address": f"127.0.0.1:{port}", "listen_addr": f"0.0.0.0:{port}"}
        for name, port in job["ports"].items()
    }
    cluster = {"parties": addresses, "self_party": party}
    secretflow.init(
        cluster_config=cluster,
        log_to_driver=False,
        ray_mode=False,
        cross_silo_comm_options={"timeout_in_ms": MESSAGE_SECONDS * 1000},
    )
    alice, bob = (secretflow.PYU(name) for name in ("alice", "bob"))
    cipher = secretflow.HEU(
        {
            "sk_keeper": {"party": "alice"},
            "evaluators": [{"party": "bob"}],
            "mode": "PHEU",
            "he_parameters": {
                "schema": job["schema"],
                "key_pair": {"generate": {"bit_size": job["key_bits"]}},
            },
        },
        "FM128",
    )
    return secretflow, alice, bob, cipher


def finish(found: dict[str, Any]) -> None:
    """Print what was ``found`` as the last line, and end the process."""
    print(json.dumps(found), flush=True)
    os._exit(0)  # its own way out waits for minutes


def main() -> None:
    """Train twice, and print what the trees between cost."""
    party, job = sys.argv[1], json.loads(sys.argv[2])
    _, alice, bob, cipher = begin(party, job)
    data: Any = importlib.import_module("secretflow.data")
    booster: Any = importlib.import_module("secretflow.ml.boost.sgb_v").Sgb
    columns = {alice: alice(_values)(job, "active"), bob: bob(_values)(job, "passive")}
    vertical = data.PartitionWay.VERTICAL
    features = data.FedNdarray(columns, vertical)
    labels = data.FedNdarray({alice: alice(_values)(job, "label")}, vertical)

    def seconds(trees: int) -> float:
        begun = time.perf_counter()
        booster(cipher).train(
            {
                "num_boost_round": trees,
                "max_depth": job["depth"],
                "learning_rate": 0.3,
                "objective": "logistic",
                "reg_lambda": 1.0,
                "gamma": 0.0,
                "sketch_eps": 1 / job["bins"],
                "batch_encoding_enabled": True,
                # Else the first tree is alice's alone, without a cipher, and what a training sends
                # once would count in the second.
                "first_tree_with_label_holder_feature": False,
            },
            features,
            labels,
        )
        return time.perf_counter() - begun

    first, all_of_them = seconds(1), seconds(1 + job["trees"])
    finish({"seconds": (all_of_them - first) / job["trees"]})


def _values(job: dict[str, Any], which: str) -> Any:
    """The columns of a party, or the label, float64 (rows, columns); SecretFlow takes no gaps."""
    pandas: Any = importlib.import_module("pandas")
    file = job[f"{'passive' if which == 'passive' else 'active'} table"]
    read = pandas.read_parquet if file.endswith(".parquet") else pandas.read_csv
    table = read(file)
    if which == "label":
        return table[[job["label"]]].to_numpy(float)
    others = [column for column in table.columns if column not in ("id", job["label"])]
    return table[others].fillna(-1).to_numpy(float)


if __name__ == "__main__":
    main()
