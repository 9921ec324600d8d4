"""The papers' two credit tables, split between two parties, and one simulated training on them."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fedmq

LABELS = {"credit1": "SeriousDlqin2yrs", "credit2": "default.payment.next.month"}
TITLES = {"credit1": "Credit 1", "credit2": "Credit 2"}


@dataclass(frozen=True, eq=False)
class Credit:
    """Features of both parties, and the label; rows in the same order."""

    name: str
    active: pd.DataFrame
    passive: pd.DataFrame
    label: NDArray[np.float32]

    @classmethod
    def read(cls, folder: Path, name: str, rows: int | None = None) -> Credit:
        """``<name>_active.csv`` and ``<name>_passive.csv``; the first ``rows``, or all."""
        active = pd.read_csv(folder / f"{name}_active.csv", nrows=rows)
        passive = pd.read_csv(folder / f"{name}_passive.csv", nrows=rows).drop(columns="id")
        label = active[LABELS[name]].to_numpy(np.float32)
        return cls(name, active.drop(columns=["id", LABELS[name]]), passive, label)

    def held_out(self, seed: int) -> NDArray[np.bool_]:
        """A random third of the rows, for tests: two thirds are for training."""
        return np.random.default_rng(seed).random(len(self.label)) < 1 / 3

    def joined(self) -> NDArray[np.float32]:
        """All columns side by side, the active party's first."""
        return np.column_stack((self.active, self.passive)).astype(np.float32)


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
