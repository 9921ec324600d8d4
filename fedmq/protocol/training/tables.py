"""The tables that a training begins with, one per side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.messages.training import MOST_ROWS

__all__ = ["ActiveTable", "PassiveTable"]


@dataclass(frozen=True, slots=True)
class ActiveTable:
    """The label holder's rows, in the common order.

    ``values`` float32 (rows, features), NaN is missing; ``label`` float32 (rows,);
    ``evaluation`` bool (rows,): rows that are scored but not learned from; ``alignment``: what
    tells the common rows from others, empty where rows are matched by position; it is that of the
    stored alignment ``alignment_name``, if there is one. ``digest`` tells this table from any
    other, and never leaves its party; empty where no session outlives a crash. Raises `DataError`
    for more rows than a training takes.
    """

    values: NDArray[np.float32]
    features: tuple[str, ...]
    label: NDArray[np.float32]
    evaluation: NDArray[np.bool_]
    alignment: str = ""
    alignment_name: str = ""
    digest: str = ""

    def __post_init__(self) -> None:
        if len(self.label) > MOST_ROWS:
            raise DataError(
                f"{len(self.label):,} rows; a training takes {MOST_ROWS:,} at most: draw some"
            )


@dataclass(frozen=True, slots=True)
class PassiveTable:
    """A feature holder's rows, in the common order.

    ``values`` float32 (rows, features), NaN is missing; ``alignment``: what tells the common
    rows from others, empty where rows are matched by position; ``digest`` as in
    :class:`ActiveTable`.
    """

    values: NDArray[np.float32]
    features: tuple[str, ...]
    alignment: str = ""
    digest: str = ""
