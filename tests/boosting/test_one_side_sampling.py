from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.gradients import Gradients
from fedmq.boosting.params import TrainParams
from fedmq.boosting.sampling import one_side_sample
from fedmq.errors import ConfigError
from fedmq.privacy.registry import ENGINES, engine_named
from fedmq.simulation.simulate import simulate


def drawn(g: np.ndarray, seed: int = 0, tree: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return one_side_sample(g.astype(np.float32), 0.2, 0.1, seed=seed, tree=tree)


def test_the_largest_gradients_are_all_there_with_weight_one() -> None:
    g = np.random.default_rng(0).normal(size=1000)
    rows, weights = drawn(g)
    largest = set(np.argsort(-np.abs(g))[:200].tolist())
    assert largest <= set(rows.tolist())
    assert {float(w) for row, w in zip(rows, weights, strict=True) if row in largest} == {1.0}


def test_the_rest_weighs_as_much_as_all_it_stands_for() -> None:
    rows, weights = drawn(np.random.default_rng(0).normal(size=1000))
    assert len(rows) == 300
    assert weights.sum() == pytest.approx(1000)
    assert set(weights.tolist()) == {1.0, 8.0}


def test_the_sample_depends_on_seed_and_tree_and_nothing_else() -> None:
    g = np.random.default_rng(0).normal(size=500)
    first = drawn(g)[0]
    assert np.array_equal(first, drawn(g)[0])
    assert not np.array_equal(first, drawn(g, tree=1)[0])
    assert not np.array_equal(first, drawn(g, seed=1)[0])


def test_equal_gradients_are_drawn_by_lot() -> None:
    rows, weights = drawn(np.full(1000, 0.5))
    top = rows[weights == 1]
    assert top.max() > 900
    assert top.min() < 100


def test_sums_over_the_sample_are_close_to_those_over_all_rows() -> None:
    random = np.random.default_rng(0)
    margins = random.normal(size=20000).astype(np.float32)
    labels = random.integers(0, 2, 20000).astype(np.float32)
    training = random.random(20000) < 0.8
    whole = Gradients.of(margins, labels, training, TrainParams(), 0)
    sample = Gradients.of(margins, labels, training, TrainParams(goss=True), 0)
    rows = np.arange(20000)
    assert sample.carried.sum() == pytest.approx(0.3 * training.sum(), abs=2)
    assert not (sample.carried & ~training).any()
    expected = whole.scale.to_float(whole.totals(rows))
    np.testing.assert_allclose(
        sample.scale.to_float(sample.totals(rows))[1], expected[1], rtol=0.02
    )


def test_only_sampled_rows_are_broadcast_and_the_model_is_nearly_as_good() -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(3000, 6))
    label = (values.sum(axis=1) + random.normal(size=3000) > 0).astype(int)
    scores, volumes = [], []
    for goss in (False, True):
        model = simulate(
            active=values[:, :3],
            label=label,
            passive={"telco": values[:, 3:]},
            params=TrainParams(num_boost_round=10, max_depth=3, goss=goss, eval_metric="auc"),
            engine="plain",
        )
        scores.append(model.evals_result["train"]["auc"][-1])
        volumes.append(model.traffic["active", "telco"]["gradient broadcast"].bytes)
    assert scores[1] > scores[0] - 0.02
    # Of rows that were drawn the numbers come along: 12 bytes where it is 8 of all rows.
    assert volumes[1] < 0.35 * volumes[0] * 12 / 8


@pytest.mark.parametrize("engine", ENGINES)
def test_classes_would_show_by_the_rows_that_are_sent(engine: str) -> None:
    params = TrainParams(goss=True, objective="multi:softprob", num_class=3)
    with pytest.raises(ConfigError, match=r"goss with num_class: .* reads the labels"):
        engine_named(engine, {}, "job").check(params)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_largest_gradients_would_show_by_what_parallel_trees_have_in_common(
    engine: str,
) -> None:
    params = TrainParams(goss=True, num_parallel_tree=2)
    with pytest.raises(ConfigError, match="goss with num_parallel_tree: "):
        engine_named(engine, {}, "job").check(params)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_labels_would_show_by_what_trees_that_begin_again_have_in_common(engine: str) -> None:
    params = TrainParams(goss=True, booster="dart", rate_drop=0.5)
    with pytest.raises(ConfigError, match=r"goss with dart: .* people with the rarer label"):
        engine_named(engine, {}, "job").check(params)


def test_rates_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than all rows"):
        TrainParams(goss=True, top_rate=0.8, other_rate=0.3)
    with pytest.raises(ConfigError, match="subsample"):
        TrainParams(goss=True, subsample=0.5)
