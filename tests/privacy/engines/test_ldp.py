"""The LDP engine: noise within its terms, a budget that adds up, and clear refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmq.boosting.gradients import Gradients
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError
from fedmq.privacy.engine import ActiveHalf
from fedmq.privacy.engines.ldp import Ldp
from tests.privacy.test_engine_contract import gradients


def disclosed(engine: Ldp, held: Gradients, half: ActiveHalf | None = None) -> np.ndarray:
    """g and h as they are disclosed to a passive party, for all carried rows."""
    pieces = []
    for plan in (half or engine.active(1)).broadcast(held):
        step = next(plan)
        with pytest.raises(StopIteration) as stop:
            plan.send([computation.run() for computation in step.computations])
        pieces.append(stop.value.value)
    scale = engine.scale(int(held.carried.sum()), held.params)
    return scale.to_float(np.concatenate([piece.values["pairs"] for piece in pieces]))


def test_a_row_is_perturbed_on_both_channels_each_in_its_own_range() -> None:
    held = gradients(20_000, 1)
    exact = held.scale.to_float(held.pairs)
    noise = disclosed(Ldp(epsilon=1, noise_seed=0), held) - exact
    # Laplace of scale 2 / epsilon on [-1, 1], and on [0, 1/4], which is an eighth as wide.
    assert noise.std(axis=0) == pytest.approx([np.sqrt(8), np.sqrt(8) / 8], rel=0.03)
    assert np.abs(noise.mean(axis=0) / noise.std(axis=0)).max() < 4.5 / np.sqrt(20_000)


def test_the_first_order_sends_no_h() -> None:
    assert not disclosed(Ldp(order=1), gradients(100, 1))[:, 1].any()


def test_a_constant_h_is_public_and_needs_no_noise() -> None:
    held = gradients(50, 1)
    params = TrainParams(objective="reg:squarederror")
    pairs = held.pairs.copy()
    pairs[:, 1] = 1 << held.scale.h_bits
    pairs_sent = disclosed(Ldp(clip=2.0), replace(held, params=params, pairs=pairs))
    assert (pairs_sent[:, 1] == 1).all()


def test_gradients_beyond_clip_are_cut() -> None:
    held = gradients(200, 1)
    exact = held.scale.to_float(held.pairs)[:, 0]
    cut = disclosed(Ldp(epsilon=1e12, clip=0.25), held)[:, 0]
    np.testing.assert_allclose(cut, np.clip(exact, -0.25, 0.25), atol=1e-9)


def test_what_is_disclosed_does_not_depend_on_the_largest_gradient_of_others() -> None:
    labels, margins = np.ones(50, np.float32), np.full(50, 4, np.float32)
    engine, everybody = Ldp(mechanism="duchi", noise_seed=0), np.ones(50, np.bool_)
    sent = []
    for first in (4, -8):
        margins[0] = first
        held = Gradients.of(margins, labels, everybody, TrainParams(), 0)
        sent.append(disclosed(engine, held)[1:])
    np.testing.assert_array_equal(*sent)


def test_a_tree_that_is_sent_again_carries_the_same_noise_and_the_next_another() -> None:
    engine, held = Ldp(), gradients(100, 1)
    half = engine.active(1)
    first = disclosed(engine, held, half)
    np.testing.assert_array_equal(first, disclosed(engine, held, half))
    assert (first != disclosed(engine, replace(held, tree=1), half)).all()


def test_noise_drawn_for_a_session_is_the_same_in_all_its_attempts() -> None:
    engine, held = Ldp(), gradients(100, 1)
    session = replace(engine, **engine.drawn())
    np.testing.assert_array_equal(disclosed(session, held), disclosed(session, held))
    other = replace(engine, **engine.drawn())
    assert (disclosed(session, held) != disclosed(other, held)).all()
    assert session.drawn() == {}


def test_the_budget_adds_up_over_trees_and_channels() -> None:
    assert Ldp(epsilon=3).epsilon_spent(10) == 60
    assert Ldp(epsilon=3, order=1).epsilon_spent(10) == 30


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"mechanism": "gauss"}, "mechanism"),
        ({"order": 3}, "order"),
        ({"clip": -1.0}, "clip"),
    ],
)
def test_wrong_options_are_named(options: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        Ldp(**options)


def test_regression_needs_a_clip() -> None:
    with pytest.raises(ConfigError, match="clip"):
        Ldp().check(TrainParams(objective="reg:squarederror"))
    Ldp(clip=2.0).check(TrainParams(objective="reg:squarederror"))


def test_the_first_order_needs_lambda() -> None:
    with pytest.raises(ConfigError, match="lambda"):
        Ldp(order=1).check(TrainParams(reg_lambda=0))
    Ldp(order=2).check(TrainParams(reg_lambda=0))


def test_goss_is_refused() -> None:
    with pytest.raises(ConfigError, match="goss"):
        Ldp().check(TrainParams(goss=True))


def test_noise_that_would_leave_the_integers_is_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        disclosed(Ldp(epsilon=1e-9), gradients(1000, 1))
