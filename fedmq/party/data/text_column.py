"""A column as text by id: what groups people, or dates them, without being learned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.id_column import IdColumn
from fedmq.party.data.sources.opening import source_of

__all__ = ["ReadTextColumn"]


@dataclass(frozen=True, slots=True)
class ReadTextColumn:
    """Read ``column`` of ``data`` at the party ``where``."""

    label: ClassVar[str] = "ReadTextColumn"
    where: str
    data: DataSection
    column: str

    def run(self) -> dict[str, str]:
        """The text of each id; an empty cell is "".

        Raises:
            DataError: there is no such column, or an id is missing or repeated against the rule.
        """
        texts: list[str] = []
        with source_of(self.where, self.data) as source:
            for wanted in (self.data.id, self.column):
                if wanted not in source.columns:
                    known = ", ".join(map(repr, source.columns[:8]))
                    raise DataError(
                        f"{source.name}: there is no column {wanted!r}; there are {known}"
                    )
            ids = IdColumn(source.name, source.unit, self.data)
            for batch in source.batches([self.data.id, self.column]):
                ids.take(batch.cells[self.data.id], batch.numbers)
                cells = batch.cells[self.column]
                values = cells.tolist() if isinstance(cells, np.ndarray) else cells
                texts += ["" if value is None else str(value).strip() for value in values]
        rows = ids.rows()
        return dict(zip(ids.values(rows), (texts[row] for row in rows.tolist()), strict=True))
