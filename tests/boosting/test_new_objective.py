"""A class and its place in the registry are all that a new objective takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.objectives.objective import GradientBounds, Objective, pairs
from fedmq.boosting.objectives.registry import OBJECTIVES
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError

RANDOM = np.random.default_rng(5)
X = np.round(RANDOM.normal(size=(120, 4)), 1).astype(np.float32)
Y = (X[:, 0] - X[:, 3] + RANDOM.normal(size=120)).astype(np.float32)


@dataclass(frozen=True)
class LogCosh(Objective):
    """The logarithm of the hyperbolic cosine of the residual, ``huber_slope`` times as steep."""

    slope: float = 1.0

    name = "test:logcosh"
    wanted = "test:logcosh takes finite numbers"
    own_parameters = ("huber_slope",)
    default_metric = "mphe"
    ldp_bounds = GradientBounds(1.0, (0.0, 1.0))

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        g = np.tanh(np.float32(self.slope) * (margins - labels))
        return pairs(g, np.float32(self.slope) * (1 - g * g), weight)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, LogCosh.name, LogCosh)


def trained(**given: Any) -> fedmq.SimulatedModel:
    params = {"num_boost_round": 3, "max_depth": 3, "base_score": 0.5} | given.pop("params")
    return fedmq.simulate(
        active=X[:, :2], label=Y, passive={"telco": X[:, 2:]}, params=params, **given
    )


@pytest.mark.parametrize("engine", ["plain", "lattice"])
def test_it_trains_as_a_callers_own_function_with_the_same_gradients(engine: str) -> None:
    model = trained(params={"objective": "test:logcosh", "huber_slope": 0.7}, engine=engine)

    def function(margins: NDArray[np.float32], rows: Any) -> tuple[Any, Any]:
        both = LogCosh(0.7).gradients(margins, rows.get_label())
        return both[:, 0], both[:, 1]

    reference = trained(params={"objective": "reg:squarederror"}, engine="plain", obj=function)
    rows: dict[str, Any] = {"active": X[:, :2], "passive": {"telco": X[:, 2:]}}
    np.testing.assert_array_equal(model.predict(**rows), reference.predict(**rows))


def test_what_it_declares_holds_for_parameters() -> None:
    assert TrainParams(objective="test:logcosh").eval_metric == ("mphe",)
    with pytest.raises(ConfigError, match="eval_metric = 'auc' does not fit test:logcosh"):
        TrainParams(objective="test:logcosh", eval_metric="auc")


def test_what_it_declares_holds_for_noise() -> None:
    params = {"objective": "test:logcosh"}
    assert trained(params=params, engine="ldp", engine_options={"noise_seed": 1})


def test_a_name_that_is_not_registered_is_refused_beside_all_that_are() -> None:
    with pytest.raises(ConfigError, match=r"'binary:logistic', .* or 'test:logcosh'$"):
        TrainParams(objective="test:other")
