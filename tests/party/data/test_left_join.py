"""People whom a passive party lacks: trained on, and every node is XGBoost's on the left join."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree
from fedmq.computation import Given
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.loading import (
    Aligned,
    AlignmentTerms,
    LoadActiveTable,
    load_passive_table,
    read_ids,
)
from fedmq.party.store.alignments import AlignmentStore
from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.lattice import Lattice
from fedmq.protocol.alignment.active import ActiveAlignment
from fedmq.protocol.alignment.passive import PassiveAlignment
from fedmq.protocol.session_records import NOBODY, RowPeople
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, PassiveTable
from fedmq.simulation.simulate import chained
from tests.protocol.federation import ACTIVE, OU, PLAIN, ran
from tests.simulator import Simulation

pytest.importorskip("xgboost")

COLUMNS = {"bank": ["a", "b"], "telco": ["c", "colour"], "shop": ["d"]}


class Gapped:
    """Three organisations with people of their own, and the alignment that they have made."""

    def __init__(self, folder: Path, join: tuple[str, ...] | None, rows: int = 120) -> None:
        random = np.random.default_rng(5)
        people = [f"p{number:03d}" for number in range(rows)]
        whole = pd.DataFrame(random.normal(size=(rows, 4)).round(1), people, ["a", "b", "c", "d"])
        whole["colour"] = random.choice(["red", "green"], rows)
        held = {party: random.permutation(people)[: int(0.7 * rows)] for party in COLUMNS}
        # People whom telco lacks differ from the others, so that default directions matter.
        unknown = ~whole.index.isin(held["telco"])
        noise = random.normal(size=rows)
        whole["y"] = (whole["a"] + whole["c"] + 2 * unknown + noise > 0).astype(int)
        self.whole = whole
        self.sections: dict[str, DataSection] = {}
        self.stores = {party: AlignmentStore(folder / party) for party in COLUMNS}
        for party, columns in COLUMNS.items():
            path = folder / f"{party}.csv"
            own = [*columns, "y"] if party == ACTIVE else columns
            whole.loc[held[party], own].to_csv(path, index_label="id")
            label = {"label": "y"} if party == ACTIVE else {}
            self.sections[party] = DataSection(path=path, id="id", **label)
        terms = AlignmentTerms("customers", "5e55/1", tuple(COLUMNS))
        own_ids = {
            party: read_ids.bind(party, self.sections[party], party == ACTIVE, terms, store)
            for party, store in self.stores.items()
        }
        bank = own_ids.pop(ACTIVE).run()
        machines: dict[str, Any] = {
            ACTIVE: ActiveAlignment(
                "customers", tuple(COLUMNS), bank.ids, (), b"\x01" * 32, bank.keep, known_to=join
            )
        }
        for number, (party, load) in enumerate(own_ids.items(), start=2):
            machines[party] = PassiveAlignment(
                party, tuple(COLUMNS), load, lambda _: None, bytes([number]) * 32
            )
        assert not ran(machines).errors
        self.order = self.stores[ACTIVE].load("customers").ids

    def aligned(self, party: str) -> Aligned:
        return Aligned(self.stores[party], "customers")

    def tables(self, params: TrainParams) -> tuple[ActiveTable, Mapping[str, PassiveTable]]:
        own = LoadActiveTable(
            ACTIVE, self.sections[ACTIVE], params, 0.2, "salt", self.aligned(ACTIVE)
        )
        peers = [party for party in COLUMNS if party != ACTIVE]
        return own.run(), {
            peer: load_passive_table(peer, self.sections[peer], "salt", self.aligned(peer))
            for peer in peers
        }

    def left_join(self) -> pd.DataFrame:
        """What pandas makes of the files, in the order of the alignment."""
        frames = {
            party: pd.read_csv(section.path, index_col="id")
            for party, section in self.sections.items()
        }
        table = frames[ACTIVE].loc[list(self.order)].drop(columns="y")
        for party in ("telco", "shop"):
            table = table.join(frames[party], how="left")
        colour = table.pop("colour")
        for name in ("green", "red"):
            table[f"colour={name}"] = (colour == name).astype(float).where(colour.notna())
        return table[["a", "b", "c", "colour=green", "colour=red", "d"]]

    def train(self, params: TrainParams, engine: Engine, **options: Any) -> Simulation:
        own, passive = self.tables(params)
        machines: dict[str, Any] = {
            ACTIVE: ActiveTraining("m", ACTIVE, tuple(passive), own, params, engine, parallelism=2)
        }
        for secret, (peer, table) in enumerate(passive.items()):
            machines[peer] = PassiveTraining(
                peer,
                ACTIVE,
                Given(table),
                lambda _: engine,
                secret,
                parallelism=2,
                others=chained(engine, tuple(passive), peer),
                **options,
            )
        return ran(machines)


HIDDEN = Lattice(sums="hidden")


@pytest.mark.parametrize("join", [(), ("shop",), None], ids=["left", "at-least-shop", "inner"])
@pytest.mark.parametrize(
    "engine",
    [PLAIN, OU, pytest.param(HIDDEN, marks=pytest.mark.long)],
    ids=lambda engine: engine.name,
)
def test_every_node_is_xgboosts_on_the_left_joined_table(
    tmp_path: Path, engine: Engine, join: tuple[str, ...] | None
) -> None:
    gapped = Gapped(tmp_path, join)
    params = TrainParams(num_boost_round=2, max_depth=3, max_bin=8)
    simulation = gapped.train(params, engine)
    assert not simulation.errors
    own, _ = gapped.tables(params)
    values = gapped.left_join().to_numpy(np.float32)
    missing = np.isnan(values[:, [2, 5]]).sum(axis=0).tolist()
    share = simulation.results[ACTIVE]
    lacked = dict(zip(("telco", "shop"), missing, strict=True))
    assert share.lacked_at == {party: count for party, count in lacked.items() if count}
    learned = ~own.evaluation
    bins = BinMatrix.of(values[learned], Cuts.of(values[learned], params.max_bin))
    reference = train_reference(bins, own.label[learned], params)
    tables = [simulation.results[party].lookup_table for party in COLUMNS]
    trees = [PooledTree.of(tree, tables) for tree in share.trees]
    parity = compare(reference, trees, bins)
    assert parity.first_difference is None
    assert parity.identical == parity.total > 8


def test_people_whom_a_party_lacks_are_neither_counted_nor_compared_with_earlier_ones(
    tmp_path: Path,
) -> None:
    gapped = Gapped(tmp_path, ())
    _, passive = gapped.tables(TrainParams())
    held = gapped.left_join()["c"].notna().to_numpy()
    table = passive["telco"]
    assert table.row_set is not None and table.people is not None and table.lacks_people
    assert table.row_set.rows == held.sum() == len(set(table.people.tolist())) - 1
    assert ((table.people == NOBODY) == ~held).all()
    assert np.isnan(table.values[~held]).all()
    people = RowPeople("telco", table.people, np.ones(len(held), np.bool_), 1)
    assert sorted(people.of_session().people) == sorted(table.people[held])
    assert not people.of_tree(0, held), "the same people, whom only rows without values left"


def test_an_owner_with_a_smallest_node_refuses_people_whom_it_lacks(tmp_path: Path) -> None:
    simulation = Gapped(tmp_path, ()).train(TrainParams(num_boost_round=1), PLAIN, smallest_node=5)
    assert "lacks people of the alignment, and has a smallest_node" in str(
        simulation.errors[ACTIVE]
    )
