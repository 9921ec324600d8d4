"""A job that refreshes a model: splits stay, and leaves are those of XGBoost's update."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.errors import DaemonError
from fedmq.evaluation.card import card_of
from fedmq.party.card.model_card import canonical, card_in
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.online import DriftSection
from fedmq.party.consent.terms import asked_in_words, terms_in_words
from fedmq.party.store.documents import held_out_rows, training_records
from tests.how_often import seldom, seldom_several
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

pandas = pytest.importorskip("pandas")
xgboost = pytest.importorskip("xgboost")

OLD = {"num_boost_round": 3, "max_depth": 3, "max_bin": 8, "eta": 0.2}
NEW = {
    "eta": 0.6,
    "reg_lambda": 2.5,
    "reg_alpha": 0.1,
    "max_delta_step": 0.7,
    "min_child_weight": 0.5,
}


def job(model: str, params: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    engine = {} if "engine" in wanted else {"engine": "plain"}
    made = TrainingJob.model_validate({"model": model, "params": params, **engine, **wanted})
    return made.model_dump(mode="json")


def table(folder: Path, party: str) -> Any:
    """The columns of ``party`` by name, with the bank's label among them."""
    return pandas.read_csv(folder / party / "data.csv", index_col="id").astype(np.float32)


def joint(federation: DaemonsInMemory, model: str) -> fedmq.SimulatedModel:
    bank, *others = (federation.daemons[party].parts.context.model_store for party in PARTIES)
    shares = [store.passive(model) for store in others]
    return fedmq.SimulatedModel(bank.active(model), shares, None)


def trees_of(booster: Any) -> list[dict[str, Any]]:
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    return list(model["trees"])


