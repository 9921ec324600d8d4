"""Features that come with a request, in place of those that the label holder has stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError

__all__ = ["features_of_request"]


def features_of_request(
    party: str, features: Sequence[str], rows: Sequence[Mapping[str, float | None]]
) -> NDArray[np.float32]:
    """The values of ``features`` by row, float32 (rows, features); NaN where one is left out.

    Raises:
        DataError: a name is none of ``party``'s features, or a value is no finite float32; the
            message names row and feature.
    """
    columns = {name: column for column, name in enumerate(features)}
    values = np.full((len(rows), len(columns)), np.nan, np.float64)
    for place, row in enumerate(rows):
        for name, value in row.items():
            if name not in columns:
                raise DataError(
                    f"features.{place}.{name}: the model has no such feature of {party}"
                )
            if value is not None:
                values[place, columns[name]] = value
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if np.isinf(narrow).any():
        place, column = np.argwhere(np.isinf(narrow))[0].tolist()
        what = "infinite" if np.isinf(values[place, column]) else "beyond float32"
        raise DataError(f"features.{place}.{features[column]}: {what}")
    return narrow
