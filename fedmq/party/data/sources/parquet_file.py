"""A Parquet file, read row group by row group. Needs the extra fedmq[parquet]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

from fedmq.errors import ConfigError, DataError, SourceAway
from fedmq.party.data.sources.source import Batch, Cells, Source, mistaken_for

__all__ = ["ParquetFile"]

_BATCH_ROWS = 65_536
_MANY_COLUMNS = 256
"""To read a column, its part of a row group is decoded: for hundreds at once, that is much."""

_COLUMNS_TOGETHER = 32
"""Of so many columns; more together are not read faster."""


class ParquetFile(Source):
    """The file at ``path``; columns keep their types."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self._path = path
        self._file: Any

    def __enter__(self) -> Self:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError:
            raise ConfigError(
                "pyarrow is not installed; run: pip install 'fedmq[parquet]'"
            ) from None
        try:
            self._file = parquet.ParquetFile(self._path)
        except FileNotFoundError:
            raise SourceAway(f"{self.name}: there is no such file") from None
        except (OSError, arrow.ArrowException) as error:
            raise DataError(f"{self.name}: not a Parquet file: {self._why(error)}") from None
        self.columns = tuple(self._file.schema_arrow.names)
        self.rows = self._file.metadata.num_rows
        return self

    def __exit__(self, *_: object) -> None:
        import pyarrow as arrow

        self._file.close()
        # Arrow would keep what it has freed: of a wide table, half a gigabyte for good.
        arrow.default_memory_pool().release_unused()

    def _why(self, error: BaseException) -> str:
        try:
            return mistaken_for(self._path, "parquet") or _line(error)
        except OSError:
            return _line(error)

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        first = 1
        for rows, cells in self._parts(columns):
            yield Batch(range(first, first + rows), cells)
            first += rows

    def _parts(self, columns: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Cells]]]:
        """Rows, and their cells by column."""
        if len(columns) > _MANY_COLUMNS:
            for number in range(self._file.num_row_groups):
                rows = self._file.metadata.row_group(number).num_rows
                yield rows, _RowGroup(columns, partial(self._read, number))
            return
        with self._readable():
            for batch in self._file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns)):
                yield batch.num_rows, {name: _cells(batch.column(name)) for name in columns}

    def _read(self, row_group: int, columns: Sequence[str]) -> Any:
        with self._readable():
            return self._file.read_row_group(row_group, columns=list(columns))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        import pyarrow as arrow

        try:
            yield
        except (OSError, arrow.ArrowException) as error:
            raise DataError(f"{self.name}: cannot be read: {_line(error)}") from None


class _RowGroup(Mapping[str, Cells]):
    """The cells of many ``columns``, some of which ``read`` reads when the first of them is asked.

    They are kept until others are read: who asks in order reads each column once.
    """

    def __init__(self, columns: Sequence[str], read: Callable[[Sequence[str]], Any]) -> None:
        self._read = read
        self._part_of = {name: place // _COLUMNS_TOGETHER for place, name in enumerate(columns)}
        self._columns = columns
        self._part, self._held = -1, dict[str, Cells]()

    def __getitem__(self, name: str) -> Cells:
        part = self._part_of[name]
        if part != self._part:
            self._held.clear()
            first = part * _COLUMNS_TOGETHER
            names = self._columns[first : first + _COLUMNS_TOGETHER]
            table = self._read(names)
            self._held = {each: _cells(table.column(each).combine_chunks()) for each in names}
            self._part = part
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _cells(column: Any) -> Cells:
    from pyarrow import types

    kind = column.type
    whole = types.is_integer(kind) and column.null_count == 0
    if whole or types.is_floating(kind):
        cells: Cells = column.to_numpy(zero_copy_only=False)
    else:
        cells = column.to_pylist()
    return cells


def _line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
