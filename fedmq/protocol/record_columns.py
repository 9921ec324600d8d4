"""How does an owner disclose which of its records share a column?"""

from __future__ import annotations

import numpy as np
from pydantic import ValidationError

from fedmq.boosting.model.tree import DisclosedColumns
from fedmq.errors import ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.body import RecordColumns

__all__ = ["columns_of", "record_columns"]


def record_columns(disclosed: DisclosedColumns) -> RecordColumns:
    """``disclosed`` as a message body."""
    column = Array.of(disclosed.column.astype(np.uint32))
    return RecordColumns(column=column, texts=disclosed.texts)


def columns_of(peer: str, body: RecordColumns | None, records: int) -> DisclosedColumns | None:
    """The columns that ``peer`` discloses of its ``records``; None if the peer is one player.

    Raises:
        ProtocolError: the number of records differs, or the columns are misnumbered.
    """
    if body is None:
        return None
    column = body.column.numpy()
    if len(column) != records:
        raise ProtocolError(f"{peer} discloses the columns of {len(column)} records, not {records}")
    try:
        return DisclosedColumns(column=column.astype(np.int64).astype(np.int32), texts=body.texts)
    except ValidationError:
        raise ProtocolError(
            f"{peer} numbers columns otherwise than from 0 in the order of their first use"
        ) from None
