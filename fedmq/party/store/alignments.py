"""This party's alignments, as JSON files in its state folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from fedmq.party.store.documents import Documents, Format

__all__ = ["AlignmentStore", "StoredAlignment", "StoredChoices"]


class StoredChoices(BaseModel):
    """How many people each choice of an alignment has: ``left`` all of the active party's.

    ``inner``: those whom all parties hold. ``known_to``: the people of the active party whom each
    passive party holds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    left: int
    inner: int
    known_to: Mapping[str, int]

    def in_words(self) -> str:
        """The choices in one line."""
        several = self.known_to if len(self.known_to) > 1 else {}
        least = [f"at_least {party}: {people}" for party, people in several.items()]
        counted = [f"inner: {self.inner}", *least, f"left: {self.left}"]
        return f"people by join: {', '.join(counted)}"


class StoredAlignment(BaseModel):
    """``ids``: this party's own ids in the order that all ``parties`` share; None: it lacks them.

    ``session``: the session that made it, the same at all parties. ``fingerprint``: of the table
    that it was made from. At the active party ``choices``, and in ``lacked_at`` how many of these
    people a party lacks, and in ``lacking`` at which places they stand. ``people``: how many they
    are, if the active party has several rows of some; then these stand side by side.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["fedmq.alignment"] = "fedmq.alignment"
    version: Literal[1, 2, 3, 4] = 1
    """2 if it has a None, ``choices`` or ``lacked_at``; 3: ``lacking``; 4: ``people``."""
    name: str
    session: str
    made: str
    parties: tuple[str, ...]
    normalise: tuple[str, ...]
    fingerprint: str
    ids: tuple[str | None, ...]
    choices: StoredChoices | None = None
    lacked_at: Mapping[str, int] | None = None
    lacking: Mapping[str, tuple[int, ...]] | None = None
    people: int | None = None


def _dumps(alignment: StoredAlignment) -> str:
    return alignment.model_dump_json(exclude_none=True)  # of fields: a None among ids stays


_HEAD_BYTES = 65536
_ALIGNMENT: Format[StoredAlignment] = Format(
    _dumps, StoredAlignment.model_validate_json, (1, 2, 3, 4)
)


class AlignmentStore:
    """Alignments by name; a later one of the same name replaces the earlier."""

    def __init__(self, state: Path) -> None:
        self._kept = Documents(
            state / "alignments",
            _ALIGNMENT,
            "not an alignment; make it anew with: fedmq align",
            missing="there is no alignment {name} here; there are: {known}",
            what="the alignment",
        )

    def names(self) -> list[str]:
        """The alignments that are here, the oldest first."""
        return self._kept.names()

    def path(self, name: str) -> Path:
        """The file of ``name``, whether it exists or not."""
        return self._kept.path(name)

    def save(self, alignment: StoredAlignment) -> None:
        """Write ``alignment``, replacing one of the same name; ConfigError if the disk refuses."""
        self._kept.keep(alignment.name, alignment)

    def load(self, name: str) -> StoredAlignment:
        """The alignment ``name``; DataError if it is missing or damaged."""
        return self._kept.read(name)

    def made(self) -> list[dict[str, str]]:
        """Name, session and time of each alignment, the oldest first; a damaged one is left out.

        Only the beginnings of the files are read: they may hold millions of ids.
        """
        found = []
        for name in self.names():
            with contextlib.suppress(OSError, ValueError, KeyError):
                with self.path(name).open("rb") as file:
                    head, _, _ = file.read(_HEAD_BYTES).partition(b',"ids":[')
                fields = json.loads(head + b"}")
                found.append({key: str(fields[key]) for key in ("name", "session", "made")})
        return found

    def described(self, name: str) -> dict[str, Any]:
        """The alignment ``name`` without its ids, as plain data; DataError as for ``load``."""
        found = self.load(name)
        return {
            "alignment": found.name,
            "rows": len(found.ids),
            "people": len(found.ids) if found.people is None else found.people,
            "parties": list(found.parties),
            "made": found.made,
            "normalise": list(found.normalise),
            "lacked": sum(name is None for name in found.ids),
            "lacked_at": dict(found.lacked_at or {}),
            "choices": None if found.choices is None else found.choices.model_dump(),
        }
