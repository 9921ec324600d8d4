"""The records of one owner that follow one another without another owner in between.

With them an owner answers at once for all of its records that follow one another on a row's way, so
that there are as many questions as changes from one party to another, and not one per record. The
shape is no news to the owner: during training it learnt the node of each of its splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.model.lookup_table import LookupTable

__all__ = ["NONE", "Chains"]

NONE = -1
"""No record of the same owner follows."""


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """By record id, the owner's record that follows on the left and on the right; int32 each."""

    left: NDArray[np.int32]
    right: NDArray[np.int32]

    @classmethod
    def of(cls, left: ArrayLike, right: ArrayLike) -> Self:
        """The chains with these successors.

        Raises:
            ValueError: a record does not exist, or stands before the one that leads to it.
        """
        chains = cls(np.asarray(left, np.int32), np.asarray(right, np.int32))
        for following in (chains.left, chains.right):
            if following.shape != chains.left.shape or (following >= len(following)).any():
                raise ValueError("a chain leads to a record that does not exist")
        return chains

    def __len__(self) -> int:
        return len(self.left)

    def exits(
        self,
        table: LookupTable,
        values: NDArray[np.float32],
        rows: NDArray[np.integer],
        records: NDArray[np.integer],
    ) -> NDArray[np.uint32]:
        """Where ``values[rows[i]]``, which stands at ``records[i]``, leaves the owner's records.

        Twice the last record, and one more where it goes left there; uint32, as long as ``rows``.
        """
        at = records.astype(np.int64)
        left = table.directions(values, rows, at)
        walking = np.arange(len(at))
        # No way is longer than the number of records, whoever made the chains.
        for _ in range(len(self)):
            here = at[walking]
            following = np.where(left[walking], self.left[here], self.right[here])
            goes_on = following != NONE
            if not goes_on.any():
                break
            walking = walking[goes_on]
            at[walking] = following[goes_on]
            left[walking] = table.directions(values, rows[walking], at[walking])
        exits: NDArray[np.uint32] = (2 * at + left).astype(np.uint32)
        return exits
