"""What a party is asked online, and how it is cut into messages below 1 MiB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.served_forest import ServedForest
from fedmq.messages.online import OnlineHop, OnlineRows

__all__ = ["Question", "pair_parts", "row_parts"]

_PAIRS_PER_HOP = 50_000  # 8 bytes each, and ids of up to 256 characters: below 1 MiB
_IDS_PER_QUESTION = 500
_BITS_PER_QUESTION = 4_000_000


@dataclass(slots=True, eq=False)
class Question:
    """What ``owner`` was asked: about ``pairs`` (in mode hop), or ``rows`` of the batch."""

    owner: int
    body: OnlineHop | OnlineRows
    pairs: NDArray[np.int64]
    rows: slice
    repeated: int = 0


def row_parts(served: ServedForest, owner: int, rows: int) -> Iterator[slice]:
    """The rows of a batch, in parts whose bitmaps over the records of ``owner`` fit a message."""
    records = max(1, len(served.node_of[owner]))
    most = max(1, min(_IDS_PER_QUESTION, _BITS_PER_QUESTION // records))
    for start in range(0, rows, most):
        yield slice(start, min(start + most, rows))


def pair_parts(
    pairs: NDArray[np.int64], trees: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]]:
    """Ascending ``pairs`` in parts; with each, its rows, and the place of each pair among them."""
    rows = pairs // trees
    start = 0
    while start < len(pairs):
        stop = min(start + _PAIRS_PER_HOP, len(pairs))
        asked, places = np.unique(rows[start:stop], return_inverse=True)
        if len(asked) > _IDS_PER_QUESTION:
            stop = start + int(np.searchsorted(places, _IDS_PER_QUESTION))
            asked, places = asked[:_IDS_PER_QUESTION], places[: stop - start]
        yield pairs[start:stop], asked, places.astype(np.uint32)
        start = stop
