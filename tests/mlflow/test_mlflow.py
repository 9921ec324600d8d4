"""Trainings by daemons in a real store of MLflow, up to the registry's model that serves."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.models import Model

import fedmq
from fedmq.cli.scores import activate
from fedmq.errors import DaemonError, DataError, UnknownModel
from fedmq.evaluation.card import card_of
from fedmq.party.card.signed_card import CardFile
from fedmq.party.configuration.online import DriftSection
from fedmq.party.store.documents import ModelStore, cards, delete_model, training_records
from fedmq.workbench.connection import Party
from tests.party.daemons_in_memory import DaemonsInMemory

# MLflow's own, about SQLAlchemy
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

PARAMS = {"num_boost_round": 3, "max_depth": 2, "max_bin": 8, "eval_metric": ["auc", "logloss"]}
IDS = [f"p{row:02}" for row in range(40)]
JOB: Any = {"engine": "plain", "alignment": "people"}


@pytest.fixture(params=["files", pytest.param("database", marks=pytest.mark.long)])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[mlflow.MlflowClient]:
    """A tracking store of this test's own; a database takes seconds until it has its tables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    places = {"files": tmp_path / "mlruns", "database": f"sqlite:///{tmp_path / 'mlflow.db'}"}
    mlflow.set_tracking_uri(places[request.param])
    mlflow.set_experiment(experiment_id="0")
    yield mlflow.MlflowClient()
    fedmq.mlflow.autolog(disable=True)
    mlflow.set_tracking_uri(None)


async def beside(federation: DaemonsInMemory, work: Callable[[Party], Any]) -> Any:
    def program() -> Any:
        bank = fedmq.connect(federation.folder / "bank" / "party.toml")
        if not (federation.folder / "bank" / "state" / "alignments").exists():
            bank.align("people")
        return work(bank)

    return await asyncio.to_thread(program)


@pytest.mark.long
async def test_a_training_becomes_a_run_and_its_model_is_served_from_the_registry(
    federation: DaemonsInMemory, store: mlflow.MlflowClient
) -> None:
    def program(bank: Party) -> None:
        fedmq.mlflow.autolog(registered_model_name="credit")
        model = bank.train(PARAMS, model="first", evaluation=0.4, **JOB).wait()
        [run] = store.search_runs(["0"])
        assert run.info.run_name == "first"
        assert run.info.status == "FINISHED"
        given = run.data.params
        assert (given["max_depth"], given["eta"], given["engine"]) == ("2", "0.3", "plain")
        assert (given["alignment"], given["evaluation"]) == ("people", "0.4")
        assert run.data.tags["fedmq.model"] == "first"
        for name, values in model.evals_result["eval"].items():
            logged = store.get_metric_history(run.info.run_id, f"eval-{name}")
            assert {at.step: at.value for at in logged} == dict(enumerate(values))
        kept = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id))
        assert {path.name for path in kept.iterdir()} == {"card.json", "card.md", "share.json"}
        share = federation.folder / "bank" / "state" / "models" / "first.json"
        assert (kept / "share.json").read_text() == share.read_text()

        found = model.evaluate(samples=0)
        kept = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id))
        assert json.loads((kept / "report.json").read_text())["model"] == "first"
        assert "<svg" in (kept / "report.html").read_text()
        assert json.loads((kept / "card.json").read_text())["card"]["evaluation"]
        figures = store.get_run(run.info.run_id).data.metrics
        assert figures["report auc"] == found.metrics["auc"]
        assert not [path for path in kept.iterdir() if "p01" in path.read_text()]

        scorer = mlflow.pyfunc.load_model("models:/credit/1")
        frame = pd.DataFrame({"id": ["p01", "nobody"]}, index=[7, 8])
        scores = scorer.predict(frame)
        assert scores.index.tolist() == [7, 8]
        assert scores["score"][7] == model.predict(["p01"])[0]
        assert np.isnan(scores["score"][8])

        bank.train(PARAMS, model="second", **JOB).wait()
        store.set_registered_model_alias("credit", "champion", "2")
        chosen = fedmq.mlflow.load_model("models:/credit@champion")
        assert chosen.activate()["model"] == "second"

    await beside(federation, program)
    words = [str(federation.folder / "bank" / "party.toml"), "models:/credit/1"]
    await asyncio.to_thread(activate.main, words, standalone_mode=False)
    assert (await federation.ask("bank", "serving"))["models"]["production"]["model"] == "first"


