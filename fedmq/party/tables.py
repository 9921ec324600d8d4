"""What sessions load before they begin: computations, so that no file is read on the event loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model import ActiveShare, PassiveShare
from fedmq.boosting.objective import OBJECTIVES
from fedmq.boosting.params import TrainParams
from fedmq.errors import DataError
from fedmq.party.configuration.party import DataSection
from fedmq.party.csv_table import ReadTable
from fedmq.party.model_store import ModelStore
from fedmq.protocol.inference_passive import PassiveRows
from fedmq.protocol.training_active import ActiveTable
from fedmq.protocol.training_passive import PassiveTable

__all__ = ["LoadActiveRows", "LoadActiveTable", "LoadPassiveRows", "LoadPassiveTable"]


@dataclass(frozen=True, slots=True)
class LoadActiveTable:
    """The label holder's training table; ``evaluation`` is the share of rows to hold out."""

    party: str
    data: DataSection
    params: TrainParams
    evaluation: float
    salt: str

    def run(self) -> ActiveTable:
        table = ReadTable(self.party, self.data, OBJECTIVES[self.params.objective].labels).run()
        label = table.label
        assert label is not None
        seed = np.random.SeedSequence(self.params.seed, spawn_key=(len(label),))
        drawn = np.random.Generator(np.random.Philox(seed)).random(len(label))
        held_out = drawn < self.evaluation
        if held_out.all():
            raise DataError(f"{self.party}: evaluation = {self.evaluation} leaves no rows to learn")
        return ActiveTable(table.values, table.features, label, held_out, table.digest(self.salt))


@dataclass(frozen=True, slots=True)
class LoadPassiveTable:
    """A feature holder's training table; of its columns, those that may take part."""

    party: str
    data: DataSection
    salt: str
    permitted: tuple[str, ...] | None = None

    def run(self) -> PassiveTable:
        table = ReadTable(self.party, self.data).run()
        kept = table.features if self.permitted is None else self.permitted
        lacking = [name for name in kept if name not in table.features]
        if lacking:
            raise DataError(
                f"{self.party}: policy.features: {self.data.path} has no column {lacking[0]!r}"
            )
        places = [at for at, name in enumerate(table.features) if name in kept]
        names = tuple(table.features[at] for at in places)
        return PassiveTable(table.values[:, places], names, table.digest(self.salt))


@dataclass(frozen=True, slots=True, eq=False)
class LoadActiveRows:
    """The label holder's columns of the rows ``ids``: float32 (ids, features)."""

    party: str
    data: DataSection
    share: ActiveShare
    ids: tuple[str, ...]

    def run(self) -> NDArray[np.float32]:
        values, row_of = _served(self.party, self.data, self.share)
        unknown = [name for name in self.ids if name not in row_of]
        if unknown:
            some = ", ".join(map(repr, unknown[:3]))
            raise DataError(
                f"{self.party}: {self.data.path}: {len(unknown)} of the ids are not in it, "
                f"such as {some}"
            )
        return values[[row_of[name] for name in self.ids]]


@dataclass(frozen=True, slots=True, eq=False)
class LoadPassiveRows:
    """A feature holder's share and the rows that it can answer for."""

    party: str
    data: DataSection
    store: ModelStore
    model: str

    def run(self) -> PassiveRows:
        share = self.store.passive(self.model)
        values, row_of = _served(self.party, self.data, share)
        return PassiveRows(share, values, row_of)


def _served(
    party: str, data: DataSection, share: ActiveShare | PassiveShare
) -> tuple[NDArray[np.float32], dict[str, int]]:
    """The columns that ``share`` was trained on, in its order, and the row of each id."""
    table = ReadTable(party, data).run()
    trained = share.lookup_table.feature_names
    lacking = [name for name in trained if name not in table.features]
    if lacking:
        raise DataError(
            f"{party}: {data.path}: there is no column {lacking[0]!r}, "
            f"which model {share.model_id} was trained on"
        )
    places = [table.features.index(name) for name in trained]
    return table.values[:, places], {name: row for row, name in enumerate(table.ids)}
