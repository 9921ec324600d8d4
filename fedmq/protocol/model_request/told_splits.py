"""How does an owner tell all that its records of a model hold, and what is taken as such?"""

from __future__ import annotations

import numpy as np
from pydantic import ValidationError

from fedmq.boosting.model.owner_splits import OwnerSplits
from fedmq.boosting.model.tree import LookupTable
from fedmq.errors import ProtocolError
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.model_request import ModelThresholds
from fedmq.protocol.record_columns import columns_of, record_columns

__all__ = ["splits_of", "told_splits"]

_LONGEST_NAME = 200  # characters of a name; the rest is left out


def told_splits(table: LookupTable, named: bool) -> ModelThresholds:
    """The records of ``table`` as a message body; columns have their names if ``named``."""
    told = OwnerSplits.of(table).told(named)
    disclosed = told.disclosed
    texts = tuple(name[:_LONGEST_NAME] for name in disclosed.texts)
    return ModelThresholds(
        columns=record_columns(disclosed.model_copy(update={"texts": texts})),
        thresholds=Array.of(told.threshold),
        missing_left=Bitmap.of(told.default_left),
        category_names=tuple(
            tuple(name[:_LONGEST_NAME] for name in names) for names in told.categories
        ),
        codes_right=told.codes_right,
    )


def splits_of(peer: str, body: ModelThresholds, records: int) -> OwnerSplits:
    """The splits that ``peer`` tells of its ``records``.

    Raises:
        ProtocolError: they are not of so many records, or do not fit together.
    """
    columns = columns_of(peer, body.columns, records)
    assert columns is not None
    try:
        return OwnerSplits(
            columns=columns.texts,
            column=columns.column,
            threshold=body.thresholds.numpy().astype(np.float32),
            default_left=body.missing_left.numpy(),
            categories=body.category_names,
            codes_right=body.codes_right,
        )
    except ValidationError as error:
        raise ProtocolError(
            f"{peer} tells thresholds that do not fit: {error.errors()[0]['msg']}"
        ) from None
