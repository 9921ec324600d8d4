"""What does a passive party answer online? It keeps nothing about a row in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import Chains
from fedmq.boosting.model.share import PassiveShare
from fedmq.errors import ProtocolError
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.online import OnlineBitmaps, OnlineExits, OnlineHop, OnlineRows

__all__ = ["AnsweringShare", "check_records"]


def check_records(hop: OnlineHop, asked: NDArray[np.uint32], count: int) -> None:
    """Check that the records ``asked`` by ``hop`` are among the ``count`` of the model.

    Raises:
        ProtocolError: the hop names a record that the model lacks.
    """
    if len(asked) and int(asked.max()) >= count:
        raise ProtocolError(
            f"hop {hop.hop} asks for record {int(asked.max())}; model {hop.model} has {count} here"
        )


@dataclass(frozen=True, slots=True, eq=False)
class AnsweringShare:
    """A deployed share with the rows that it answers about.

    ``values`` float32 (rows + 1, features of the share); the last row is all missing, and stands
    for ids that are not in ``row_of``.
    """

    share: PassiveShare
    chains: Chains
    values: NDArray[np.float32]
    row_of: Mapping[str, int]

    def exits(self, hop: OnlineHop) -> OnlineExits:
        """The exits of the pairs of ``hop`` from these records; call `check_records` before."""
        rows, unknown = self._found(hop.ids)
        exits = self.chains.exits(
            self.share.lookup_table, self.values, rows[hop.rows.values], hop.records.values
        )
        return OnlineExits(
            batch=hop.batch, hop=hop.hop, exits=Array.of(exits), unknown=Array.of(unknown)
        )

    def bitmaps(self, asked: OnlineRows) -> OnlineBitmaps:
        """The directions of the rows of ``asked`` at all records of the model."""
        rows, unknown = self._found(asked.ids)
        count = len(self.chains)
        left = self.share.lookup_table.directions(
            self.values, np.repeat(rows, count), np.tile(np.arange(count), len(rows))
        )
        return OnlineBitmaps(
            batch=asked.batch,
            hop=asked.hop,
            records=count,
            left=Bitmap.of(left),
            unknown=Array.of(unknown),
        )

    def _found(self, ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        rows = np.array([self.row_of.get(name, -1) for name in ids], dtype=np.int64)
        return rows, np.flatnonzero(rows < 0).astype(np.uint32)
