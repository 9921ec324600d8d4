"""What all parties train together is what XGBoost trains on the joined table, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.errors import DataError, Refused
from tests.boosting.tables import Table, pooled, scattered
from tests.how_often import seldom, seldom_several

pytest.importorskip("xgboost")

WEAK = {"key_bits": 512, "allow_weak_keys": True}

Columns = Sequence[NDArray[np.integer[Any]]]


def in_order(table: Table, parties: int) -> Columns:
    return np.array_split(np.arange(table.X.shape[1]), parties)


def shuffled(table: Table, parties: int) -> Columns:
    """Columns dealt out at random, to hands of unequal size."""
    random = np.random.default_rng(7)
    order = random.permutation(table.X.shape[1])
    ends = np.sort(random.choice(np.arange(1, len(order)), parties - 1, replace=False))
    return np.split(order, ends)


def trained(
    table: Table, hands: Columns, params: fedmq.TrainParams, engine: str = "plain", **more: Any
) -> fedmq.SimulatedModel:
    first, *others = (table.X[:, hand] for hand in hands)
    passive = {f"passive{number}": values for number, values in enumerate(others)}
    return fedmq.simulate(
        active=first, label=table.y, passive=passive, params=params, engine=engine, **more
    )


def assert_identical(
    table: Table, hands: Columns, params: fedmq.TrainParams, model: fedmq.SimulatedModel
) -> None:
    """Every node is XGBoost's."""
    values = table.X[:, np.concatenate(hands)]
    bins = BinMatrix.of(values, Cuts.of(values, params.max_bin))
    parity = compare(train_reference(bins, table.y, params), model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.identical == parity.total > 5 * params.num_boost_round


def test_a_label_that_spans_more_than_sums_can_keep_is_refused() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    params = fedmq.TrainParams(objective="reg:squarederror", num_boost_round=2, base_score=0.5)
    for largest, refused in ((1e6, False), (1e9, True)):
        y = np.abs(X[:, 0])
        y[7] = largest
        with pytest.raises(DataError, match="label: a value lies 1e") if refused else nullcontext():
            fedmq.simulate(
                active=X[:, :1], label=y, passive={"telco": X[:, 1:]}, params=params, engine="plain"
            )


def shares(model: fedmq.SimulatedModel) -> Mapping[str, str]:
    return {
        "active": model.share.dumps(),
        **{party: share.dumps() for party, share in model.passive_shares.items()},
    }


@pytest.mark.parametrize(
    ("parties", "deal"),
    [(3, shuffled), *seldom_several((2, shuffled), (2, in_order), (3, in_order))],
)
@pytest.mark.parametrize("max_depth", [3, 6])
@pytest.mark.parametrize("name", ["made up", "breast", "credit2"])
def test_the_model_is_xgboosts(name: str, max_depth: int, parties: int, deal: Any) -> None:
    table = pooled(name) if name != "made up" else scattered(2_000, 9, seed=1, missing=0.1)
    hands = deal(table, parties)
    params = fedmq.TrainParams(num_boost_round=10, max_depth=max_depth, max_bin=32)
    assert_identical(table, hands, params, trained(table, hands, params))


@pytest.mark.parametrize("max_depth", [3, *seldom(6)])
def test_missing_values_go_where_xgboost_sends_them(max_depth: int) -> None:
    table = pooled("credit1", 20_000)
    assert np.isnan(table.X).any()
    hands = shuffled(table, 3)
    params = fedmq.TrainParams(num_boost_round=10, max_depth=max_depth, max_bin=32)
    assert_identical(table, hands, params, trained(table, hands, params))


def test_values_beyond_all_of_the_training_go_where_xgboost_sends_them() -> None:
    """The only split there is parts the present from the missing."""
    random = np.random.default_rng(0)
    x = random.integers(1, 4, 200).astype(np.float32)
    x[random.random(200) < 0.4] = np.nan
    label = (~np.isnan(x)).astype(np.float32)
    other = np.zeros((200, 1), np.float32)
    params = fedmq.TrainParams(num_boost_round=2, max_depth=1, base_score=0.5)
    model = fedmq.simulate(
        active=other, label=label, passive={"t": x[:, None]}, engine="plain", params=params
    )
    settings = {"objective": "binary:logistic", "max_depth": 1, "base_score": 0.5}
    data = np.c_[other, x]
    booster = xgboost.train(settings, xgboost.DMatrix(data, label=label), 2)
    new = np.array([0, 3, 3.001, 5.9, np.nan], np.float32)
    nothing = np.zeros((len(new), 1), np.float32)
    expected = booster.predict(xgboost.DMatrix(np.c_[nothing, new]))
    scores = model.predict(active=nothing, passive={"t": new[:, None]})
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_a_regression_is_xgboosts() -> None:
    table = pooled("motor")
    hands = in_order(table, 3)
    params = fedmq.TrainParams(
        objective="reg:squarederror", num_boost_round=10, max_depth=4, max_bin=32, base_score=0.5
    )
    model = trained(table, hands, params)
    assert_identical(table, hands, params, model)
    scores = model.predict(
        active=table.X[:, hands[0]],
        passive={f"passive{i}": table.X[:, hand] for i, hand in enumerate(hands[1:])},
    )
    assert model.evals_result["train"]["rmse"][-1] == pytest.approx(
        np.sqrt(np.mean((scores - table.y) ** 2)), rel=1e-5
    )


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("breast", "ou"),
        *seldom_several(("breast", "paillier"), ("motor", "ou"), ("motor", "paillier")),
    ],
)
def test_encrypted_sums_give_the_same_model_bit_for_bit(name: str, engine: str) -> None:
    table = pooled(name)
    objective = "reg:squarederror" if name == "motor" else "binary:logistic"
    hands = in_order(table, 3)
    params = fedmq.TrainParams(
        objective=objective, num_boost_round=3, max_depth=4, max_bin=16, subsample=0.8
    )
    encrypted = trained(table, hands, params, engine, engine_options=WEAK)
    assert shares(encrypted) == shares(trained(table, hands, params))


