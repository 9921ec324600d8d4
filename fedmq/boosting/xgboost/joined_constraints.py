"""What do constraints ask of the joined columns, as XGBoost takes them?"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedmq.boosting.params import TrainParams

__all__ = ["joined_constraints"]


def joined_constraints(params: TrainParams, columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The constraints of ``params`` as parameters of ``xgboost.train``.

    ``columns``: the names of each party's columns, the label holder's first.
    """
    own, *others = columns
    joined = [*columns[own], *(f"{party}.{name}" for party in others for name in columns[party])]
    groups, start = {}, 0
    for party, names in columns.items():
        groups["*" if party == own else f"{party}.*"] = range(start, start + len(names))
        start += len(names)

    def places(name: str | int) -> Sequence[int]:
        if isinstance(name, int):
            return [name]
        if name in joined:
            return [joined.index(name)]
        if name in groups:
            return groups[name]
        return [place for place, column in enumerate(joined) if column.startswith(f"{name}=")]

    constraints: dict[str, Any] = {}
    if params.monotone_constraints:
        signs = (params.monotone_constraints.get(name, 0) for name in joined)
        constraints["monotone_constraints"] = tuple(signs)
    if params.interaction_constraints:
        together = (
            sorted(set(itertools.chain.from_iterable(map(places, names))))
            for names in params.interaction_constraints
        )
        constraints["interaction_constraints"] = json.dumps(list(together))
    return constraints
