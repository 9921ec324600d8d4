"""The active party's own columns say next to nothing, and another party's say nearly all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.privacy.engine import Comparison
from fedmq.privacy.hidden_sums.active import HiddenActive
from fedmq.privacy.hidden_sums.circuits import GainCircuit
from tests.how_often import seldom

ROWS = 300
RANDOM = np.random.default_rng(3)
TELCO = RANDOM.normal(size=(ROWS, 4))
LABEL = (TELCO[:, 0] + TELCO[:, 1] > 0).astype(float)
BANK = RANDOM.normal(size=(ROWS, 1))


def trained(engine: str, classes: int = 2, **options: str) -> fedmq.SimulatedModel:
    several = {"objective": "multi:softprob", "num_class": classes} if classes > 2 else {}
    return fedmq.simulate(
        active=BANK,
        passive={"telco": TELCO},
        label=LABEL if classes == 2 else LABEL + (TELCO[:, 2] > 1),
        params={"num_boost_round": 2, "max_depth": 2, "max_bin": 8, **several},
        engine=engine,
        engine_options=options,
        workers=1,
    )


@pytest.mark.parametrize("engine", ["lattice", *seldom("ou")])
def test_the_filter_goes_on_with_quotients_that_reach_far(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    def read(*given: Any) -> GainCircuit:
        told.append((circuit := original(*given)).far)
        return circuit

    original = GainCircuit.read
    monkeypatch.setattr(GainCircuit, "read", read)
    hidden, plain = trained(engine, sums="hidden"), trained("plain")
    assert hidden.share.dumps() == plain.share.dumps()
    assert hidden.passive_shares["telco"].dumps() == plain.passive_shares["telco"].dumps()
    assert not told[0]
    assert told[-1]


@pytest.mark.parametrize("classes", seldom(2, 3))
def test_what_a_node_gains_is_foreseen_from_the_split_above_and_from_the_tree_before(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreseen: list[float] = []

    def compare(self: HiddenActive, peer: str, comparison: Comparison) -> Any:
        foreseen.extend(comparison.foreseen.tolist())
        return original(self, peer, comparison)

    original = HiddenActive.compare
    monkeypatch.setattr(HiddenActive, "compare", compare)
    trees = trained("lattice", classes, sums="hidden").share.trees
    of_round = len(trees) // 2
    gains = [float(tree.gain[0]) for tree in trees]
    of_tree = zip([0.0] * of_round + gains[:-of_round], gains, strict=True)
    assert foreseen == [gain for before, root in of_tree for gain in (before, root, root)]