def test_missing_values_under_encryption_give_the_same_model_bit_for_bit() -> None:
    table = pooled("credit1", 1_000)
    hands = in_order(table, 2)
    params = fedmq.TrainParams(num_boost_round=2, max_depth=4, max_bin=16)
    encrypted = trained(table, hands, params, "paillier", engine_options=WEAK)
    assert shares(encrypted) == shares(trained(table, hands, params))
    assert_identical(table, hands, params, encrypted)


@pytest.mark.parametrize(
    ("name", "parties", "params"),
    [
        ("breast", 4, {"max_depth": 6, "colsample_bytree": 0.5}),
        *seldom_several(
            ("credit1", 4, {"max_depth": 3, "subsample": 0.8}),
            ("breast", 2, {"max_depth": 3}),
            ("motor", 3, {"max_depth": 4, "objective": "reg:squarederror"}),
            ("credit2", 2, {"max_depth": 6, "subsample": 0.8, "colsample_bytree": 0.7}),
        ),
    ],
)
def test_sums_on_a_lattice_give_the_same_model_bit_for_bit(
    name: str, parties: int, params: dict[str, Any]
) -> None:
    table = pooled(name, 3_000)
    hands = in_order(table, parties)
    trained_by = fedmq.TrainParams(num_boost_round=3, max_bin=16, **params)
    held_out = np.arange(len(table.y)) % 4 == 0
    summed = trained(table, hands, trained_by, "lattice", evaluation=held_out)
    assert shares(summed) == shares(trained(table, hands, trained_by, evaluation=held_out))


@pytest.mark.parametrize("name", seldom("breast", "credit1"))
def test_sums_on_a_lattice_give_xgboosts_model(name: str) -> None:
    table = pooled(name, 2_000)
    hands = shuffled(table, 3)
    params = fedmq.TrainParams(num_boost_round=3, max_depth=4, max_bin=16)
    assert_identical(table, hands, params, trained(table, hands, params, "lattice"))


