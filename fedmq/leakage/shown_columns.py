"""What does an owner give away that shows which of its splits share a column?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.errors import DataError
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.shared_columns import guessed_columns, order_of_people, pairs_judged

__all__ = ["order_from_columns"]


def order_from_columns(
    party: str, values: NDArray[np.float32], table: LookupTable
) -> Iterator[Finding]:
    """The attack with the directions of all rows alone, and with the columns shown as well.

    ``values`` (rows, features) are the party's, ``table`` holds its splits.

    Raises:
        DataError: the columns are not those of the table.
    """
    if values.shape[1] != len(table.feature_names):
        raise DataError(
            f"{party} has {values.shape[1]} columns, and its lookup table "
            f"{len(table.feature_names)}"
        )
    if not len(table):
        return
    rows = np.arange(len(values))
    left = np.stack(
        [
            table.directions(values, rows, np.full(len(rows), record))
            for record in range(len(table))
        ],
        axis=1,
    )
    guessed, truth = guessed_columns(left), table.feature.astype(np.int64)
    used = np.unique(truth).tolist()
    where = f"{len(table)} splits of {len(used)} columns, all directions seen"
    right, chance = pairs_judged(guessed, truth)
    yield Finding(
        "columns guessed", f"{party}'s splits of a column", where, "accuracy", right, chance
    )
    target = f"{party}'s order of rows, mean of columns"
    for attack, columns in (("columns guessed", guessed), ("columns shown", truth)):
        told = [order_of_people(left, columns, values[:, feature]) for feature in used]
        yield Finding(attack, target, where, "share", float(np.mean(told)), 0.0)
