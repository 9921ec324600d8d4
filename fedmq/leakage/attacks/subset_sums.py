"""Which of a small node's rows make a sum? All sets of them are tried.

Halves of the rows are summed in all ways, and a sum of one half looked up for each of the other:
2^(n/2) steps for n rows (Horowitz and Sahni, J. ACM 1974).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_ROWS", "SubsetSums"]

MOST_ROWS = 32


class SubsetSums:
    """The sums of all sets of up to 32 rows, whose gradients are ``own`` uint64 (rows,).

    Gradients and sums are fingerprints modulo 2^64.
    """

    def __init__(self, own: NDArray[np.uint64]) -> None:
        if len(own) > MOST_ROWS:
            raise ValueError(f"{len(own)} rows, all sets of {MOST_ROWS} can be tried")
        self._rows = len(own)
        self._half = len(own) // 2
        first, self._second = _all_sums(own[: self._half]), _all_sums(own[self._half :])
        self._order = np.argsort(first, kind="stable")
        self._first = first[self._order]

    def rows(self, total: np.uint64) -> NDArray[np.bool_] | None:
        """The one set with this sum, bool (rows,); None where there is none, or more than one."""
        with np.errstate(over="ignore"):
            wanted = total - self._second
        begin = np.searchsorted(self._first, wanted, "left")
        count = np.searchsorted(self._first, wanted, "right") - begin
        if count.sum() != 1:
            return None
        place = int(np.argmax(count))
        low, high = int(self._order[begin[place]]), place
        bits = low | high << self._half
        return (bits >> np.arange(self._rows) & 1).astype(np.bool_)


def _all_sums(own: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sums of all sets, by the number whose bits they are: uint64 (2^n,)."""
    sums = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for value in own:
            sums = np.concatenate((sums, sums + value))
    return sums