@pytest.mark.parametrize(
    ("name", "max_depth"),
    seldom_several(("credit1", 3), ("credit1", 6), ("credit2", 3), ("credit2", 6)),
)
def test_whole_tables_on_a_lattice_give_plains_model_and_xgboosts(
    name: str, max_depth: int
) -> None:
    table = pooled(name)
    hands = in_order(table, 2)
    params = fedmq.TrainParams(num_boost_round=2, max_depth=max_depth, max_bin=32)
    summed = trained(table, hands, params, "lattice")
    assert shares(summed) == shares(trained(table, hands, params))
    assert_identical(table, hands, params, summed)


@pytest.mark.parametrize(
    ("parties", "gradient_bits"), [(2, 8), *seldom_several((4, 8), (2, 2), (2, 14))]
)
def test_gradients_of_few_bits_on_a_lattice_give_the_same_model(
    parties: int, gradient_bits: int
) -> None:
    table = pooled("credit1", 3_000)
    hands = in_order(table, parties)
    params = fedmq.TrainParams(
        num_boost_round=3, max_depth=5, max_bin=16, gradient_bits=gradient_bits, subsample=0.8
    )
    held_out = np.arange(len(table.y)) % 4 == 0
    summed = trained(table, hands, params, "lattice", evaluation=held_out)
    assert shares(summed) == shares(trained(table, hands, params, evaluation=held_out))


def test_columns_that_cannot_be_split_are_none_of_a_lattices_candidates() -> None:
    table = scattered(500, 6, seed=3, missing=0.2)
    table.X[:, 3] = 7
    table.X[:, 4] = np.nan
    table.X[::3, 5], table.X[1::3, 5], table.X[2::3, 5] = np.nan, 2, 2
    hands = in_order(table, 2)
    params = fedmq.TrainParams(num_boost_round=3, max_depth=4, max_bin=16)
    summed = trained(table, hands, params, "lattice")
    assert shares(summed) == shares(trained(table, hands, params))
    assert_identical(table, hands, params, summed)


@pytest.mark.parametrize("rows", [2, 8191, 8193])
def test_a_lattice_of_any_number_of_rows_gives_the_same_model(rows: int) -> None:
    table = scattered(rows, 4, seed=rows)
    table.y[:2] = 0, 1
    hands = in_order(table, 2)
    params = fedmq.TrainParams(num_boost_round=1, max_depth=3, max_bin=4)
    assert shares(trained(table, hands, params, "lattice")) == shares(trained(table, hands, params))


@pytest.mark.long
def test_early_stopping_on_a_lattice_ends_where_it_does_in_the_clear() -> None:
    table = pooled("breast")
    hands = in_order(table, 2)
    params = fedmq.TrainParams(
        num_boost_round=30, max_depth=6, eta=1, max_bin=16, early_stopping_rounds=2
    )
    held_out = np.arange(len(table.y)) % 3 == 0
    plain = trained(table, hands, params, evaluation=held_out)
    assert len(plain.share.trees) < 30
    assert shares(trained(table, hands, params, "lattice", evaluation=held_out)) == shares(plain)


def test_more_rows_than_a_lattice_sums_are_refused_before_the_session() -> None:
    X = np.zeros((2**21, 1), np.float32)
    y = np.arange(2**21) % 2
    with pytest.raises(DataError, match="2,097,152 rows; engine 'lattice' sums 2,097,151 at most"):
        fedmq.simulate(active=X, label=y, passive={"telco": X}, engine="lattice")


def test_a_hint_that_is_too_long_names_candidates_and_another_engine() -> None:
    table = pooled("breast")
    hands = in_order(table, 2)
    params = fedmq.TrainParams(num_boost_round=1, max_bin=32)
    with pytest.raises(Refused, match=r"passive0 .*465 candidates need .* use engine 'ou'"):
        trained(table, hands, params, "lattice", engine_options={"hint_bytes": 10**6})
