"""What was written about a model: the last report of its evaluation, and its card, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically

__all__ = ["Written", "keep_document", "model_document_path", "read_document"]

Written = Literal["report", "card"]


def model_document_path(state: Path, kind: Written, model: str) -> Path:
    """The file of ``model`` in the state folder, whether it exists or not."""
    return state / f"{kind}s" / f"{model}.json"


def keep_document(state: Path, kind: Written, model: str, text: str) -> None:
    """Keep ``text``, which is JSON, in place of an earlier one; ConfigError if the disk refuses."""
    path = model_document_path(state, kind, model)
    try:
        write_atomically(path, text, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def read_document(state: Path, kind: Written, model: str) -> dict[str, Any] | None:
    """What is kept; None if nothing is, DataError if it is damaged."""
    path = model_document_path(state, kind, model)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise DataError(f"{path}: is damaged; delete it, and make the {kind} again") from None
    return dict(document)
