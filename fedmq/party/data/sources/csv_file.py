"""A CSV file with a header. Every cell is text."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Self

from fedmq.errors import DataError, SourceAway
from fedmq.party.data.sources.source import Batch, Source, mistaken_for

__all__ = ["CsvFile"]

_BATCH_ROWS = 10_000
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


class CsvFile(Source):
    """The file at ``path``: quotes as spreadsheets write them; UTF-8 and commas by default."""

    unit = "line"

    def __init__(
        self, name: str, path: Path, separator: str = ",", encoding: str = "utf-8"
    ) -> None:
        super().__init__(name)
        self._path = path
        self._separator = separator
        # Spreadsheets write a byte order mark; it is no part of the first column's name.
        self._encoding = "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding
        self._file: IO[str]
        self._reader: Any

    def __enter__(self) -> Self:
        try:
            kinds = ("text", "utf-16") if self._encoding.startswith("utf-16") else ("text",)
            mistaken = mistaken_for(self._path, *kinds)
            if mistaken:
                raise DataError(f"{self.name}: no CSV file: {mistaken}")
            self._file = self._path.open(newline="", encoding=self._encoding)
        except FileNotFoundError:
            raise SourceAway(f"{self.name}: there is no such file") from None
        except OSError as error:
            raise SourceAway(f"{self.name}: cannot be read: {error.strerror}") from None
        self._reader = csv.reader(self._file, strict=True, delimiter=self._separator)
        try:
            self.columns = self._header()
        except DataError:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        places = [self.columns.index(column) for column in columns]
        rows = self._numbered()
        while batch := list(itertools.islice(rows, _BATCH_ROWS)):
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
        others = (mark for mark in _SEPARATORS if mark != self._separator)
        other = next((mark for mark in others if mark in header[0]), None)
        if len(header) == 1 and other is not None:
            written = json.dumps(other)
            raise DataError(
                f"{self.name}: its cells are separated by {other!r}; "
                f"write it with {_SEPARATORS.get(self._separator, repr(self._separator))}, or say "
                f"separator = {written} beside path"
            )
        twice = [column for column in header if header.count(column) > 1]
        if twice:
            raise DataError(f"{self.name}: column {twice[0]!r} appears more than once")
        return tuple(header)

    def _numbered(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of each non-blank row; DataError for a wrong length."""
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
            name = self._encoding.removesuffix("-sig").upper()
            raise DataError(
                f"{self.name}: is not {name}; save it as that, or name its encoding, such as "
                'encoding = "cp1252"'
            ) from None
        except (OSError, csv.Error) as error:
            line = self._reader.line_num
            quote = "; a quotation mark is not closed" * ("end of data" in str(error))
            raise DataError(f"{self.name}, line {line}: cannot be read: {error}{quote}") from None
