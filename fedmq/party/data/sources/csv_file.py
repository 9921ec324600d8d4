"""A CSV file with a header. Every cell is text."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from fedmq.errors import DataError, SourceAway
from fedmq.party.data.sources.source import Batch, Source

__all__ = ["CsvFile"]

_BATCH = 10_000
_OTHER_SEPARATORS = ";\t|"


class CsvFile(Source):
    """The file at ``path``: UTF-8, commas, quotes as spreadsheets write them."""

    unit = "line"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self._path = path
        self._file: IO[str]
        self._reader: Any

    def __enter__(self) -> Self:
        try:
            self._file = self._path.open(newline="", encoding="utf-8-sig")
        except FileNotFoundError:
            raise SourceAway(f"{self.name}: there is no such file") from None
        except OSError as error:
            raise SourceAway(f"{self.name}: cannot be read: {error.strerror}") from None
        self._reader = csv.reader(self._file, strict=True)
        try:
            self.columns = self._header()
        except DataError:
            self._file.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        places = [self.columns.index(column) for column in columns]
        rows = self._numbered()
        while batch := list(itertools.islice(rows, _BATCH)):
            numbers, cells = zip(*batch, strict=True)
            by_column = list(zip(*cells, strict=True))
            yield Batch(
                numbers,
                {name: by_column[place] for name, place in zip(columns, places, strict=True)},
            )

    def _header(self) -> tuple[str, ...]:
        header = next(self._rows(), None)
        if not header:
            raise DataError(f"{self.name}: the file is empty")
        other = next((mark for mark in _OTHER_SEPARATORS if mark in header[0]), None)
        if len(header) == 1 and other is not None:
            raise DataError(
                f"{self.name}: its cells are separated by {other!r}; write it with commas"
            )
        twice = [column for column in header if header.count(column) > 1]
        if twice:
            raise DataError(f"{self.name}: column {twice[0]!r} appears more than once")
        return tuple(header)

    def _numbered(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of each row but blank ones; DataError for a wrong length."""
        for row in self._rows():
            if row and len(row) != len(self.columns):
                raise DataError(
                    f"{self.name}, line {self._reader.line_num}: {len(row)} cells, "
                    f"the header has {len(self.columns)}"
                )
            if row:
                yield self._reader.line_num, row

    def _rows(self) -> Iterator[list[str]]:
        try:
            yield from self._reader
        except UnicodeDecodeError:
            raise DataError(f"{self.name}: is not UTF-8; save it as that") from None
        except (OSError, csv.Error) as error:
            line = self._reader.line_num
            raise DataError(f"{self.name}, line {line}: cannot be read: {error}") from None
