"""The rows that carry gradients, in pieces that fit one message each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import Gradients
from fedmq.privacy.plan import PIECE_BYTES

__all__ = ["carried_row_pieces"]


def carried_row_pieces(gradients: Gradients, bytes_per_row: int) -> list[NDArray[np.uint32]]:
    """The rows that carry a gradient, ascending: uint32 pieces of about one length, at least one.

    ``bytes_per_row``: what a message holds for each of them, its number included.
    """
    rows = np.flatnonzero(gradients.carried).astype(np.uint32)
    most = PIECE_BYTES // bytes_per_row
    return np.array_split(rows, max(1, -(-len(rows) // most)))