def updated(
    old: fedmq.SimulatedModel, values: dict[str, Any], learning: Any, **params: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """XGBoost's own update of ``old`` on the joined rows: its trees, and its curves."""
    booster = old.to_xgboost()
    passive = {party: values[party] for party in PARTIES[1:]}
    joined = old.joined_values(active=values["bank"].drop(columns="label"), passive=passive)
    label = values["bank"]["label"].to_numpy()
    rows, held_out = (
        xgboost.DMatrix(joined[chosen], label[chosen], feature_names=booster.feature_names)
        for chosen in (learning, ~learning)
    )
    update = {
        "process_type": "update",
        "updater": "refresh",
        "refresh_leaf": 1,
        "verbosity": 0,
        "objective": "binary:logistic",
        "eval_metric": "logloss",
        **params,
    }
    curves: dict[str, Any] = {}
    found = xgboost.train(
        update,
        rows,
        OLD["num_boost_round"],
        xgb_model=booster,
        evals=[(held_out, "eval")] if len(held_out.get_label()) else [],
        evals_result=curves,
        verbose_eval=False,
    )
    return trees_of(found), curves


def assert_alike(found: fedmq.SimulatedModel, expected: list[dict[str, Any]]) -> None:
    ours = trees_of(found.to_xgboost())
    assert len(ours) == len(expected)
    for tree, wanted in zip(ours, expected, strict=True):
        for name in ("left_children", "right_children", "split_indices"):
            assert tree[name] == wanted[name]
        for name in ("split_conditions", "sum_hessian", "loss_changes"):
            np.testing.assert_allclose(tree[name], wanted[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("params", [{}, NEW], ids=["as before", "other parameters of leaves"])
async def test_every_node_is_that_of_xgboosts_update(
    federation: DaemonsInMemory, params: dict[str, Any]
) -> None:
    await federation.ask("bank", "train", job=job("winter", OLD))
    for party in PARTIES:
        federation.write_table(party, seed=7)
    result = await federation.ask("bank", "train", job=job("spring", params, refresh="winter"))
    assert (result["trees"], result["departures"]) == (3, [])
    winter, spring = joint(federation, "winter"), joint(federation, "spring")
    values = {party: table(federation.folder, party) for party in PARTIES}
    expected, _ = updated(winter, values, np.ones(40, np.bool_), **{"eta": OLD["eta"], **params})
    assert_alike(spring, expected)
    assert any(
        not np.array_equal(old.weight, new.weight)
        for old, new in zip(winter.share.trees, spring.share.trees, strict=True)
    )
    assert spring.share.params == winter.share.params.model_copy(update=params)
    for party in PARTIES[1:]:
        before, after = winter.passive_shares[party], spring.passive_shares[party]
        assert after.places == before.places
        assert after.lookup_table.model_dump_json() == before.lookup_table.model_dump_json()
        assert (after.model_id, after.training) == ("spring", spring.share.training)


@pytest.mark.parametrize(
    ("objective", "said", "leaves"),
    [
        ("reg:absoluteerror", {}, True),
        ("binary:logistic", {"refresh_leaf": False}, False),
        *seldom_several(("binary:logistic", {"params": {"refresh_leaf": 0}}, False)),
    ],
    ids=str,
)
async def test_quantiles_and_leaves_that_stay_are_those_of_xgboosts_update(
    federation: DaemonsInMemory, objective: str, said: dict[str, Any], leaves: bool
) -> None:
    await federation.ask("bank", "train", job=job("winter", {**OLD, "objective": objective}))
    for party in PARTIES:
        federation.write_table(party, seed=7)
    wanted = job("spring", said.get("params", {}), refresh="winter") | {
        key: value for key, value in said.items() if key != "params"
    }
    await federation.ask("bank", "train", job=wanted)
    winter, spring = joint(federation, "winter"), joint(federation, "spring")
    values = {party: table(federation.folder, party) for party in PARTIES}
    of_update = {"objective": objective, "refresh_leaf": int(leaves), "eta": OLD["eta"]}
    if objective != "binary:logistic":
        of_update["eval_metric"] = "mae"
    expected, _ = updated(winter, values, np.ones(40, np.bool_), **of_update)
    assert_alike(spring, expected)
    pairs = zip(winter.share.trees, spring.share.trees, strict=True)
    assert all(np.array_equal(old.weight, new.weight) for old, new in pairs) is not leaves


async def test_rows_that_are_held_out_are_scored_and_not_learned_from(
    federation: DaemonsInMemory,
) -> None:
    await federation.ask("bank", "train", job=job("winter", OLD))
    for party in PARTIES:
        federation.write_table(party, seed=7)
    wanted = job("spring", {}, refresh="winter", evaluation=0.3)
    result = await federation.ask("bank", "train", job=wanted)
    state = federation.folder / "bank" / "state"
    kept = held_out_rows(state).find("spring")
    assert kept is not None
    held_out = set(kept.ids)
    learning = np.array([f"p{row:02}" not in held_out for row in range(40)])
    assert 0 < (~learning).sum() < 40
    values = {party: table(federation.folder, party) for party in PARTIES}
    winter, spring = joint(federation, "winter"), joint(federation, "spring")
    expected, curves = updated(winter, values, learning, eta=OLD["eta"])
    assert_alike(spring, expected)
    assert spring.share.history["eval-logloss"] == pytest.approx(
        curves["eval"]["logloss"], rel=1e-6
    )
    assert result["metrics"]["eval-logloss"] == spring.share.history["eval-logloss"][-1]


async def test_a_refreshed_model_serves_names_its_origin_and_is_refreshed_again(
    federation: DaemonsInMemory,
) -> None:
    await federation.ask("bank", "train", job=job("winter", OLD))
    for party in PARTIES:
        federation.write_table(party, seed=7)
    await federation.ask("bank", "train", job=job("spring", {"eta": 0.5}, refresh="winter"))
    await federation.ask("bank", "train", job=job("summer", {}, refresh="spring"))
    spring, summer = joint(federation, "spring"), joint(federation, "summer")
    assert (spring.share.refreshes, summer.share.refreshes) == ("winter", "spring")
    assert [tree.model_dump_json() for tree in spring.share.trees] == [
        tree.model_dump_json()
        for tree in summer.share.trees  # of the same rows and parameters
    ]
    await federation.ask("bank", "train", job=job("autumn", OLD, continue_from="summer"))
    assert len(joint(federation, "autumn").share.trees) == 6
    await federation.ask("bank", "activate", model="spring", name="credit", mode="hop")
    found = await federation.ask("bank", "predict", model="credit", ids=["p01", "p02"])
    values = {party: table(federation.folder, party)[1:3] for party in PARTIES}
    passive = {party: values[party] for party in PARTIES[1:]}
    own = values["bank"].drop(columns="label")
    booster = spring.to_xgboost()
    rows = xgboost.DMatrix(
        spring.joined_values(active=own, passive=passive), feature_names=booster.feature_names
    )
    expected = booster.predict(rows)
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-6)
    state = federation.folder / "bank" / "state"
    record = training_records(state).find("spring")
    assert record is not None and record.job.refresh == "winter"
    card = card_of(spring.share, "demo", record, None, {}, DriftSection())
    assert card.refreshes == "winter"
    assert card_in(canonical(card)) == card


@pytest.mark.parametrize(
    ("params", "wanted", "text"),
    [
        ({"max_depth": 4}, {}, "refresh: max_depth = 4, model 'winter' has 3, and keeps it"),
        ({"objective": "reg:squarederror"}, {}, "objective = 'reg:squarederror', model 'winter'"),
        ({"early_stopping_rounds": 2}, {}, "all trees are refreshed; leave it out"),
        ({}, {"parties": ["telco"]}, "retail holds a share of model 'winter', and takes no part"),
        ({}, {"refresh": "nothing"}, "model 'nothing' has no share here"),
        ({}, {"nfold": 3}, "a cross-validation refreshes no model"),
    ],
    ids=str,
)
async def test_what_would_be_another_model_is_refused_at_once(
    federation: DaemonsInMemory, params: dict[str, Any], wanted: dict[str, Any], text: str
) -> None:
    await federation.ask("bank", "train", job=job("winter", OLD))
    with pytest.raises(DaemonError, match=text):
        await federation.ask(
            "bank", "train", job=job("m", params, **{"refresh": "winter"} | wanted)
        )
    assert not (federation.folder / "bank" / "state" / "models" / "m.json").exists()


def test_leaves_stay_where_a_model_is_refreshed_alone() -> None:
    with pytest.raises(ValueError, match="refresh_leaf: no model is refreshed; name it by refresh"):
        job("spring", {}, refresh_leaf=False)


async def test_a_party_that_lost_its_share_refuses(federation: DaemonsInMemory) -> None:
    await federation.ask("bank", "train", job=job("winter", OLD))
    federation.daemons["telco"].parts.context.model_store.path("winter").unlink()
    with pytest.raises(DaemonError, match="telco has no share of model 'winter'"):
        await federation.ask("bank", "train", job=job("spring", {}, refresh="winter"))


async def test_what_the_model_keeps_may_be_said_again(federation: DaemonsInMemory) -> None:
    await federation.ask("bank", "train", job=job("winter", OLD))
    same = {**OLD, "process_type": "update", "updater": "refresh", "refresh_leaf": True}
    await federation.ask("bank", "train", job=job("same", same, refresh="winter"))
    winter, found = joint(federation, "winter"), joint(federation, "same")
    for old, new in zip(winter.share.trees, found.share.trees, strict=True):
        assert np.array_equal(old.weight, new.weight)  # the same rows


WEAK = {"key_bits": 512, "allow_weak_keys": True}


async def waiting(federation: DaemonsInMemory, party: str, model: str) -> Any:
    """What the owner of ``party`` is asked about ``model``, once it is."""
    asked = await federation.ask(party, "inbox")
    return next((one for one in asked if one["name"] == model), None)


async def test_an_owner_is_told_that_leaves_are_weighed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch, 'consent = "ask"\n') as demo:
        for wanted in (job("winter", OLD), job("spring", {}, refresh="winter")):
            training = asyncio.create_task(demo.ask("bank", "train", job=wanted))
            for party in PARTIES[1:]:
                asked = await demo.until(partial(waiting, demo, party, wanted["model"]))
                await demo.ask(party, "approve", request=asked["request"], by="ann", diff=None)
            await training
    assert asked_in_words(asked) == (
        "bank asks to weigh the leaves of model winter anew, as spring, on 40 people"
    )
    words = dict(terms_in_words(asked))
    assert words["refreshes"] == "model winter, 3 trees"
    assert words.keys().isdisjoint({"trees", "continues"})
    assert asked["terms"]["particulars"] == ["refreshes a model"]


async def test_a_refresh_outlives_a_crash_while_rows_walk(
    federation: DaemonsInMemory,
) -> None:
    await federation.ask("bank", "train", job=job("winter", OLD))
    walking = asyncio.Event()

    async def lose(sender: str, _: str, message: str) -> bool:
        if sender == "bank" and "inference hop" in message:
            walking.set()
        return walking.is_set()

    hold, federation.hold = federation.hold, lose
    training = asyncio.create_task(
        federation.ask("bank", "train", job=job("spring", NEW, refresh="winter"))
    )
    await asyncio.wait_for(walking.wait(), 60)
    await federation.stop("bank")
    training.cancel()
    federation.hold = hold
    await federation.start("bank")
    store = federation.daemons["bank"].parts.context.model_store

    async def there() -> bool:
        return store.path("spring").exists()

    assert await federation.until(there)
    await federation.ask("bank", "train", job=job("again", NEW, refresh="winter"))
    found, again = joint(federation, "spring"), joint(federation, "again")
    assert [tree.model_dump_json() for tree in found.share.trees] == [
        tree.model_dump_json() for tree in again.share.trees
    ]


HIDDEN = {"sums": "hidden"}
OPTIONS: dict[str, dict[str, Any]] = {"lattice": HIDDEN, "ou": WEAK, "paillier": WEAK}


@pytest.mark.parametrize("engine", ["lattice", *seldom("ou", "paillier")])
async def test_engines_refresh_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    options = OPTIONS[engine]
    settings = "least_key_bits = 512\n" if options is WEAK else ""
    engines = ("plain", engine)
    async with DaemonsInMemory(tmp_path, monkeypatch, settings, engines=engines) as federation:
        await federation.ask("bank", "train", job=job("winter", OLD))
        for party in PARTIES:
            federation.write_table(party, seed=7)
        await federation.ask("bank", "train", job=job("plain", NEW, refresh="winter"))
        wanted = job("other", NEW, refresh="winter", engine=engine, engine_options=options)
        await federation.ask("bank", "train", job=wanted)
        plain, other = joint(federation, "plain"), joint(federation, "other")
        for one, same in zip(plain.share.trees, other.share.trees, strict=True):
            assert one.model_dump_json() == same.model_dump_json()