async def test_an_active_run_is_used_and_left_open(
    federation: DaemonsInMemory, store: mlflow.MlflowClient
) -> None:
    def program(bank: Party) -> None:
        fedmq.mlflow.autolog(log_share=False, log_models=False)
        with mlflow.start_run() as run:
            bank.train(PARAMS, model="m", **JOB).wait()
            assert store.get_run(run.info.run_id).info.status == "RUNNING"
        curves = bank.cv({**PARAMS, "max_depth": 1}, nfold=2, **JOB).wait()
        folds, whole = store.search_runs(["0"])
        assert whole.data.metrics["train-auc"] > 0.5
        assert [item.path for item in store.list_artifacts(whole.info.run_id)] == [
            "card.json",
            "card.md",
        ]
        assert folds.data.params["nfold"] == "2"
        logged = store.get_metric_history(folds.info.run_id, "test-auc-mean")
        assert [at.value for at in logged] == curves["test-auc-mean"].tolist()

        fedmq.mlflow.autolog(disable=True)
        bank.train(PARAMS, model="quiet", **JOB).wait()
        assert len(store.search_runs(["0"])) == 2

    await beside(federation, program)


async def test_the_card_of_an_earlier_model_of_the_name_is_not_logged(
    federation: DaemonsInMemory, store: mlflow.MlflowClient
) -> None:
    state = federation.folder / "bank" / "state"

    def program(bank: Party) -> None:
        bank.train(PARAMS, model="m", **JOB).wait()
        share, record = ModelStore(state).active("m"), training_records(state).find("m")
        old = CardFile(card=card_of(share, "demo", record, None, {}, DriftSection()))
        cards(state).keep("m", old.model_dump_json())
        delete_model(state, "m")
        cards(state).keep("m", old.model_dump_json())  # as where a deletion was cut short
        fedmq.mlflow.autolog(log_share=False, log_models=False)
        try:
            bank.train(PARAMS, model="m", **JOB).wait()
        finally:
            fedmq.mlflow.autolog(disable=True)
        [run] = store.search_runs(["0"])
        kept = Path(store.download_artifacts(run.info.run_id, "card.json"))
        logged = json.loads(kept.read_text())["card"]
        assert logged["training"]["session"] == ModelStore(state).active("m").training
        assert logged["training"]["session"] != share.training

    await beside(federation, program)


async def test_a_training_that_fails_says_why_and_one_without_a_store_goes_on(
    federation: DaemonsInMemory, store: mlflow.MlflowClient, caplog: pytest.LogCaptureFixture
) -> None:
    def program(bank: Party) -> None:
        fedmq.mlflow.autolog()
        run = bank.train({**PARAMS, "num_boost_round": 500}, model="long", **JOB)
        run.cancel()
        with pytest.raises(fedmq.FedmqError, match="bank cancelled"):
            run.wait()
        [failed] = store.search_runs(["0"])
        assert failed.info.status == "FAILED"
        assert failed.data.tags["fedmq.error"].startswith("bank cancelled")
        mlflow.set_tracking_uri("databricks-of-nobody://nowhere")
        with caplog.at_level(logging.WARNING, "fedmq.mlflow"):
            assert bank.train(PARAMS, model="m", **JOB).wait().name == "m"
        assert "MLflow could not begin a run" in caplog.text

    await beside(federation, program)


async def test_a_model_that_the_party_has_no_more_is_refused(
    federation: DaemonsInMemory, store: mlflow.MlflowClient, tmp_path: Path
) -> None:
    def program(bank: Party) -> None:
        model = bank.train(PARAMS, model="m", **JOB).wait()
        uri = fedmq.mlflow.log_model(model).model_uri
        assert fedmq.mlflow.load_model(uri).name == "m"
        telco = federation.folder / "telco" / "party.toml"
        with pytest.raises(DataError, match="is a model of bank in demo, not of telco in demo"):
            fedmq.mlflow.load_model(uri, party=telco)
        with pytest.raises(DataError, match=r"there is no file .*away.toml of bank here; name it"):
            fedmq.mlflow.load_model(uri, party=tmp_path / "away.toml")
        own = fedmq.mlflow.log_model(fedmq.connect(telco).models["m"]).model_uri
        assert "records of this party" in repr(fedmq.mlflow.load_model(own))
        with pytest.raises(DaemonError, match="telco holds no label: ask the daemon of bank"):
            fedmq.mlflow.load_model(own).predict(IDS)
        share = federation.folder / "bank" / "state" / "models" / "m.json"
        text = share.read_text()
        share.write_text(text.replace('"base_score":0.', '"base_score":0.1', 1))
        with pytest.raises(DataError, match="bank has another model m now than the one that was"):
            fedmq.mlflow.load_model(uri)
        share.unlink()
        with pytest.raises(UnknownModel, match="model 'm' has no share here"):
            fedmq.mlflow.load_model(uri)
        with pytest.raises(DataError, match="models:/nothing/1: "):
            fedmq.mlflow.load_model("models:/nothing/1")
        Model().save(tmp_path / "MLmodel")
        with pytest.raises(DataError, match=r"is no model that fedmq\.mlflow has logged"):
            fedmq.mlflow.load_model(str(tmp_path))

    await beside(federation, program)


def test_without_mlflow_the_line_says_what_to_install() -> None:
    script = "import sys; sys.modules['mlflow'] = None; import fedmq; fedmq.mlflow"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == (
        "fedmq.errors.ConfigError: mlflow is not installed; run: pip install 'fedmq[mlflow]'"
    )
