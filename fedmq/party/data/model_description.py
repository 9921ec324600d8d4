"""What a party's own files say of a model: computations, which read them off the event loop."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.shown_model import (
    differences,
    owned_importance,
    shown,
    split_counts,
    tree_nodes,
)
from fedmq.errors import DataError
from fedmq.party.store.documents import (
    ModelStore,
    cards,
    read_column_names,
    reports,
    training_records,
)

__all__ = ["CompareModels", "DescribeModel", "DescribeTree", "ListModels"]


def _share(state: Path, is_active: bool, model: str) -> ActiveShare | PassiveShare:
    store = ModelStore(state)
    return store.active(model) if is_active else store.passive(model)


@dataclass(frozen=True, slots=True)
class ListModels:
    """The models of which a share lies in the state folder ``state``, the oldest first."""

    label: ClassVar[str] = "ListModels"
    state: Path
    is_active: bool

    def run(self) -> list[dict[str, Any]]:
        """A line of each; DataError if a file is damaged."""
        store = ModelStore(self.state)
        lines = []
        for model in store.ids():
            try:
                share = _share(self.state, self.is_active, model)
            except DataError:
                if store.path(model).exists():
                    raise
                continue  # deleted since the folder was listed
            lines.append(self._line(model, share))
        return lines

    def _line(self, model: str, share: ActiveShare | PassiveShare) -> dict[str, Any]:
        if isinstance(share, PassiveShare):
            return {
                "model": model,
                "records": len(share.lookup_table),
                "departures": list(share.withheld.in_words(share.party)),
            }
        return {
            "model": model,
            "objective": share.params.objective,
            "trees": len(share.used_trees),
            "parties": list(share.parties),
            "metrics": share.metrics,
            "departures": list(share.departures),
        }


@dataclass(frozen=True, slots=True)
class DescribeModel:
    """What the owner of the state folder ``state`` may know of ``model``, as plain data.

    Besides what ``fedmq models show`` says: the columns by importance, the learning curve, how it
    was trained, and the last report and card.
    """

    label: ClassVar[str] = "DescribeModel"
    state: Path
    is_active: bool
    model: str

    def run(self) -> dict[str, Any]:
        """The description; DataError if a file is missing or damaged."""
        share = _share(self.state, self.is_active, self.model)
        if isinstance(share, PassiveShare):
            counts = sorted(split_counts(share).items(), key=lambda item: -item[1])
            columns = [
                {"party": share.party, "column": name, "splits": count} for name, count in counts
            ]
            return {**shown(share), "importance": columns}
        names = read_column_names(self.state, self.model)
        record = training_records(self.state).find(self.model)
        report = reports(self.state).find(self.model)
        card = cards(self.state).find(self.model)
        return {
            **shown(share, names),
            "importance": self._importance(share),
            "curve": {name: list(values) for name, values in share.history.items()},
            "best_iteration": share.best_iteration,
            "training": None if record is None else record.model_dump(mode="json"),
            "report": report and json.loads(report),
            "card": card and json.loads(card),
        }

    def _importance(self, share: ActiveShare) -> list[dict[str, Any]]:
        names = read_column_names(self.state, self.model)
        gains = owned_importance(share, "total_gain", names)
        splits = owned_importance(share, "weight", names)
        return [
            {"party": party, "column": column, "gain": gain, "splits": splits[party, column]}
            for (party, column), gain in sorted(gains.items(), key=lambda item: -item[1])
        ]


@dataclass(frozen=True, slots=True)
class DescribeTree:
    """Tree ``number`` of ``model``, as `tree_nodes` has it; the label holder's alone."""

    label: ClassVar[str] = "DescribeTree"
    state: Path
    model: str
    number: int

    def run(self) -> list[dict[str, Any]]:
        """The nodes; DataError if there is no such model or tree."""
        return tree_nodes(ModelStore(self.state).active(self.model), self.number)


@dataclass(frozen=True, slots=True)
class CompareModels:
    """Where the models ``one`` and ``other`` differ, as far as this party may see them."""

    label: ClassVar[str] = "CompareModels"
    state: Path
    is_active: bool
    one: str
    other: str

    def run(self) -> list[dict[str, Any]]:
        """By key what each of them has; DataError if either is missing."""
        first, second = (
            shown(_share(self.state, self.is_active, model)) for model in (self.one, self.other)
        )
        return [
            {"key": key, "one": one, "other": other}
            for key, one, other in differences(first, second)
        ]
