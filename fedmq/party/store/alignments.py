"""This party's alignments, as JSON files in its state folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically

__all__ = ["AlignmentStore", "StoredAlignment"]


class StoredAlignment(BaseModel):
    """``ids``: this party's own ids in the order that all ``parties`` share.

    ``session``: the session that made it, the same at all parties. ``fingerprint``: of the table
    that it was made from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["fedmq.alignment"] = "fedmq.alignment"
    version: Literal[1] = 1
    name: str
    session: str
    made: str
    parties: tuple[str, ...]
    normalise: tuple[str, ...]
    fingerprint: str
    ids: tuple[str, ...]


class AlignmentStore:
    """Alignments by name; their files are written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "alignments"

    def names(self) -> list[str]:
        """The alignments that are here, the oldest first."""
        files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [path.stem for path in files]

    def path(self, name: str) -> Path:
        """The file of ``name``, whether it exists or not."""
        return self._folder / f"{name}.json"

    def save(self, alignment: StoredAlignment) -> None:
        """Write ``alignment`` in place of one of the same name; ConfigError if the disk refuses."""
        path = self.path(alignment.name)
        try:
            write_atomically(path, alignment.model_dump_json(), mode=0o600)
        except OSError as error:
            raise ConfigError(
                f"{path}: the alignment cannot be written: {error.strerror}"
            ) from None

    def described(self, name: str) -> dict[str, Any]:
        """The alignment ``name`` without its ids, as plain data; DataError as for ``load``."""
        found = self.load(name)
        return {
            "alignment": found.name,
            "rows": len(found.ids),
            "parties": list(found.parties),
            "made": found.made,
            "normalise": list(found.normalise),
        }

    def load(self, name: str) -> StoredAlignment:
        """The alignment ``name``; DataError if it is missing or damaged."""
        path = self.path(name)
        try:
            return StoredAlignment.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            known = ", ".join(self.names()[-5:]) or "none"
            raise DataError(f"there is no alignment {name!r} here; there are: {known}") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        except ValidationError:
            raise DataError(f"{path}: not an alignment; make it anew with: fedmq align") from None
