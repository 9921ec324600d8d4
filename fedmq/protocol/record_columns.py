"""How does an owner show which of its records share a column?"""

from __future__ import annotations

import numpy as np
from pydantic import ValidationError

from fedmq.boosting.model.tree import ShownColumns
from fedmq.errors import ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.body import RecordColumns

__all__ = ["columns_of", "record_columns"]


def record_columns(shown: ShownColumns) -> RecordColumns:
    """``shown`` as a message body."""
    column = Array.of(shown.column.astype(np.uint32))
    return RecordColumns(column=column, texts=shown.texts)


def columns_of(peer: str, body: RecordColumns | None, records: int) -> ShownColumns | None:
    """The columns that ``peer`` shows of its ``records``; None if the peer is one player.

    Raises:
        ProtocolError: the number of records differs, or the columns are misnumbered.
    """
    if body is None:
        return None
    column = body.column.numpy()
    if len(column) != records:
        raise ProtocolError(f"{peer} shows the columns of {len(column)} records, not {records}")
    try:
        return ShownColumns(column=column.astype(np.int64).astype(np.int32), texts=body.texts)
    except ValidationError:
        raise ProtocolError(
            f"{peer} numbers columns otherwise than from 0 in the order of their first use"
        ) from None
