"""A Parquet file, read row group by row group. Needs the extra fedmq[parquet]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from fedmq.errors import ConfigError, DataError, SourceAway
from fedmq.party.data.sources.source import Batch, Cells, Source, mistaken_for

__all__ = ["ParquetFile"]

_BATCH_ROWS = 65_536


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
        self._file.close()

    def _why(self, error: BaseException) -> str:
        try:
            return mistaken_for(self._path, "parquet") or _line(error)
        except OSError:
            return _line(error)

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        import pyarrow as arrow

        first = 1
        try:
            for batch in self._file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns)):
                cells = {name: _cells(batch.column(name)) for name in columns}
                yield Batch(range(first, first + batch.num_rows), cells)
                first += batch.num_rows
        except (OSError, arrow.ArrowException) as error:
            raise DataError(f"{self.name}: cannot be read: {_line(error)}") from None


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
