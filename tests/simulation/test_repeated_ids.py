"""People with several rows at the active party, and one at each of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.parity import compare, installed_arithmetic, train_reference
from fedmq.errors import ConfigError, DataError
from fedmq.privacy.registry import engine_named
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.terms import ActiveTable

pytest.importorskip("xgboost")

DRAW = np.random.default_rng(3)
PEOPLE = [f"p{number:02}" for number in range(40)]
TELCO = pd.DataFrame(DRAW.normal(size=(40, 2)), PEOPLE, ["calls", "data"])
TELCO.iloc[::7, 0] = np.nan
RETAIL = pd.DataFrame(DRAW.normal(size=(40, 1)), PEOPLE, ["visits"])
LOANS = pd.Index(DRAW.permutation([*PEOPLE, *DRAW.choice(PEOPLE, 110)]))  # up to several a person
BANK = pd.DataFrame(DRAW.normal(size=(150, 2)), LOANS, ["amount", "term"])
OTHERS = {"telco": TELCO, "retail": RETAIL}
LABEL = (
    BANK.amount.to_numpy()
    + TELCO.data[LOANS].to_numpy() * RETAIL.visits[LOANS].to_numpy()
    + DRAW.normal(size=150)
    > 0
).astype(np.float32)
PARAMS = {"num_boost_round": 3, "max_depth": 4, "max_bin": 16}


def trained(**changes: Any) -> fedmq.SimulatedModel:
    given = {"active": BANK, "label": LABEL, "passive": OTHERS, "params": PARAMS}
    return fedmq.simulate(**{**given, "engine": "lattice", "duplicates": "hidden", **changes})


@pytest.fixture(scope="module")
def model() -> fedmq.SimulatedModel:
    return trained()


def assert_identical(model: fedmq.SimulatedModel, learning: np.ndarray) -> None:
    """Every node is XGBoost's on the joined table, whose cuts passive parties make of people."""
    params = TrainParams.parse({**PARAMS, "xgboost_arithmetic": installed_arithmetic()}, "test")
    values = model.joined_values(active=BANK, passive=OTHERS)
    known = TELCO.index.isin(LOANS[learning])
    cuts = [
        Cuts.of(held.astype(np.float32), 16)
        for held in (
            BANK[learning].to_numpy(),
            TELCO[known].to_numpy(),
            RETAIL[known].to_numpy(),
        )
    ]
    joined = Cuts(
        thresholds=tuple(column for owner in cuts for column in owner.thresholds),
        has_missing=np.concatenate([owner.has_missing for owner in cuts]),
    )
    bins = BinMatrix.of(values[learning], joined)
    reference = train_reference(bins, LABEL[learning], params)
    parity = compare(reference, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.identical == parity.total > 30
    owners = {owner for tree in model.share.trees for owner in tree.owner.tolist()}
    assert owners >= {0, 1, 2}  # people stand in several nodes, and are divided by all parties


def test_every_node_is_xgboosts_on_the_joined_rows(model: fedmq.SimulatedModel) -> None:
    assert_identical(model, np.ones(150, np.bool_))


@pytest.mark.long
def test_every_node_is_xgboosts_where_sums_are_hidden() -> None:
    held_out = LOANS.isin(PEOPLE[:6])
    model = trained(sums="hidden", evaluation=held_out)
    assert_identical(model, ~held_out)
    assert model.metrics.keys() == {"train-logloss", "eval-logloss"}


def test_each_row_has_a_score_of_its_own(model: fedmq.SimulatedModel) -> None:
    import xgboost

    scores = model.predict(active=BANK, passive=OTHERS)
    names = model.to_xgboost().feature_names
    joined = BANK.join(TELCO).join(RETAIL).to_numpy(np.float32)
    rows = xgboost.DMatrix(joined, feature_names=names)
    np.testing.assert_allclose(scores, model.to_xgboost().predict(rows), rtol=1e-6)


def test_passive_rows_may_be_in_any_order(model: fedmq.SimulatedModel) -> None:
    moved = {party: table.iloc[::-1] for party, table in OTHERS.items()}
    assert trained(passive=moved).share.dumps() == model.share.dumps()


def test_an_inner_join_leaves_out_people_that_a_party_lacks() -> None:
    fewer = {"telco": TELCO.iloc[4:], "retail": RETAIL}
    there = ~LOANS.isin(PEOPLE[:4])
    one = {"passive": fewer, "join": "inner", "params": {**PARAMS, "num_boost_round": 1}}
    alone = trained(active=BANK[there], label=LABEL[there], **one)
    assert trained(**one).share.dumps() == alone.share.dumps()


def opened(person: np.ndarray) -> dict[str, Any]:
    """What the active party says to others at the beginning, keys aside."""
    rows = len(person)
    table = ActiveTable(
        np.zeros((rows, 1), np.float32),
        ("amount",),
        np.arange(rows, dtype=np.float32) % 2,
        person == 1,
        person=person.astype(np.int32),
    )
    training = ActiveTraining(
        "m", "bank", ("telco",), table, TrainParams(), engine_named("lattice", {}, "test")
    )
    return training.terms.opening({}).model_dump()


def test_others_do_not_learn_how_many_rows_anybody_has() -> None:
    one = opened(np.array([0, 0, 0, 1, 2]))
    other = opened(np.array([2, 1, 1, 2, 0, 1, 1, 0, 2, 2]))
    assert one == other
    assert one["rows"] == 3


def of_two_halves(person: str) -> fedmq.SimulatedModel:
    """Everybody has one row, but of this person it is cut into two that count half."""
    rows = BANK[~LOANS.duplicated()]
    label = pd.Series(LABEL, LOANS)[~LOANS.duplicated()]
    half = rows.index == person
    return trained(
        active=pd.concat([rows, rows[half]]),
        label=pd.concat([label, label[half]]),
        weight=np.append(np.where(half, 0.5, 1), 0.5),
        params={**PARAMS, "num_boost_round": 1},
    )


def test_what_travels_does_not_tell_who_has_several_rows() -> None:
    first, second = of_two_halves("p07"), of_two_halves("p31")
    assert first.share.trees[0].record.tolist() == second.share.trees[0].record.tolist()
    assert sent(first) == sent(second)


def sent(model: fedmq.SimulatedModel) -> dict[Any, dict[str, Any]]:
    """By party and kind of message, in messages and bytes.

    A message is acknowledged on its own only if no answer takes the acknowledgement along in time.
    """
    return {
        pair: {kind: volume for kind, volume in kinds.items() if kind != "acknowledge"}
        for pair, kinds in model.traffic.items()
    }


def test_others_learn_how_many_bits_the_most_rows_of_anybody_take() -> None:
    bits = [opened(np.repeat([0, 1], [1, most]))["value_bits"] for most in (1, 2, 3, 4, 5, 9)]
    assert bits == [40, 41, 42, 42, 43, 44]


@pytest.mark.parametrize("engine", ["plain", "paillier"])
def test_engines_that_show_who_stands_in_a_node_are_refused(engine: str) -> None:
    with pytest.raises(ConfigError, match=f"engine {engine}: people have several rows.*lattice"):
        trained(engine=engine)


def test_rows_of_one_person_are_held_out_together() -> None:
    with pytest.raises(DataError, match="hold out all rows of a person, or none"):
        trained(evaluation=np.arange(150) < 30)


def test_nothing_is_matched_without_ids() -> None:
    with pytest.raises(ConfigError, match="the rows of telco have no ids to match people by"):
        trained(passive={**OTHERS, "telco": TELCO.reset_index(drop=True)})


def test_labels_stand_row_by_row() -> None:
    moved = pd.Series(LABEL, LOANS).sort_index()
    with pytest.raises(DataError, match="label: its index is another than that of active"):
        trained(label=moved)


def test_a_person_of_two_rows_at_another_party_is_refused() -> None:
    twice = pd.concat([TELCO, TELCO.iloc[:1]])
    with pytest.raises(DataError, match="telco: row 'p00' of its index is there more than once"):
        trained(passive={**OTHERS, "telco": twice})


def test_a_word_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"duplicates = 'first': use \"each\" or \"hidden\""):
        trained(duplicates="first")


def test_a_model_of_repeated_rows_is_not_continued(model: fedmq.SimulatedModel) -> None:
    with pytest.raises(ConfigError, match="continue_from: rows of one person"):
        trained(continue_from=model)
