"""Rows to learn from, and behind them the sets of rows that are only scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ConfigError

__all__ = ["RowSet", "joined"]


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows of all parties: ``values`` float32 (rows, features) by party, ``label`` (rows,).

    ``weight``: how often each row counts, ``base_margin`` where it starts; (rows,) or None.
    """

    values: Mapping[str, NDArray[np.float32]]
    label: NDArray[Any]
    weight: NDArray[np.float64] | None
    base_margin: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.label)


def joined(sets: Sequence[RowSet]) -> tuple[RowSet, dict[str, NDArray[np.bool_]]]:
    """All ``sets`` as one, and which of its rows are of each but the first.

    They are named as XGBoost's estimators name them: validation_0, validation_1, ...

    Raises:
        ConfigError: some sets have a base margin, and others none.
    """
    margins = [rows.base_margin for rows in sets if rows.base_margin is not None]
    if len(margins) not in (0, len(sets)):
        raise ConfigError("base_margin and base_margin_eval_set: give both, or neither")
    weighted = any(rows.weight is not None for rows in sets)
    weights = [np.ones(len(rows)) if rows.weight is None else rows.weight for rows in sets]
    whole = RowSet(
        {party: np.concatenate([rows.values[party] for rows in sets]) for party in sets[0].values},
        np.concatenate([rows.label for rows in sets]),
        np.concatenate(weights) if weighted else None,
        np.concatenate(margins) if margins else None,
    )
    number = np.repeat(np.arange(len(sets)), [len(rows) for rows in sets])
    return whole, {f"validation_{place - 1}": number == place for place in range(1, len(sets))}
