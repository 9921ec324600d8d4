"""Categories where no party sees a sum: sets, and single categories, as XGBoost's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.parity import (
    compare,
    installed_arithmetic,
    joined_bins,
    train_reference,
)
from fedmq.errors import FedmqError
from tests.how_often import seldom
from tests.simulation.test_category_sets import PARAMS, town_table

ROWS = 150
SMALL = PARAMS | {"num_boost_round": 1, "max_depth": 2, "max_bin": 4}
BANK, TELCO, LABEL = (table[:ROWS] for table in town_table(1))


def hidden(
    engine: str = "ou", covert: int = 1, more: dict[str, Any] | None = None, **given: Any
) -> fedmq.SimulatedModel:
    """A tree whose passive columns' sums nobody sees; without circuits if the engine is plain."""
    short = {"key_bits": 576, "allow_weak_keys": True} if engine in ("ou", "paillier") else {}
    hiding = {"sums": "hidden", "covert": covert}
    own = {"active": BANK, "passive": {"telco": TELCO}} | given
    return fedmq.simulate(
        **own,
        label=LABEL,
        params=SMALL | (more or {}),
        engine=engine,
        engine_options=hiding | short if engine != "plain" else None,
        workers=1,
    )


@pytest.mark.parametrize("engine", ["ou", *seldom("lattice")])
def test_own_columns_are_split_by_sets_where_sums_of_others_are_hidden(engine: str) -> None:
    model, plain = hidden(engine), hidden("plain")
    assert any(plain.share.lookup_table.category_sets)
    assert model.share.dumps() == plain.share.dumps()
    assert model.passive_shares["telco"].dumps() == plain.passive_shares["telco"].dumps()


def test_few_categories_of_others_are_split_from_the_others_where_sums_are_hidden() -> None:
    given = {"active": TELCO, "passive": {"telco": BANK[["job", "x1"]]}}
    model, plain = hidden(**given), hidden("plain", **given)
    table = plain.passive_shares["telco"].lookup_table
    assert any(name.startswith("job=") for name in table.columns)
    assert model.share.dumps() == plain.share.dumps()
    assert model.passive_shares["telco"].dumps() == plain.passive_shares["telco"].dumps()


@pytest.mark.parametrize("covert", [1, *seldom(2)])
def test_sets_and_single_categories_meet_in_a_chain(covert: int) -> None:
    others = BANK[["job"]].assign(z1=TELCO[:, 1])
    passive = {"telco": TELCO[:, :1], "shop": others}
    model, plain = hidden(covert=covert, passive=passive), hidden("plain", passive=passive)
    assert any(plain.share.lookup_table.category_sets)
    assert model.share.dumps() == plain.share.dumps()
    for party, share in plain.passive_shares.items():
        assert model.passive_shares[party].dumps() == share.dumps()


@pytest.mark.parametrize("engine", ["ou", *seldom("lattice", "paillier")])
@pytest.mark.parametrize(
    "more",
    [
        {},
        *seldom(
            {"max_cat_threshold": 3},
            {"xgboost_arithmetic": "3.4"},
            {"colsample_bynode": 0.5, "num_boost_round": 3, "max_depth": 3},
            {"interaction_constraints": [["telco.town", "telco.x0"], ["f0", "f1"]]},
            {"monotone_constraints": {"telco.x0": 1}, "alpha": 0.1, "max_delta_step": 0.5},
            {"objective": "reg:squarederror"},
        ),
    ],
    ids=str,
)
def test_others_columns_are_split_by_sets_of_which_nobody_else_learns(
    engine: str, more: dict[str, Any]
) -> None:
    given = {"active": TELCO, "passive": {"telco": BANK[["x0", "town"]]}, "more": more}
    model, plain = hidden(engine, **given), hidden("plain", **given)
    assert any(plain.passive_shares["telco"].lookup_table.category_sets)
    assert model.share.dumps() == plain.share.dumps()
    assert model.passive_shares["telco"].dumps() == plain.passive_shares["telco"].dumps()


@pytest.mark.long
def test_a_threshold_of_one_category_leaves_no_set() -> None:
    """Of a party with such a column alone nothing competes."""
    given = {
        "active": TELCO,
        "passive": {"telco": BANK[["town"]]},
        "more": {"max_cat_threshold": 1},
    }
    model, plain = hidden(**given), hidden("plain", **given)
    assert not len(plain.passive_shares["telco"].lookup_table)
    assert model.share.dumps() == plain.share.dumps()


@pytest.mark.long
def test_every_node_is_xgboosts_where_circuits_sort_categories() -> None:
    passive = {"telco": BANK[["x0", "town"]], "shop": BANK[["job"]]}
    more = {"max_depth": 4, "xgboost_arithmetic": installed_arithmetic()}
    model = hidden(active=TELCO, passive=passive, more=more)
    values = model.joined_values(active=TELCO, passive=passive)
    types, every = model.to_xgboost().feature_types, np.ones(ROWS, np.bool_)
    params = TrainParams.parse(SMALL | more, "params")
    own = len(model.share.lookup_table.columns)
    bins = joined_bins(values, every, params.max_bin, types or (), {}, None, own)
    reference = train_reference(bins, LABEL.astype(np.float32), params)
    found = compare(reference, model.joined_trees(), bins)
    assert found.first_difference is None
    assert found.identical == found.total > 10
    assert any(model.passive_shares["telco"].lookup_table.category_sets)


def test_nodes_of_other_candidates_are_compared_apart() -> None:
    """With ``smallest_cell`` a node may show fewer cuts than others, and no categories."""
    given = {"active": TELCO, "passive": {"telco": BANK[["x0", "x1", "town"]]}}
    given |= {"smallest_cell": 5, "more": {"max_depth": 3}}
    model, plain = hidden(**given), hidden("plain", **given)
    assert len(plain.passive_shares["telco"].lookup_table)
    assert model.share.dumps() == plain.share.dumps()
    assert model.passive_shares["telco"].dumps() == plain.passive_shares["telco"].dumps()


@pytest.mark.long
def test_sets_of_several_parties_meet_in_a_chain() -> None:
    towns = BANK[["town"]].assign(z1=TELCO[:, 1])
    jobs = BANK[["job", "x1"]].assign(town=BANK["town"].str[-1:])
    given = {"active": TELCO[:, :1], "passive": {"telco": towns, "shop": jobs}}
    model, plain = hidden(**given), hidden("plain", **given)
    assert any(any(s.lookup_table.category_sets) for s in plain.passive_shares.values())
    assert model.share.dumps() == plain.share.dumps()
    for party, share in plain.passive_shares.items():
        assert model.passive_shares[party].dumps() == share.dumps()


def test_copies_of_circuits_refuse_sets_of_others_columns_without_a_columns_name() -> None:
    """Whose column it is, not which one, and not how many categories it has."""
    with pytest.raises(FedmqError) as refused:
        hidden(covert=2, active=TELCO, passive={"telco": BANK[["town", "x1"]]})
    why = str(refused.value)
    assert "telco has a column that max_cat_to_onehot splits by sets of categories: copies" in why
    assert "leave category_sets out" in why
    assert "town" not in why
    assert "14" not in why
