"""A source: named columns whose rows come in batches, never all at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

__all__ = ["Batch", "Cells", "Fetched", "Source", "mistaken_for"]

Cells = Sequence[Any] | NDArray[Any]
"""A column's cells: a NumPy vector of numbers with NaN for missing, or Python values and None."""

_FIRST_BYTES = {
    b"PAR1": ("parquet", 'a Parquet file; write type = "parquet"'),
    b"PK\x03\x04": ("zip", "an Excel file, or another archive; save its sheet as CSV"),
    b"\xd0\xcf\x11\xe0": ("excel", "an old Excel file; save its sheet as CSV"),
    b"SQLite format 3\x00": (
        "sqlite",
        'a SQLite database; write type = "sql", url = "sqlite:///FILE" and a query',
    ),
    b"\x1f\x8b": ("gzip", "compressed; unpack it"),
    b"\xff\xfe": ("utf-16", 'text in UTF-16; write encoding = "utf-16"'),
    b"\xfe\xff": ("utf-16", 'text in UTF-16; write encoding = "utf-16"'),
}
_SELDOM = 20  # a text has fewer control characters than one in so many
_MOST_FIRST_BYTES = max(map(len, _FIRST_BYTES))


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some rows: their ``numbers``, for messages, and their ``cells`` by column."""

    numbers: Sequence[int]
    cells: Mapping[str, Cells]


class Source(ABC):
    """A table, open for reading once, inside a ``with`` block.

    ``name``, the party and the place, begins every message. ``unit`` is the counting unit of rows.

    Raises:
        DataError: on entering or reading; it names the place, the row and what to do.
        ConfigError: a package is not installed.
    """

    unit: ClassVar[str] = "row"

    def __init__(self, name: str) -> None:
        self.name = name
        self.columns: tuple[str, ...] = ()
        """The names of the columns, once the source is open."""
        self.rows: int | None = None
        """The number of rows, where it is known before they are read."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """All rows, in the source's order, with their cells in ``columns``."""


class Fetched(Source):
    """The rows of ``batch``, in memory."""

    def __init__(self, name: str, batch: Batch) -> None:
        super().__init__(name)
        self._batch = batch
        self.columns = tuple(batch.cells)
        self.rows = len(batch.numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        yield Batch(self._batch.numbers, {name: self._batch.cells[name] for name in columns})


def mistaken_for(path: Path, *right: str) -> str:
    """The kind of the file at ``path`` and a remedy, if it is none of the kinds in ``right``.

    Empty if the kind is unknown. Kinds: parquet, zip, excel, sqlite, gzip, utf-16, binary, text.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.is_file():  # a pipe can be read once only
        return ""
    with path.open("rb") as file:
        first = file.read(4096)
    for mark, (kind, what) in _FIRST_BYTES.items():
        if first.startswith(mark):
            return "" if kind in right else f"it is {what}"
    odd = sum(byte < 9 or 13 < byte < 32 for byte in first)
    if "text" in right and "utf-16" not in right and odd * _SELDOM > len(first):
        return "it is binary, no text; save it as CSV"
    is_text = bool(first) and b"\x00" not in first
    return 'it looks like text; write type = "csv"' if is_text and "text" not in right else ""
