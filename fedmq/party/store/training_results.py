"""What does the label holder keep when a training has finished?"""

from __future__ import annotations

from pathlib import Path

from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.share import ActiveShare
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.cross_validations import CrossValidationStore
from fedmq.party.store.held_out import HeldOutRows
from fedmq.party.store.models import ModelStore
from fedmq.party.store.sessions import StoredSession
from fedmq.party.store.training_records import TrainingRecord
from fedmq.protocol.training.tables import ActiveTable

__all__ = ["keep_result"]


def keep_result(
    state: Path,
    session: StoredSession,
    job: TrainingJob,
    table: ActiveTable,
    result: ActiveShare | CrossValidated,
) -> None:
    """Keep how a model was trained and the rows that were held out, and then the share.

    A model is there with them or not. Of a cross-validation only the figures and the folds are
    kept. ConfigError if the disk refuses.
    """
    if isinstance(result, CrossValidated):
        CrossValidationStore(state).save(result, table)
        return
    held_out = int(table.evaluation.sum())
    rows = len(table.label) - held_out
    record = TrainingRecord.of(session.id, job, rows, held_out, session.begun)
    record.write(state, result.model_id)
    if held_out:
        HeldOutRows.of(table).write(state, result.model_id)
    ModelStore(state).save(result)
