from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.party import estimate as estimating
from fedmq.party.estimate import Estimate, estimate
from fedmq.party.simulation import simulate

ROWS = 3000
PARAMS = TrainParams(num_boost_round=4, max_depth=2, max_bin=8)


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    values = random.normal(size=(ROWS, 4)).astype(np.float32)
    return values, (values.sum(axis=1) > 0).astype(np.float32)


@pytest.fixture(scope="module")
def foretold(table: tuple[np.ndarray, np.ndarray]) -> Estimate:
    values, label = table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimating, "_FEWEST_ROWS", 400)
        patch.setattr(estimating, "_BUDGET", 0.0)
        return estimate(
            active=values[:, :2],
            label=label,
            passive={"telco": 2},
            params=PARAMS,
            engine="plain",
            engine_options={},
        )


def test_traffic_is_foretold_within_thirty_percent(
    foretold: Estimate, table: tuple[np.ndarray, np.ndarray]
) -> None:
    values, label = table
    model = simulate(
        active=values[:, :2],
        label=label,
        passive={"telco": values[:, 2:]},
        params=PARAMS,
        engine="plain",
    )
    sent = sum(each.bytes for each in model.traffic["active", "telco"].values())
    assert foretold.parties["active"].bytes_sent == pytest.approx(sent, rel=0.3)


def test_every_party_has_its_share_of_the_work(foretold: Estimate) -> None:
    assert foretold.parties.keys() == {"active", "telco"}
    assert all(each.core_seconds > 0 for each in foretold.parties.values())
    assert foretold.trees == 4
    assert foretold.together > 0
    assert foretold.apart > 0
    assert foretold.memory > 10e6


def test_what_grows_by_the_row_is_drawn_out_and_what_does_not_is_not() -> None:
    small, large = (
        estimating._Seen(rows, seconds, 1, 0, 100, {"active": 0.5}, {"active": 10.0 * rows})
        for rows, seconds in ((1000, 2.0), (2000, 3.0))
    )
    whole = estimating._drawn_out(small, large, 10_000)
    assert whole.seconds == pytest.approx(11)
    assert whole.busy["active"] == 0.5
    assert whole.sent["active"] == pytest.approx(100_000)
