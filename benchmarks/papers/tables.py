"""One simulated training of two parties on the papers' credit tables, by the papers' settings."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmq
from benchmarks.credit import Credit

TITLES = {"credit1": "Credit 1", "credit2": "Credit 2"}


def params(trees: int, **changes: Any) -> fedmq.TrainParams:
    """The papers' settings: depth 3, subsample 0.8, eta 0.3."""
    settings = {"max_depth": 3, "subsample": 0.8, "eta": 0.3, "max_bin": 32}
    return fedmq.TrainParams(**{"num_boost_round": trees, **settings, **changes})


def train(
    data: Credit,
    engine: str,
    settings: fedmq.TrainParams,
    held_out: NDArray[np.bool_],
    on_report: Callable[[Any], None] = lambda _: None,
    **options: Any,
) -> fedmq.SimulatedModel:
    """A training of two parties in this process, test rows scored after each tree."""
    return fedmq.simulate(
        active=data.active,
        label=data.label,
        passive={"passive": data.passive},
        params=settings,
        engine=engine,
        engine_options=options,
        evaluation=held_out,
        on_report=on_report,
    )


def workers_time() -> float:
    """Processor seconds of all worker processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
