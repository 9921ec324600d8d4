"""What does a party keep when a training has finished?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.cross_validations import CrossValidationStore
from fedmq.party.store.held_out import HeldOutRows
from fedmq.party.store.models import ModelStore
from fedmq.party.store.sessions import StoredSession
from fedmq.party.store.trained_counts import TrainedCounts
from fedmq.party.store.training_records import TrainingRecord
from fedmq.protocol.training.tables import ActiveTable, PassiveTable

__all__ = ["keep_result", "keep_share"]


def keep_result(
    state: Path,
    session: StoredSession,
    job: TrainingJob,
    table: ActiveTable,
    margins: Callable[[], NDArray[np.float32] | None],
    result: ActiveShare | CrossValidated,
) -> None:
    """Keep how a model was trained, the rows that were held out, and counts; then the share.

    A model is there with them or not. ``margins`` gives those of all rows at the end. Of a
    cross-validation only the figures and the folds are kept. ConfigError if the disk refuses.
    """
    if isinstance(result, CrossValidated):
        CrossValidationStore(state).save(result, table)
        return
    held_out = int(table.evaluation.sum())
    rows = len(table.label) - held_out
    record = TrainingRecord.of(session.id, job, rows, held_out, session.begun)
    record.write(state, result.model_id)
    TrainedCounts.of(table.features, table.values, margins()).write(state, result.model_id)
    if held_out:
        HeldOutRows.of(table).write(state, result.model_id)
    ModelStore(state).save(result)


def keep_share(state: Path, table: Callable[[], PassiveTable], share: PassiveShare) -> None:
    """Keep the counts of a feature holder's columns, and then its share; as `keep_result`."""
    trained = table()
    TrainedCounts.of(trained.features, trained.values).write(state, share.model_id)
    ModelStore(state).save(share)
