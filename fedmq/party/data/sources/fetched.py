"""Rows that were fetched before, as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from fedmq.party.data.sources.source import Batch, Source

__all__ = ["Fetched"]


class Fetched(Source):
    """The rows of ``batch``, in memory."""

    def __init__(self, name: str, batch: Batch) -> None:
        super().__init__(name)
        self._batch = batch
        self.columns = tuple(batch.cells)
        self.rows = len(batch.numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        yield Batch(self._batch.numbers, {name: self._batch.cells[name] for name in columns})
