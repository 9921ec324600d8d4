"""What is odd in a source as it was written: seldom meant, and refused by nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from fedmq.party.data.sources.source import Batch, Source
from fedmq.party.data.table import Roles

__all__ = ["SourceWarnings"]

_UNNAMED = re.compile(r"(Unnamed: \d+)?")
_AS_DECIMAL = re.compile(r"\d+\.0+")
_AS_POWER = re.compile(r"\d(\.\d+)?[eE]\+?\d+")


class SourceWarnings:
    """Looks at the batches of ``source``, and keeps the first place of each odd thing."""

    def __init__(self, source: Source, roles: Roles) -> None:
        self._source = source
        self._roles = roles
        self._found: dict[str, str] = {}

    def look_at(self, batch: Batch) -> None:
        """Take the next rows."""
        ids = batch.cells[self._roles.id]
        self._note(
            ids,
            batch,
            "id {!r} was written as a decimal number",
            _AS_DECIMAL.fullmatch,
            "store ids as text",
        )
        self._note(
            ids,
            batch,
            "id {!r} was rounded by a spreadsheet",
            _AS_POWER.fullmatch,
            "store ids as text, and export them anew",
        )
        for name, cells in batch.cells.items():
            self._note(
                cells,
                batch,
                f"column {name!r} holds a NUL character: {{!r}}",
                _has_nul,
                "export the table anew",
            )

    def lines(self) -> list[str]:
        """A line for each odd thing."""
        unnamed = [
            f"{self._source.name}: column {place} has no name: is it the index of a data frame? "
            f"Leave it out with ignore = [{name!r}]"
            for place, name in enumerate(self._source.columns, start=1)
            if name in self._roles.features and _UNNAMED.fullmatch(name)
        ]
        return [*unnamed, *self._found.values()]

    def _note(
        self,
        cells: Sequence[Any] | Any,
        batch: Batch,
        what: str,
        is_odd: Callable[[str], Any],
        remedy: str,
    ) -> None:
        if what in self._found:
            return
        for place, cell in enumerate(cells):
            if isinstance(cell, str) and is_odd(cell):
                where = f"{self._source.name}, {self._source.unit} {batch.numbers[place]}"
                self._found[what] = f"{where}: {what.format(cell[:40])}; {remedy}"
                return


def _has_nul(cell: str) -> bool:
    return "\x00" in cell
