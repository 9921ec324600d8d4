"""What a training came to, as the label holder's owner reads it."""

from __future__ import annotations

import time
from typing import Any

from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.share import ActiveShare
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.sessions import StoredSession
from fedmq.privacy.registry import engine_named

__all__ = ["result_of"]


def result_of(
    session: StoredSession, share: ActiveShare | CrossValidated, sent: int
) -> dict[str, Any]:
    """What ``session`` came to, for its owner; ``sent`` bytes have left."""
    job = TrainingJob.of_stored(session.job)
    engine = engine_named(job.engine, job.engine_options, "job")
    seconds = round(max(0.0, time.time() - session.begun), 3)
    if isinstance(share, CrossValidated):
        asked = max(0, share.rounds * share.params.trees_per_round - job.params.trees_alone)
        return {
            "cross_validation": share.name,
            "folds": share.folds,
            "rounds": share.rounds,
            "best_iteration": share.best_iteration,
            "figures": {name: list(values) for name, values in share.figures.items()},
            "seconds": seconds,
            "bytes_sent": sent,
            "epsilon_spent": engine.epsilon_spent(share.folds * asked),
        }
    broadcast = max(0, len(share.trees) - share.earlier_trees - job.params.trees_alone)
    return {
        "model": session.model,
        "trees": len(share.trees),
        "best_iteration": share.best_iteration,
        "metrics": share.metrics,
        "seconds": seconds,
        "bytes_sent": sent,
        "epsilon_spent": engine.epsilon_spent(broadcast),
        "departures": list(share.departures),
    }
