"""Daemons cross-validate in one session: the figures of one process, and no model is left."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DaemonError, Refused
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.job import ByGroup, ByNewest, TrainingJob
from fedmq.party.data.loading import LoadActiveTable
from fedmq.protocol.training.terms import ActiveTable
from tests.cli.command import fedmq as command
from tests.party.daemons import ACTIVE, PARTIES, PASSIVE, ExampleFederation
from tests.party.daemons_in_memory import DaemonsInMemory

PARAMS = {"num_boost_round": 2, "max_depth": 2, "max_bin": 8, "eval_metric": ["logloss", "auc"]}


def features(table: Path) -> pd.DataFrame:
    columns = pd.read_csv(table, index_col="id").sort_index()
    return columns.drop(columns="label", errors="ignore")


def in_one_process(tables: dict[str, Path], folds: Path, **params: Any) -> dict[str, list[float]]:
    """By ``fedmq.cv``, with the folds that the daemon has kept."""
    fold = pd.read_csv(folds, index_col="id").sort_index()["fold"].to_numpy()
    label = pd.read_csv(tables[ACTIVE], index_col="id").sort_index()["label"]
    pairs = [
        (np.flatnonzero(fold != number), np.flatnonzero(fold == number))
        for number in range(fold.max() + 1)
    ]
    found: dict[str, list[float]] = fedmq.cv(
        active=features(tables[ACTIVE]),
        label=label,
        passive={party: features(table) for party, table in tables.items() if party != ACTIVE},
        params={**PARAMS, **params},
        folds=pairs,
        as_pandas=False,
    )
    return found


def test_the_daemons_have_the_figures_of_one_process_bit_for_bit(demo: ExampleFederation) -> None:
    """Over RabbitMQ, encrypted."""
    params = "\n".join(f"{name} = {json.dumps(value)}" for name, value in PARAMS.items())
    job = demo.job(
        'model = "crossed"\nsplit = "stratified"\n'
        'engine = "paillier"\n'
        "engine_options = { key_bits = 512, allow_weak_keys = true }\n"
        f"[params]\n{params}"
    )
    result = command("cv", job, "--nfold", "2", "--json").result
    kept = demo.state(ACTIVE) / "cross-validations"
    tables = {party: demo.table(party) for party in PARTIES}
    assert result["figures"] == in_one_process(tables, kept / "crossed-cv.folds.csv")
    assert json.loads((kept / "crossed-cv.json").read_text())["figures"] == result["figures"]
    assert (result["folds"], result["rounds"], result["epsilon_spent"]) == (2, 2, None)
    assert not any("crossed" in name for party in PARTIES for name in demo.models(party))
    for party in PASSIVE:
        assert not (demo.state(party) / "cross-validations").exists()


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    async with DaemonsInMemory(tmp_path, monkeypatch, "most_trees = 30\n") as daemons:
        yield daemons


def job(nfold: int = 3, **params: Any) -> dict[str, Any]:
    given = TrainParams(**{**PARAMS, **params})
    wanted = TrainingJob(model="m", engine="plain", nfold=nfold, params=given)
    return wanted.model_dump(mode="json")


async def cross_validated(federation: DaemonsInMemory, **wanted: Any) -> Any:
    return await federation.ask("bank", "train", job=job(**wanted))


async def test_it_stops_early_by_the_mean_and_leaves_only_figures(
    federation: DaemonsInMemory,
) -> None:
    stopping = {"num_boost_round": 10, "early_stopping_rounds": 2, "eta": 1.0}
    result = await cross_validated(federation, **stopping)
    tables = {party: federation.folder / party / "data.csv" for party in federation.models()}
    folds = federation.folder / "bank" / "state" / "cross-validations" / "m-cv.folds.csv"
    assert result["figures"] == in_one_process(tables, folds, **stopping)
    best = result["best_iteration"]
    assert len(result["figures"]["test-auc-mean"]) == best + 1
    assert result["rounds"] == best + 3 < 10
    assert federation.models() == {"bank": [], "telco": [], "retail": []}
    log = (federation.folder / "telco" / "state" / "audit.jsonl").read_text().splitlines()
    asked = next(entry for entry in map(json.loads, log) if entry["event"] == "asked")
    assert (asked["cross_validation"], asked["trees"]) == (3, 30)
    # Asked again, it is done again.
    assert (await cross_validated(federation, **stopping))["figures"] == result["figures"]


async def test_a_policy_counts_the_trees_of_all_folds(federation: DaemonsInMemory) -> None:
    with pytest.raises(DaemonError, match="train 33 trees, at most 30") as refused:
        await cross_validated(federation, num_boost_round=11)
    assert refused.value.exit_code == Refused.exit_code


async def test_a_crash_costs_no_more_than_a_tree(federation: DaemonsInMemory) -> None:
    params = {"num_boost_round": 10}
    calm = await cross_validated(federation, **params)
    saved, reached = itertools.count(), asyncio.Event()

    async def hold(_: str, __: str, message: str) -> bool:
        if "tree saved" in message and next(saved) == 15:
            reached.set()
        return False

    federation.hold = hold
    asking = asyncio.create_task(cross_validated(federation, **params))
    await asyncio.wait_for(reached.wait(), 20)
    session = next(iter(federation.daemons["bank"].parts.context.sessions.running))
    await federation.stop("bank")
    with pytest.raises(DaemonError):
        await asking
    await federation.start("bank")
    result = await federation.ask("bank", "follow", session=session, again=True)
    assert result["figures"] == calm["figures"]


async def test_it_continues_no_model(federation: DaemonsInMemory) -> None:
    await federation.train("first", trees=1)
    wanted = {**job(), "continue_from": "first"}
    with pytest.raises(DaemonError, match="a cross-validation continues no model"):
        await federation.ask("bank", "train", job=wanted)


# The folds


@pytest.fixture
def people(tmp_path: Path) -> Path:
    random = np.random.default_rng(2)
    lines = [
        f"p{row:03},{int(random.random() < 0.2)},{random.normal():.3f},h{row // 4}"
        for row in range(200)
    ]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["id,label,x,household", *lines]) + "\n")
    return path


async def test_fallback_models_are_refused_by_name_and_a_party_may_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch) as demo:
        with pytest.raises(DaemonError, match="--set fallback=false") as refused:
            await demo.ask("bank", "train", job={**job(), "fallback": True})
        assert refused.value.exit_code == ConfigError.exit_code
        for model, parties in (("both", None), ("one", ["retail"])):
            wanted = {**job(), "model": model, "parties": parties}
            await demo.ask("bank", "train", job=wanted)
    kept = tmp_path / "bank" / "state" / "cross-validations"
    both, one = [(kept / f"{model}-cv.folds.csv").read_text() for model in ("both", "one")]
    assert both == one


def folds_of(path: Path, nfold: int = 4, seed: int = 0, **settings: Any) -> ActiveTable:
    data = DataSection(path=path, id="id", label="label", ignore=("household",))
    params = TrainParams(seed=seed)
    load = LoadActiveTable(
        "bank", data, params, settings.pop("evaluation", 0.0), "", nfold=nfold, **settings
    )
    return load.run()


def test_each_row_is_scored_by_one_fold_and_learnt_from_by_the_others(people: Path) -> None:
    table = folds_of(people, evaluation=0.2)
    assert 20 < table.evaluation.sum() < 60
    scored = sum(fold.scored.astype(int) for fold in table.folds)
    assert (scored == ~table.evaluation).all()
    for fold in table.folds:
        assert (fold.learning == (~fold.scored & ~table.evaluation)).all()
    assert len(table.held_out_ids) == (~table.evaluation).sum()


def test_folds_are_stratified_or_keep_groups_together(people: Path) -> None:
    classes = folds_of(people, split="stratified")
    positive = [int(classes.label[fold.scored].sum()) for fold in classes.folds]
    assert max(positive) - min(positive) <= 1
    grouped = folds_of(people, split=ByGroup(group="household"))
    for fold in grouped.folds:
        households = fold.scored.reshape(50, 4)
        assert (households.all(axis=1) == households.any(axis=1)).all()


def test_who_knows_the_seed_does_not_know_the_folds(people: Path) -> None:
    """They are drawn by the labels as well: with other labels they are others."""
    before = folds_of(people)
    people.write_text(people.read_text().replace("p000,0", "p000,1").replace("p001,0", "p001,1"))
    after = folds_of(people)
    assert (before.label != after.label).any()
    assert (before.folds[0].scored != after.folds[0].scored).any()
    assert (folds_of(people).folds[0].scored == after.folds[0].scored).all()
    assert (folds_of(people, seed=1).folds[0].scored != after.folds[0].scored).any()


def test_folds_are_not_the_newest_rows(people: Path) -> None:
    with pytest.raises(ConfigError, match="newest is for evaluation"):
        folds_of(people, split=ByNewest(newest="x"))
