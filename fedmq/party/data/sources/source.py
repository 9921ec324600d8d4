"""What a source is: named columns whose rows come in batches, never all at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

__all__ = ["Batch", "Cells", "Source"]

Cells = Sequence[Any] | NDArray[Any]
"""A column's cells: a NumPy vector of numbers with NaN for missing, or Python values and None."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some rows: their ``numbers``, by which messages name them, and their ``cells`` by column."""

    numbers: Sequence[int]
    cells: Mapping[str, Cells]


class Source(ABC):
    """A table, open for reading once, inside a ``with`` block.

    ``name``, the party and the place, begins every message. ``unit`` is what rows are counted in.

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
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """All rows, in the source's order, with their cells in ``columns``."""
