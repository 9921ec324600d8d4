"""What do constraints say of the column of a split?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["UNMARKED", "ColumnMark"]


class ColumnMark(NamedTuple):
    """Its monotone ``sign``, and the interaction ``constraints`` that hold it, as bits."""

    sign: int = 0
    constraints: np.uint64 = np.uint64(0)


UNMARKED = ColumnMark()
