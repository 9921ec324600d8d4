"""Small tables, dealt out to parties, and the machines that learn from them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree
from fedmq.computation import Computation, Given
from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.okamoto_uchiyama import OkamotoUchiyama
from fedmq.privacy.engines.paillier import Paillier
from fedmq.privacy.engines.plain import Plain
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from fedmq.protocol.machine import Machine
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, Fold, PassiveTable
from fedmq.simulation.simulate import chained
from tests.simulator import Simulation

ACTIVE = "bank"
PLAIN = Plain()
PAILLIER = Paillier(key_bits=256, allow_weak_keys=True)
OU = OkamotoUchiyama(key_bits=384, allow_weak_keys=True)


def names(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}_secret_name_{number}" for number in range(count))


@dataclass(frozen=True)
class Federation:
    """Who holds which columns of one table; the active party comes first."""

    columns: Mapping[str, NDArray[np.float32]]
    label: NDArray[np.float32]
    evaluation: NDArray[np.bool_]
    params: TrainParams = field(
        default_factory=lambda: TrainParams(
            num_boost_round=2, max_depth=3, max_bin=8, base_score=0.5
        )
    )
    engine: Engine = PLAIN
    weight: NDArray[np.float32] | None = None
    base_margin: NDArray[np.float32] | None = None
    secret: int = 7
    smallest_node: Mapping[str, int] = field(default_factory=dict)
    smallest_cell: Mapping[str, int] = field(default_factory=dict)
    """Which passive parties decline nodes, and from how few rows on."""
    loads: Mapping[str, Computation] = field(default_factory=dict)
    """What passive parties load, where it is not their columns."""
    folds: tuple[Fold, ...] = ()
    """Of a cross-validation."""
    asked: Mapping[str, int] = field(default_factory=dict)
    """Whose owners are asked, and have so many seconds to answer."""
    earlier: Mapping[str, Any] = field(default_factory=dict)
    """Each party's share of a model that is continued."""
    refreshes: bool = False
    """Whether it is refreshed instead."""

    @classmethod
    def dealt(
        cls,
        X: NDArray[np.float32],
        label: NDArray[np.float32],
        counts: Sequence[int],
        **params: Any,
    ) -> Federation:
        """The columns of ``X`` dealt out from left to right; ``counts`` go to bank, telco, ..."""
        parties = (ACTIVE, "telco", "shop", "clinic")[: len(counts)]
        parts = np.split(X, np.cumsum(counts)[:-1], axis=1)
        settings = {"num_boost_round": 2, "max_depth": 3, "max_bin": 8, "base_score": 0.5}
        held = TrainParams(**{**settings, **params})
        columns = dict(zip(parties, parts, strict=True))
        return cls(columns, label, np.zeros(len(label), np.bool_), held)

    def having(self, **changes: Any) -> Federation:
        """The same but for ``changes``: fields of this class, or training parameters."""
        own = {name: changes.pop(name) for name in list(changes) if hasattr(self, name)}
        params = TrainParams(**{**self.params.model_dump(), **changes})
        return replace(self, params=params, **own)

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(self.columns)[1:]

    def training(self) -> dict[str, Machine]:
        own = ActiveTable(
            self.columns[ACTIVE],
            names(ACTIVE, self.columns[ACTIVE].shape[1]),
            self.label,
            self.evaluation,
            alignment="the same ids",
            weight=self.weight,
            base_margin=self.base_margin,
            folds=self.folds,
        )
        machines: dict[str, Machine] = {
            ACTIVE: ActiveTraining(
                "model",
                ACTIVE,
                self.peers,
                own,
                self.params,
                self.engine,
                parallelism=2,
                earlier=self.earlier.get(ACTIVE),
                refreshes=self.refreshes,
            )
        }
        for number, peer in enumerate(self.peers):
            values = self.columns[peer]
            table = PassiveTable(values, names(peer, values.shape[1]), "the same ids")
            load = self.loads.get(peer, Given(table))
            machines[peer] = PassiveTraining(
                peer,
                ACTIVE,
                load,
                lambda _: self.engine,
                self.secret + number,
                parallelism=2,
                smallest_node=self.smallest_node.get(peer, 0),
                smallest_cell=self.smallest_cell.get(peer, 0),
                find_share=lambda _, peer=peer: Given(self.earlier.get(peer)),
                consent_within=self.asked.get(peer, 0),
                others=chained(self.engine, self.peers, peer),
            )
        return machines

    def scoring(
        self, shares: Mapping[str, ActiveShare | PassiveShare], ids: Sequence[str] | None = None
    ) -> dict[str, Machine]:
        """Machines that score all rows; with ``ids``, passive parties hold them in reverse."""
        share = shares[ACTIVE]
        assert isinstance(share, ActiveShare)
        active = ActiveInference(share, self.columns[ACTIVE], ids)
        machines: dict[str, Machine] = {ACTIVE: active}
        for peer in active.peers:
            own, values = shares[peer], self.columns[peer]
            assert isinstance(own, PassiveShare)
            rows = PassiveRows(own, values, None)
            if ids is not None:
                row_of = {name: row for row, name in enumerate(reversed(ids))}
                rows = PassiveRows(own, values[::-1], row_of)
            machines[peer] = PassiveInference(ACTIVE, self.loads.get(peer, Given(rows)))
        return machines

    def sealed_scoring(
        self,
        shares: Mapping[str, ActiveShare | PassiveShare],
        ids: Sequence[str] | None = None,
        **settings: Any,
    ) -> dict[str, Machine]:
        """Machines that score all rows in mode sealed; ``settings`` of the active party's."""
        share = shares[ACTIVE]
        assert isinstance(share, ActiveShare)
        seeds = (bytes([self.secret, place]).ljust(32) for place in itertools.count())
        values = self.columns[ACTIVE]
        machines: dict[str, Machine] = {
            ACTIVE: ActiveInference(share, values, ids, sealed=next(seeds), **settings)
        }
        chain = share.asked
        row_of = None if ids is None else {name: row for row, name in enumerate(ids)}
        for place, peer in enumerate(chain):
            own = shares[peer]
            assert isinstance(own, PassiveShare)
            rows = PassiveRows(own, self.columns[peer], row_of)
            machines[peer] = PassiveInference(
                ACTIVE,
                self.loads.get(peer, Given(rows)),
                others=(*chain[max(0, place - 1) : place], *chain[place + 1 : place + 2]),
                seed=next(seeds),
            )
        return machines

    def train(self, **schedule: Any) -> Simulation:
        """A training under a schedule, run to its end."""
        return ran(self.training(), **schedule)


def ran(machines: Mapping[str, Machine], **schedule: Any) -> Simulation:
    simulation = Simulation(machines, **schedule)
    simulation.run()
    return simulation


def small(
    rows: int = 80, counts: Sequence[int] = (2, 2, 1), seed: int = 0, **params: Any
) -> Federation:
    """Made-up rows with ties, missing values and some evaluation rows."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, sum(counts))).round(1).astype(np.float32)
    label = (X @ np.arange(1, 1 + X.shape[1]) + random.normal(size=rows) > 0).astype(np.float32)
    X[random.random(X.shape) < 0.15] = np.nan
    federation = Federation.dealt(X, label, counts, **{"min_child_weight": 0.1, **params})
    return replace(federation, evaluation=random.random(rows) < 0.2)


def shares(simulation: Simulation) -> dict[str, str]:
    """What every party keeps, as the bytes that it keeps."""
    assert not simulation.errors
    return {party: share.dumps() for party, share in simulation.results.items()}


def joined(federation: Federation, simulation: Simulation) -> list[PooledTree]:
    """The trees with everybody's thresholds."""
    tables = [simulation.results[party].lookup_table for party in federation.columns]
    return [PooledTree.of(tree, tables) for tree in simulation.results[ACTIVE].trees]
