"""Reasons of sealed scores are Shapley values of parties, and tell a number a party."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.model.contributions import TreeShap
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.objectives.registry import objective_of
from fedmq.protocol.inference.computations import Scores
from tests.how_often import seldom_several
from tests.protocol.federation import ACTIVE, Federation, ran, small

ALIKE = 2**-18


def as_parties_are_players(
    federation: Federation, shares: Mapping[str, Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shapley values (rows, outputs, parties) by paths through trees, and the bias (outputs,)."""
    served, rows = ServedForest.of(shares[ACTIVE]), len(federation.label)
    bitmaps = {}
    for owner, party in served.asked.items():
        table, records = shares[party].lookup_table, len(served.node_of[owner])
        bitmaps[owner] = table.directions(
            federation.columns[party],
            np.repeat(np.arange(rows), records),
            np.tile(np.arange(records), rows),
        ).reshape(rows, records)
    left = served.directions(federation.columns[ACTIVE], bitmaps)
    trees, params = served.share.used_trees, served.share.params
    place = {owner: place for place, owner in enumerate((0, *served.asked))}
    players = [np.array([place.get(int(owner), 0) for owner in tree.owner]) for tree in trees]
    outputs = [params.output_of(number) for number in range(len(trees))]
    shap = TreeShap.of(trees, players, len(place), outputs)
    bias = objective_of(params).first_margin(served.share.base_score) + shap.expected
    return shap.values(left), bias


def explained(federation: Federation, shares: Mapping[str, Any], **settings: Any) -> Scores:
    simulation = ran(federation.sealed_scoring(shares, reasons=True, **settings))
    assert not simulation.errors
    scores = simulation.results[ACTIVE]
    assert isinstance(scores, Scores) and scores.contributions is not None
    return scores


@pytest.mark.parametrize(
    ("counts", "params"),
    [
        ((2, 2), {}),
        ((2, 2, 1), {"max_depth": 4}),
        ((0, 2, 2), {"booster": "dart", "rate_drop": 0.5}),
        *seldom_several(
            ((2, 2, 1, 3), {"num_parallel_tree": 2}),
            ((1, 4), {"max_depth": 6, "num_boost_round": 8}),
            ((2, 2, 1), {"grow_policy": "lossguide", "max_leaves": 6, "max_depth": 0}),
        ),
    ],
    ids=str,
)
def test_each_party_s_part_is_its_shapley_value(counts: Any, params: dict[str, Any]) -> None:
    federation = small(counts=counts, **{"num_boost_round": 3, **params})
    shares = federation.train().results
    scores = explained(federation, shares)
    values, bias = as_parties_are_players(federation, shares)
    found = scores.contributions
    scale = np.abs(values).max()
    assert [str(player) for player in scores.players] == [ACTIVE, *shares[ACTIVE].asked]
    assert np.abs(found[..., :-1] - values).max() <= ALIKE * scale
    np.testing.assert_allclose(found[..., -1], np.broadcast_to(bias, found.shape[:2]), rtol=1e-6)
    np.testing.assert_allclose(found.sum(axis=-1)[:, 0], scores.margins, rtol=1e-5, atol=1e-6)
    walked = ran(federation.scoring(shares)).results[ACTIVE]
    assert np.abs(scores.margins - walked.margins).max() <= ALIKE * np.abs(walked.margins).max()


def test_several_classes_have_parts_of_each() -> None:
    made = small(counts=(2, 2, 1))
    label = (np.arange(len(made.label)) % 3).astype(np.float32)
    federation = made.having(
        label=label,
        base_score=None,
        objective="multi:softprob",
        num_class=3,
        eval_metric="mlogloss",
    )
    shares = federation.train().results
    scores = explained(federation, shares)
    values, bias = as_parties_are_players(federation, shares)
    np.testing.assert_allclose(scores.contributions[..., :-1], values, atol=1e-5)
    np.testing.assert_allclose(scores.contributions[0, :, -1], bias, rtol=1e-5)


def test_where_rows_start_is_in_the_bias() -> None:
    federation = small(num_boost_round=3)
    shares = federation.train().results
    first = np.linspace(-3, 3, 80, dtype=np.float32)
    plain, moved = explained(federation, shares), explained(federation, shares, base_margin=first)
    added = moved.contributions[..., -1] - plain.contributions[..., -1]
    assert np.ptp(added[:, 0] - first) < 1e-5
    np.testing.assert_allclose(moved.contributions[..., :-1], plain.contributions[..., :-1])
