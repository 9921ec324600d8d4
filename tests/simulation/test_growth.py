"""Trees that grow by loss, or have few leaves, are XGBoost's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.model.tree import LEAF, Tree
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from tests.boosting.tables import Table, scattered
from tests.how_often import seldom, seldom_several
from tests.protocol.federation import ACTIVE, ran, shares, small
from tests.simulator import Link

pytestmark = pytest.mark.usefixtures("threads")

WEAK = {"key_bits": 512, "allow_weak_keys": True}
GROWTH: list[dict[str, Any]] = [
    {"grow_policy": "lossguide", "max_leaves": 20, "max_depth": 0},
    {"grow_policy": "lossguide", "max_depth": 5},
    {"grow_policy": "lossguide", "max_leaves": 11, "max_depth": 4, "gamma": 0.3},
    {"max_leaves": 11},
]


def trained(table: Table, engine: str = "plain", **params: Any) -> fedmq.SimulatedModel:
    more: dict[str, Any] = {"engine_options": WEAK, "workers": 1} if engine == "ou" else {}
    half = table.X.shape[1] // 2
    return fedmq.simulate(
        active=table.X[:, :half],
        label=table.y,
        passive={"telco": table.X[:, half:]},
        params=fedmq.TrainParams(**params),
        engine=engine,
        **more,
    )


def assert_identical(table: Table, model: fedmq.SimulatedModel) -> None:
    params = model.share.params
    bins = BinMatrix.of(table.X, Cuts.of(table.X, params.max_bin))
    parity = compare(train_reference(bins, table.y, params), model.joined_trees(), bins)
    assert parity.first_difference is None


def depth_of(tree: Tree) -> int:
    depths = np.zeros(len(tree), int)
    for node in np.flatnonzero(tree.owner != LEAF):
        depths[[tree.left[node], tree.right[node]]] = depths[node] + 1
    return int(depths.max())


@pytest.mark.parametrize("growth", GROWTH, ids=str)
def test_the_model_is_xgboosts(growth: dict[str, Any]) -> None:
    table = scattered(1_500, 8, seed=2, missing=0.1)
    model = trained(table, num_boost_round=5, max_bin=32, **growth)
    assert_identical(table, model)
    leaves = [int((tree.owner == LEAF).sum()) for tree in model.share.trees]
    wanted = growth.get("max_leaves", 0)
    assert max(leaves) == wanted if wanted else max(leaves) > 16


@pytest.mark.parametrize("growth", [GROWTH[0], *seldom(GROWTH[3])], ids=str)
@pytest.mark.parametrize("engine", ["lattice", *seldom("ou", "smm1", "smm2")])
def test_exact_engines_grow_the_same_trees(engine: str, growth: dict[str, Any]) -> None:
    table = scattered(150, 4, seed=2, missing=0.1)
    params = {"num_boost_round": 2, "max_bin": 8, **growth}
    expected, model = trained(table, **params), trained(table, engine, **params)
    for ours, theirs in zip(model.share.trees, expected.share.trees, strict=True):
        assert ours.owner.tolist() == theirs.owner.tolist()
        np.testing.assert_array_equal(ours.weight, theirs.weight)


def test_no_schedule_changes_a_byte_of_a_model_that_grows_by_loss() -> None:
    federation = small(counts=(2, 2, 1), grow_policy="lossguide", max_leaves=6, max_depth=0)
    undisturbed = shares(federation.train())
    for seed in range(20):
        link = Link(drop=0.1 * (seed % 4), repeat=0.3, delay=(0.01, 1.0, 5.0)[seed % 3])
        assert shares(ran(federation.training(), seed=seed, link=link)) == undisturbed
    assert ACTIVE in undisturbed


def batches(last: float) -> Table:
    """512 nodes at depth 9: those below the left child gain by a split, the others by ``last``."""
    bits = (np.arange(2**11)[:, None] >> np.arange(11)) & 1
    worth: NDArray[np.float64] = 0.9 ** np.arange(11)
    left = bits[:, 0] == 0
    y = 3 * bits[:, 0] + bits[:, 1:9] @ worth[1:9]
    y = y + np.where(left, 1.0, last) * (bits[:, 9:] @ worth[9:])
    return Table(bits.astype(np.float32), y.astype(np.float32))


@pytest.mark.parametrize(("last", "depth"), [(0.1, 10), *seldom_several((1.0, 11))])
def test_a_tree_ends_where_xgboosts_batches_of_nodes_end_it(last: float, depth: int) -> None:
    table = batches(last)
    model = trained(
        table, objective="reg:squarederror", num_boost_round=1, max_depth=12, gamma=0.03,
        reg_lambda=0.0, base_score=0.0,
    )  # fmt: skip
    assert depth_of(model.share.trees[0]) == depth
    assert_identical(table, model)
