"""Every engine trains the same model on merged cells; of cells of one row nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.errors import ConfigError

pytestmark = pytest.mark.usefixtures("threads")

RANDOM = np.random.default_rng(4)
TABLE = RANDOM.normal(size=(240, 5)).round(1).astype(np.float32)
TABLE[RANDOM.random(TABLE.shape) < 0.05] = np.nan
LABEL = (np.nan_to_num(TABLE).sum(axis=1) + RANDOM.normal(size=240) > 0).astype(np.float32)
WEAK = {"key_bits": 512, "allow_weak_keys": True}


def trained(engine: str, smallest_cell: int, **params: Any) -> fedmq.SimulatedModel:
    return fedmq.simulate(
        active=TABLE[:, :2],
        label=LABEL,
        passive={"telco": TABLE[:, 2:]},
        params={"num_boost_round": 2, "max_depth": 4, "max_bin": 16, **params},
        engine=engine,
        engine_options=WEAK if engine in ("paillier", "ou") else {},
        workers=1,
        smallest_cell=smallest_cell,
    )


def nodes(model: fedmq.SimulatedModel) -> list[tuple[Any, ...]]:
    return [
        (
            joined.tree.owner.tolist(),
            joined.feature.tolist(),
            joined.threshold.tolist(),
            joined.default_left.tolist(),
            joined.tree.weight.tolist(),
        )
        for joined in model.joined_trees()
    ]


@pytest.mark.parametrize("engine", ["paillier", "ou", "smm1", "smm2"])
def test_engines_that_sum_per_node_agree_on_merged_cells(engine: str) -> None:
    assert nodes(trained(engine, 8)) == nodes(trained("plain", 8)) != nodes(trained("plain", 0))


def test_cells_of_one_row_cost_nothing() -> None:
    assert nodes(trained("plain", 1)) == nodes(trained("plain", 0))
    assert trained("plain", 1).departures == ()


def test_an_engine_that_hides_rows_merges_cells_of_the_whole_table() -> None:
    assert nodes(trained("lattice", 4)) == nodes(trained("plain", 0))
    merged = trained("lattice", 30)
    assert merged.departures == ("telco merged cells of fewer than 30 rows",)
    assert nodes(merged) != nodes(trained("plain", 0))


@pytest.mark.parametrize("engine", ["plain", "paillier", "ou", "lattice", "smm1", "smm2"])
def test_a_party_whose_cells_are_all_too_small_shows_nothing(engine: str) -> None:
    model = trained(engine, 1000)
    assert all((tree.owner <= 0).all() for tree in model.share.trees)


def test_rows_that_a_tree_leaves_out_count_for_no_cell() -> None:
    half = trained("paillier", 8, subsample=0.5)
    assert nodes(half) == nodes(trained("plain", 8, subsample=0.5))
    assert half.departures == ("subsample = 0.5", "telco merged cells of fewer than 8 rows")


SIGNS = {"f0": 1, "telco.f0": 1, "telco.f2": -1}


def test_candidates_of_merged_cells_keep_the_signs_of_their_columns() -> None:
    constrained = trained("plain", 8, monotone_constraints=SIGNS)
    assert nodes(constrained) == nodes(trained("ou", 8, monotone_constraints=SIGNS))
    assert nodes(constrained) != nodes(trained("plain", 8))


@pytest.mark.parametrize(("column", "sign"), [(0, 1), (2, 1), (4, -1)])
def test_scores_of_merged_cells_never_move_the_other_way(column: int, sign: int) -> None:
    model = trained("plain", 8, monotone_constraints=SIGNS)
    rows = np.repeat(TABLE[:40], 9, axis=0)
    rows[:, column] = np.tile(np.linspace(-3, 3, 9), 40)
    scores = model.predict(
        active=rows[:, :2], passive={"telco": rows[:, 2:]}, output_margin=True
    ).reshape(40, 9)
    assert (np.diff(scores, axis=1) * sign >= 0).all()


def test_no_fewer_than_no_rows() -> None:
    with pytest.raises(ConfigError, match="smallest_cell = -1"):
        trained("plain", -1)
