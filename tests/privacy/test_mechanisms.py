"""The mechanisms do what their papers prove: unbiased, of known variance, epsilon-bounded."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.privacy.engines.ldp import MECHANISMS, Hybrid, Mechanism

DRAWS = 200_000
VALUES = (-1.0, -0.3, 0.0, 0.7, 1.0)
EPSILONS = (0.5, 1.0, 3.0)


@pytest.fixture(params=MECHANISMS.values(), ids=list(MECHANISMS))
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    return request.param


def draws(mechanism: Mechanism, value: float, epsilon: float, seed: int = 0) -> NDArray[np.float64]:
    return mechanism.perturbed(np.full(DRAWS, value), epsilon, np.random.default_rng(seed))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("value", VALUES)
def test_the_mean_is_the_value(mechanism: Mechanism, value: float, epsilon: float) -> None:
    drawn = draws(mechanism, value, epsilon)
    error = drawn.std() / np.sqrt(DRAWS)
    assert abs(drawn.mean() - value) < 4.5 * error


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("value", VALUES)
def test_the_variance_is_the_closed_form(
    mechanism: Mechanism, value: float, epsilon: float
) -> None:
    [closed] = mechanism.variance(np.array([value]), epsilon)
    if mechanism.name == "hybrid" and epsilon > Hybrid.threshold:
        # Of the mixture: both parts are unbiased, so the mean of variances is all there is.
        assert closed < mechanism.variance(np.array([value]), 0.5)[0]
    assert draws(mechanism, value, epsilon).var() == pytest.approx(closed, rel=0.03)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_output_is_likelier_than_epsilon_allows(mechanism: Mechanism, epsilon: float) -> None:
    one, other = (draws(mechanism, value, epsilon, seed=3) for value in (-1.0, 1.0))
    together = np.concatenate((one, other))
    edges = np.unique(np.quantile(together, np.linspace(0, 1, 21)))
    if len(edges) < 3:  # two values only
        edges = np.array([-np.inf, 0, np.inf])
    counts = [np.histogram(drawn, edges)[0].astype(float) for drawn in (one, other)]
    enough = np.minimum(*counts) > 200
    assert enough.any()
    ratios = np.abs(np.log(counts[0][enough] / counts[1][enough]))
    slack = 5 * np.sqrt(1 / counts[0][enough] + 1 / counts[1][enough])
    assert (ratios <= epsilon + slack).all()
    assert ratios.max() > 0.5 * epsilon  # and the budget is made use of


@pytest.mark.parametrize("name", ["laplace", "piecewise", "hybrid"])
def test_a_large_budget_leaves_the_value(name: str) -> None:
    values = np.linspace(-1, 1, 1001)
    drawn = MECHANISMS[name].perturbed(values, 1e12, np.random.default_rng(0))  # type: ignore[index]
    np.testing.assert_allclose(drawn, values, atol=1e-9)


def test_duchi_stays_one_bit_however_large_the_budget() -> None:
    drawn = MECHANISMS["duchi"].perturbed(np.zeros(100), 1e12, np.random.default_rng(0))
    assert set(drawn) == {-1.0, 1.0}


@pytest.mark.parametrize("name", ["duchi", "piecewise", "hybrid"])
def test_bounded_mechanisms_stay_in_their_bounds(name: str) -> None:
    drawn = draws(MECHANISMS[name], 0.9, 1.0)  # type: ignore[index]
    bound = (np.exp(0.5) + 1) / (np.exp(0.5) - 1)
    assert np.abs(drawn).max() <= bound * (1 + 1e-12)
