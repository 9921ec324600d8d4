"""Trainings whose every message is kept, with all that there was to keep secret."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmq.messages.envelope import Envelope
from tests.protocol.federation import Federation
from tests.protocol.inspection import Secret, secrets_of
from tests.simulator import Simulation

ROWS = 300


def federation(counts: tuple[int, ...] = (2, 2, 2), **params: Any) -> Federation:
    """Values of full precision, and labels that no split tells apart; ``counts`` of six columns."""
    random = np.random.default_rng(11)
    X = random.normal(size=(ROWS, 6)).astype(np.float32)
    label = (X.sum(axis=1) + 3 * random.normal(size=ROWS) > 0).astype(np.float32)
    X[random.random(X.shape) < 0.1] = np.nan
    made = Federation.dealt(X, label, counts, **{"max_depth": 3, "subsample": 0.9, **params})
    return made.having(evaluation=random.random(ROWS) < 0.2)


def trained(made: Federation, **schedule: Any) -> tuple[list[Envelope], list[Secret], Simulation]:
    """Every message of a training, and all that there was to keep secret."""
    envelopes: list[Envelope] = []
    simulation = made.train(tap=envelopes.append, **schedule)
    assert not simulation.errors
    secrets = secrets_of(
        made.columns,
        made.label,
        made.evaluation,
        simulation.results,
        hides_rows=made.engine.traits.hides_rows,
    )
    return envelopes, secrets, simulation
