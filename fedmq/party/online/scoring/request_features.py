"""Features that a request brings along, in place of what the label holder has stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError

__all__ = ["given_values"]


def given_values(
    party: str, features: Sequence[str], given: Sequence[Mapping[str, float | None]]
) -> NDArray[np.float32]:
    """The values of ``features``, float32 (rows, features); what is left out is missing.

    Raises:
        DataError: naming the row and what is none of ``party``'s features, or no float32.
    """
    places = {name: place for place, name in enumerate(features)}
    values = np.full((len(given), len(places)), np.nan, np.float64)
    for row, named in enumerate(given):
        for name, value in named.items():
            if name not in places:
                raise DataError(f"features.{row}.{name}: the model has no such feature of {party}")
            if value is not None:
                values[row, places[name]] = value
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if np.isinf(narrow).any():
        row, place = np.argwhere(np.isinf(narrow))[0].tolist()
        what = "infinite" if np.isinf(values[row, place]) else "beyond float32"
        raise DataError(f"features.{row}.{features[place]}: {what}")
    return narrow
