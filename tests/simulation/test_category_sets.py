"""Columns that are split by sets of categories: XGBoost's partitions, node by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.boosting.model.shown_model import shown
from fedmq.boosting.xgboost_comparison.parity import labelled
from fedmq.errors import ConfigError
from tests.how_often import seldom

pytestmark = pytest.mark.usefixtures("threads")

pytest.importorskip("xgboost")

ROWS = 400


def town_table(
    seed: int, towns: int = 14, missing: float = 0.1
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """The active party's columns, another party's, and labels that towns explain in part."""
    random = np.random.default_rng(seed)
    town, job = random.integers(0, towns, ROWS), random.integers(0, 3, ROWS)
    x, z = random.normal(size=(ROWS, 2)), random.normal(size=(ROWS, 2))
    signal = random.normal(size=towns)[town] + x[:, 0] * z[:, 0] + job / 2
    names = np.array([f"town {number:02d}" for number in range(towns)], object)[town]
    names[random.random(ROWS) < missing] = None
    jobs = np.array(["cook", "nurse", "smith"], object)[job]
    frame = pd.DataFrame({"x0": x[:, 0], "town": names, "job": jobs, "x1": x[:, 1]})
    label = (signal + random.normal(size=ROWS) / 2 > 0).astype(np.float64)
    return frame, z.astype(np.float32), label


BANK, TELCO, LABEL = town_table(1)
PARAMS = {"num_boost_round": 3, "max_depth": 4, "max_bin": 16, "max_cat_to_onehot": 4}


def trained(engine: str = "plain", **more: Any) -> fedmq.SimulatedModel:
    params = PARAMS | more
    return fedmq.simulate(
        active=BANK, label=LABEL, passive={"telco": TELCO}, params=params, engine=engine
    )


@pytest.fixture(scope="module")
def model() -> fedmq.SimulatedModel:
    return trained()


CASES: dict[str, dict[str, Any]] = {
    "as XGBoost has it": {},
    "few categories of a set": {"max_cat_threshold": 3},
    "all columns": {"max_cat_to_onehot": 1},
    "light sides": {"min_child_weight": 0.0, "lambda": 0.0, "gamma": 0.01},
    "by leaves": {"grow_policy": "lossguide", "max_leaves": 9},
    "bounded": {"alpha": 0.1, "max_delta_step": 0.5, "gamma": 0.01},
    "beside constraints": {
        "monotone_constraints": {"x0": 1, "telco.f0": -1},
        "interaction_constraints": [["town", "telco.f0"], ["x0", "job", "x1", "telco.*"]],
    },
}


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("missing", [0.1, *seldom(0.0)])
def test_every_node_is_xgboosts(case: str, missing: float) -> None:
    bank, telco, label = town_table(2, missing=missing)
    params = PARAMS | CASES[case]
    found = fedmq.compare_with_xgboost(
        active=bank, label=label, passive={"telco": telco}, params=params
    )
    assert found.first_difference is None
    assert found.identical == found.nodes > 20


def dealt_otherwise(
    bank: pd.DataFrame, telco: np.ndarray
) -> tuple[np.ndarray, dict[str, pd.DataFrame]]:
    """The columns of categories at the others."""
    others = pd.DataFrame(telco, columns=["z0", "z1"])
    return bank[["x0", "x1"]].to_numpy(), {
        "telco": pd.DataFrame({"z0": others["z0"], "town": bank["town"]}),
        "shop": pd.DataFrame({"job": bank["job"], "z1": others["z1"]}),
    }


@pytest.mark.parametrize("case", [name for name in CASES if name != "beside constraints"])
@pytest.mark.parametrize("missing", [0.1, *seldom(0.0)])
def test_every_node_is_xgboosts_where_others_hold_the_categories(case: str, missing: float) -> None:
    bank, telco, label = town_table(2, missing=missing)
    active, passive = dealt_otherwise(bank, telco)
    found = fedmq.compare_with_xgboost(
        active=active, label=label, passive=passive, params=PARAMS | CASES[case]
    )
    assert found.first_difference is None
    assert found.identical == found.nodes > 20


def test_constraints_hold_beside_sets_of_others() -> None:
    active, passive = dealt_otherwise(BANK, TELCO)
    constraints = {
        "monotone_constraints": {"f0": 1, "telco.z0": -1},
        "interaction_constraints": [["telco.town", "telco.z0"], ["f0", "f1", "shop.*"]],
    }
    found = fedmq.compare_with_xgboost(
        active=active, label=LABEL, passive=passive, params=PARAMS | constraints
    )
    assert found.first_difference is None
    assert found.identical == found.nodes > 20


def elsewhere(engine: str = "plain", **more: Any) -> fedmq.SimulatedModel:
    active, passive = dealt_otherwise(BANK, TELCO)
    short = {"key_bits": 512, "allow_weak_keys": True} if engine in ("ou", "paillier") else {}
    return fedmq.simulate(
        active=active,
        label=LABEL,
        passive=passive,
        params=PARAMS | {"num_boost_round": 1},
        engine=engine,
        engine_options=short,
        workers=1,
        **more,
    )


@pytest.fixture(scope="module")
def reference() -> fedmq.SimulatedModel:
    model = elsewhere()
    table = model.passive_shares["telco"].lookup_table
    assert max(map(len, table.category_sets)) > 1
    return model


@pytest.mark.parametrize("engine", ["lattice", *seldom("paillier", "ou", "smm1")])
def test_exact_engines_find_the_same_sets(engine: str, reference: fedmq.SimulatedModel) -> None:
    model = elsewhere(engine)
    assert model.share.dumps() == reference.share.dumps()
    for party, share in reference.passive_shares.items():
        assert model.passive_shares[party].dumps() == share.dumps()


def test_decoys_change_nothing(reference: fedmq.SimulatedModel) -> None:
    assert elsewhere(decoys=True).share.dumps() == reference.share.dumps()


def test_of_two_columns_alike_the_first_splits() -> None:
    """A tie between sets, of which the active party does not know whose column comes first."""
    bank, telco, label = town_table(5)
    active, passive = dealt_otherwise(bank, telco)
    twice = passive["telco"].assign(again=bank["town"], numbered=bank["town"].notna() * 1.0)
    found = fedmq.compare_with_xgboost(
        active=active, label=label, passive={"telco": twice}, params=PARAMS
    )
    assert found.first_difference is None
    assert found.identical == found.nodes > 20


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("order", [["kind", "level"], ["level", "kind"]], ids="-".join)
def test_a_set_that_parts_rows_as_a_monotone_column_bounds_no_leaf(
    order: list[str], sign: int
) -> None:
    """No sum says which of both splits; below a split by a set leaves have no bounds."""
    random = np.random.default_rng(4)
    upper, own = random.random(ROWS) < 0.5, random.integers(0, 2, ROWS)
    telco = pd.DataFrame({"kind": np.where(upper, "a", "b"), "level": sign * upper})
    # In the middle of each side stands what lies beyond the mean of both.
    label = np.where(upper, 1.0, -1.0) + np.where(own == 1, 1.6, -1.6) * np.where(upper, -1, 1)
    found = fedmq.compare_with_xgboost(
        active=own[:, np.newaxis].astype(np.float32),
        label=label + random.normal(size=ROWS) / 9,
        passive={"telco": telco[order]},
        params={
            "objective": "reg:squarederror",
            "num_boost_round": 1,
            "max_depth": 2,
            "gamma": 0.01,
            "max_cat_to_onehot": 1,
            "monotone_constraints": {"telco.level": sign},
            "eta": 1.0,
        },
    )
    assert found.first_difference is None
    assert found.identical == found.nodes == 7


def test_cells_of_few_rows_hide_a_column_of_categories(reference: fedmq.SimulatedModel) -> None:
    few = elsewhere(smallest_cell=60)  # no town has so many rows
    assert not few.passive_shares["telco"].lookup_table.category_sets
    some = elsewhere(smallest_cell=5)
    assert some.passive_shares["telco"].lookup_table.category_sets
    assert "telco merged cells of fewer than 5 rows" in some.departures


def test_a_recording_by_sets_is_not_attacked_as_if_there_were_cuts(tmp_path: Path) -> None:
    elsewhere(record=tmp_path)
    with pytest.raises(ConfigError, match="were split by sets of categories"):
        fedmq.audit(tmp_path / "active.recording", passive={"telco": TELCO})


def test_few_categories_are_split_from_the_others(model: fedmq.SimulatedModel) -> None:
    table = model.share.lookup_table
    assert tuple(table.category_columns) == ("town",)
    split = [features for features in table.category_sets if features]
    assert max(map(len, split)) > 1
    assert tuple(table.columns) == ("x0", "town", "job=cook", "job=nurse", "job=smith", "x1")


def test_another_model_comes_of_categories_one_by_one(model: fedmq.SimulatedModel) -> None:
    alone = fedmq.simulate(
        active=BANK,
        label=LABEL,
        passive={"telco": TELCO},
        params={name: value for name, value in PARAMS.items() if name != "max_cat_to_onehot"},
        engine="plain",
    )
    assert not alone.share.lookup_table.category_sets
    assert "category" not in alone.share.dumps()
    assert model.metrics["train-logloss"] < alone.metrics["train-logloss"]


def the_same_in_xgboost(model: fedmq.SimulatedModel, given: dict[str, Any]) -> tuple[Any, Any]:
    """The model as a booster, and the rows ``given``, which it scores as the model does."""
    booster = model.to_xgboost()
    values = model.joined_values(**given)
    rows = labelled(values, LABEL.astype(np.float32), types=booster.feature_types)
    rows.feature_names = booster.feature_names
    ours = model.predict(**given, output_margin=True)
    np.testing.assert_array_equal(booster.predict(rows, output_margin=True), ours)
    return booster, rows


def test_the_booster_scores_and_explains_alike(model: fedmq.SimulatedModel) -> None:
    bank = BANK.copy()
    bank.loc[:20, "town"] = "nowhere"  # no training row has it: it goes left
    given: dict[str, Any] = {"active": bank, "passive": {"telco": TELCO}}
    booster, rows = the_same_in_xgboost(model, given)
    explained = booster.predict(rows, pred_contribs=True)
    np.testing.assert_allclose(
        model.predict(**given, pred_contribs=True), explained, rtol=1e-5, atol=1e-6
    )
    assert booster.get_score(importance_type="gain") == model.get_score("gain")


def test_trees_of_sets_follow_trees_of_single_categories() -> None:
    first = fedmq.simulate(
        active=BANK,
        label=LABEL,
        passive={"telco": TELCO},
        params={"num_boost_round": 2, "max_depth": 4},
        engine="plain",
    )
    model = fedmq.simulate(
        active=BANK,
        label=LABEL,
        passive={"telco": TELCO},
        params=PARAMS,
        engine="plain",
        continue_from=first,
    )
    the_same_in_xgboost(model, {"active": BANK, "passive": {"telco": TELCO}})


def test_a_saved_model_keeps_its_sets(model: fedmq.SimulatedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.json")
    again = fedmq.SimulatedModel.load(tmp_path / "model.json")
    assert again.share.dumps() == model.share.dumps()
    given: dict[str, Any] = {"active": BANK, "passive": {"telco": TELCO}}
    np.testing.assert_array_equal(again.predict(**given), model.predict(**given))


def test_an_owner_reads_which_categories_go_right(model: fedmq.SimulatedModel) -> None:
    splits = shown(model.share)["own_splits"]
    assert any(split.startswith("town not in {town ") for split in splits)


@pytest.mark.parametrize("engine", ["smm2", "ldp"])
def test_engines_that_hide_sums_refuse_them(engine: str) -> None:
    with pytest.raises(ConfigError, match=f"engine {engine}: max_cat_to_onehot: "):
        trained(engine)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"monotone_constraints": {"town=town 03": 1}}, "monotone_constraints: 'town' of active"),
        (
            {"interaction_constraints": [["town=town 03", "x0"]]},
            "interaction_constraints: 'town' of active",
        ),
        (
            {
                "objective": "multi:softprob",
                "num_class": 2,
                "multi_strategy": "multi_output_tree",
            },
            "max_cat_to_onehot: neither XGBoost nor fedmq",
        ),
        (
            {"max_cat_to_onehot": None, "max_cat_threshold": 3},
            "max_cat_threshold: no column is split",
        ),
    ],
    ids=["monotone", "interactions", "vectors", "threshold alone"],
)
def test_what_sets_cannot_keep_is_refused(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        trained(**more)


def test_a_column_is_drawn_as_one() -> None:
    drawn = trained(colsample_bytree=0.3, num_boost_round=8)
    used = [
        {int(tree.feature[node]) for node in np.flatnonzero(~tree.tree.is_leaf).tolist()}
        for tree in drawn.joined_trees()
    ]
    own = len(drawn.columns["active"])
    assert all(sum(column < own for column in columns) <= 1 for columns in used)
    assert {1, *range(1)} & set().union(*used)
