"""What other parties have shared of their columns' names, by model, at the label holder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedmq.boosting.model.lookup_table import ShownColumns
from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically

__all__ = ["column_names_path", "keep_column_names", "read_column_names"]

_Names = TypeAdapter(dict[str, ShownColumns])


def column_names_path(state: Path, model: str) -> Path:
    """The file of ``model`` in the state folder, whether it exists or not."""
    return state / "columns" / f"{model}.json"


def read_column_names(state: Path, model: str) -> dict[str, ShownColumns]:
    """By party, whose texts are names of columns; DataError if the file is damaged."""
    path = column_names_path(state, model)
    try:
        return _Names.validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError):
        raise DataError(f"{path}: is damaged; delete it, and ask for the names again") from None


def keep_column_names(state: Path, model: str, shared: Mapping[str, ShownColumns]) -> None:
    """Keep these beside what other parties shared before; ConfigError if the disk refuses."""
    path = column_names_path(state, model)
    names = {**read_column_names(state, model), **shared}
    try:
        write_atomically(path, _Names.dump_json(names), 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
