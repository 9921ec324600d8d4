"""What is kept of a model, and goes when it is deleted?"""

from __future__ import annotations

from pathlib import Path

from fedmq.errors import ConfigError
from fedmq.party.store.column_names import column_names_path
from fedmq.party.store.deployments import Deployments
from fedmq.party.store.held_out import held_out_path
from fedmq.party.store.model_documents import model_document_path
from fedmq.party.store.models import ModelStore
from fedmq.party.store.trained_counts import drift_files
from fedmq.party.store.training_records import training_record_path

__all__ = ["check_unserved", "delete_model"]


def check_unserved(state: Path, model: str) -> None:
    """Raise ConfigError where ``model`` is served, or can be rolled back to."""
    names = Deployments.read(state).names_of(model)
    if names:
        raise ConfigError(
            f"model {model!r} is served as {', '.join(names)}, or was: activate another model "
            "until it can no longer be rolled back to"
        )


def delete_model(state: Path, model: str) -> None:
    """Delete this party's share of ``model`` and what lies beside it; the share goes last.

    Raises:
        ConfigError: it is served, or the disk refuses.
    """
    check_unserved(state, model)
    share = ModelStore(state).path(model)
    try:
        beside = (
            held_out_path(state, model),
            training_record_path(state, model),
            column_names_path(state, model),
            model_document_path(state, "report", model),
            model_document_path(state, "card", model),
        )
        for path in (*beside, *drift_files(state, model), share):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{share}: cannot be deleted: {error.strerror}") from None
