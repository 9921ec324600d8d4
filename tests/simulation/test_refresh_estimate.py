"""What a refresh is estimated to take is what it takes with the model's real splits."""

from __future__ import annotations

import numpy as np
import pytest

import fedmq
from fedmq.computation import Given
from fedmq.errors import ConfigError
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.telemetry.metrics import Traffic
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from fedmq.protocol.machine import Machine
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines
from fedmq.simulation.refresh_estimate import estimate_refresh
from tests.boosting.tables import scattered

X, Y = scattered(900, 6, seed=3, missing=0.1)
PARTS = {"telco": X[:, 3:5], "shop": X[:, 5:]}


@pytest.fixture(scope="module")
def model() -> fedmq.SimulatedModel:
    return fedmq.simulate(
        active=X[:, :3],
        label=Y,
        passive=PARTS,
        params={"num_boost_round": 4, "max_depth": 4, "max_bin": 16},
        engine="plain",
    )


@pytest.mark.parametrize("times", [1, 8], ids=["all rows walk", "some rows walk for all"])
def test_bytes_are_those_of_rows_that_walk_down_the_real_splits(
    model: fedmq.SimulatedModel, times: int
) -> None:
    own, label = np.tile(X[:, :3], (times, 1)), np.tile(Y, times)
    found = estimate_refresh(model.share, own, label)
    traffic = Traffic()
    machines: dict[str, Machine] = {"active": ActiveInference(model.share, own)}
    for party, share in model.passive_shares.items():
        rows = PassiveRows(share, np.tile(PARTS[party], (times, 1)), None)
        machines[party] = PassiveInference("active", Given(rows))
    in_own_loop(run_machines(machines, ThreadPool(), MEMORY, "inference", traffic))
    for party in PARTS:
        asked = traffic.between("active", party).bytes, traffic.between(party, "active").bytes
        cost = found.parties[party]
        assert (cost.bytes_received, cost.bytes_sent) == pytest.approx(asked, rel=0.25)
    assert found.trees == 4 and found.rounds > 1 and found.seconds > 0


def test_a_model_that_is_not_refreshed_is_refused() -> None:
    made = fedmq.simulate(
        active=X[:, :3],
        label=Y,
        passive=PARTS,
        params={"num_boost_round": 2, "max_depth": 2, "booster": "dart", "rate_drop": 0.5},
        engine="plain",
    )
    with pytest.raises(ConfigError, match="refreshes no model with booster = 'dart'"):
        estimate_refresh(made.share, X[:, :3], Y)
