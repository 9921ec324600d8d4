"""XGBoost on the joined table: what every time per tree is a ratio to."""

from __future__ import annotations

import time
from typing import Any

from numpy.typing import NDArray

from fedmq import TrainParams
from fedmq.party.compute.processes import cores

TREES = 20


def xgboost_seconds(values: NDArray[Any], label: NDArray[Any], params: TrainParams) -> float:
    """Per tree, on all cores, as for us; without reading the table, which comes before trees."""
    import xgboost  # not before our own memory is measured: it takes 150 MB

    matrix = xgboost.QuantileDMatrix(values, label=label, nthread=cores(), max_bin=params.max_bin)
    chosen = params.model_copy(update={"goss": False}).to_xgboost() | {"nthread": cores()}
    xgboost.train(chosen, matrix, 1)  # threads take a while to start
    begun = time.perf_counter()
    xgboost.train(chosen, matrix, TREES)
    return (time.perf_counter() - begun) / TREES
