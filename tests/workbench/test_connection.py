"""A program drives daemons: from tables to scores, with the words and errors of the commands."""

from __future__ import annotations

import asyncio
import time
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.errors import ConfigError, DaemonAway, DaemonError, DataError, PeerSilent
from fedmq.party.configuration.job import ScreenJob, TrainingJob
from fedmq.workbench.connection import Party
from fedmq.workbench.sessions import JobKeys, ScreenKeys
from tests.cli.command import fedmq as command
from tests.party.daemons_in_memory import DaemonsInMemory

PARAMS = {"num_boost_round": 3, "max_depth": 2, "max_bin": 8, "eval_metric": ["auc", "logloss"]}
IDS = [f"p{row:02}" for row in range(40)]


def bank_of(federation: DaemonsInMemory) -> Party:
    return fedmq.connect(federation.folder / "bank" / "party.toml")


async def beside(federation: DaemonsInMemory, work: Callable[[Party], Any]) -> Any:
    """What a program in its own thread gets while the daemons run in this one."""
    return await asyncio.to_thread(lambda: work(bank_of(federation)))


async def test_a_program_goes_from_tables_to_scores(federation: DaemonsInMemory) -> None:
    def program(bank: Party) -> None:
        with bank:
            assert bank.align("people")["rows"] == 40
            run = bank.train(
                PARAMS, engine="plain", model="credit", alignment="people", evaluation=0.4
            )
            model = run.wait()
            assert (run.done, run.model, run.progress.done) == (True, "credit", 3)
            assert run.result["trees"] == 3
            assert model.metrics == run.result["metrics"]
            assert "<svg" in run._repr_html_()
            assert list(bank.models) == ["credit"]
            assert bank.models.newest.evals_result["eval"]["auc"][-1] == model.metrics["eval-auc"]
            scores = model.predict(pd.Series(["p01", "p00", "nobody"]))
            assert np.isnan(scores[2])
            assert model.predict(IDS)[:2].tolist() == scores[[1, 0]].tolist()
            reasons = model.explain(IDS)
            margins = model.predict(IDS, output_margin=True)
            np.testing.assert_allclose(reasons.sum(axis=1), margins, rtol=1e-5, atol=1e-6)
            evaluation = model.evaluate(samples=0)
            assert evaluation.metrics["auc"] == pytest.approx(model.metrics["eval-auc"])
            assert "&lt;h1&gt;credit&lt;/h1&gt;" in evaluation._repr_html_()
            columns = model.importance("weight")
            assert list(columns) == ["party", "column", "weight"]
            assert columns["weight"].sum() > 3
            assert bank.status()["models"] == 1
            assert "<th>party</th><td>bank, active in demo</td>" in bank._repr_html_()
            assert repr(bank.models["credit"]).startswith("<PartyModel credit: 3 trees, ")
            curves = bank.cv(PARAMS, nfold=2, engine="plain").wait()
            assert len(curves) == 3
            assert "test-auc-mean" in curves

    await beside(federation, program)


async def test_it_prints_what_the_commands_print(federation: DaemonsInMemory) -> None:
    await federation.train("m", 2)
    bank = federation.folder / "bank" / "party.toml"
    shown = await asyncio.to_thread(command, "models", "importance", bank, "--json")
    found = await beside(federation, lambda bank: bank.models["m"].importance())
    assert [row["gain"] for row in shown.result["columns"]] == found["gain"].tolist()
    shown = await asyncio.to_thread(command, "models", "show", bank, "--json")
    assert shown.result == await beside(federation, lambda bank: bank.models["m"].shown())


async def test_a_job_file_gives_what_is_not_named(federation: DaemonsInMemory) -> None:
    job = federation.folder / "bank" / "train.toml"
    job.write_text(
        'model = "m"\nengine = "plain"\n[params]\nnum_boost_round = 2\nlearning_rate = 0.3\n'
    )

    def program(bank: Party) -> None:
        run = bank.train({"eta": 0.1, "max_depth": 2}, job=job, model="other")
        model = run.wait()
        assert model.name == "other"
        assert model.shown()["params"]["eta"] == 0.1
        assert run.result["trees"] == 2

    await beside(federation, program)


async def test_coroutines_do_the_same_without_blocking(federation: DaemonsInMemory) -> None:
    connected = await asyncio.to_thread(bank_of, federation)
    async with connected as bank:
        assert (await bank.align("people"))["rows"] == 40
        run = await bank.train(PARAMS, engine="plain", model="m", alignment="people")
        model = await run
        assert model.name == "m"
        assert (await bank.predict("m", IDS)).shape == (40,)
        assert await bank.inbox() == []
        found = await bank.search({"eta": [0.1, 0.3]}, PARAMS, trials=1, engine="plain")
        assert found.best.settings["eta"] in (0.1, 0.3)
        assert (await bank.status())["models"] == 1
        assert (await bank.ask("models"))[0]["model"] == "m"


async def test_a_training_is_paused_followed_and_cancelled(federation: DaemonsInMemory) -> None:
    def program(bank: Party) -> None:
        run = bank.train({**PARAMS, "num_boost_round": 500}, engine="plain", model="long")
        while not run.progress.done:
            time.sleep(0.01)
        run.pause()
        with pytest.raises(PeerSilent, match=r"is not at its end after 0\.1 s"):
            run.wait(0.1)
        again = bank.follow(run.session)
        run.resume()
        again.cancel()
        for watched in (run, again):
            with pytest.raises(DaemonError, match="bank cancelled the session") as ended:
                watched.wait()
            assert ended.value.exit_code == 6
        assert "bank cancelled the session" in repr(run)
        assert list(bank.models) == []

    await beside(federation, program)


async def test_an_owner_answers_from_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = 'consent = "ask"\n'
    async with DaemonsInMemory(tmp_path, monkeypatch, settings=settings) as federation:
        wanted = await asyncio.to_thread(bank_of, federation)
        run = await asyncio.to_thread(
            lambda: wanted.train({**PARAMS}, engine="plain", model="m", parties=["telco"])
        )
        telco = await asyncio.to_thread(fedmq.connect, federation.folder / "telco" / "party.toml")

        async def asked() -> Any:
            return await asyncio.to_thread(lambda: telco.inbox)

        [request] = await federation.until(asked)
        assert request.asks == "bank asks to train model m on 40 people"
        assert "<th>engine</th>" in request._repr_html_()
        await asyncio.to_thread(request.refuse, "not now")
        with pytest.raises(DaemonError, match="not now"):
            await run


async def test_what_is_wrong_is_one_line(federation: DaemonsInMemory) -> None:
    def program(bank: Party) -> None:
        with pytest.raises(ConfigError, match=r"^train: params: ete: no such parameter; did you"):
            bank.train({"ete": 1})
        with pytest.raises(ConfigError, match=r"^cv: engin: there is no such key; did you mean"):
            bank.cv(engin="plain")  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match=r"^align: at_least goes with join"):
            bank.align("a", at_least=["telco"])
        with pytest.raises(
            DaemonError, match="bank has no alignment 'nobody'; make it with"
        ) as refused:
            bank.train(PARAMS, engine="plain", alignment="nobody").wait()
        assert refused.value.exit_code == 6
        with pytest.raises(DataError, match="model 'm' has no share here; there are: none yet"):
            bank.models["m"]
        assert "m" not in bank.models

    await beside(federation, program)
    await federation.train("m", 1)
    with pytest.raises(ConfigError, match="give either ids, or the name of an alignment"):
        await beside(federation, lambda bank: bank.models["m"].predict())
    with pytest.raises(DataError, match="ids: a list or column of ids is needed"):
        await beside(federation, lambda bank: bank.models["m"].predict([["p01", "p02"]]))
    telco = federation.folder / "telco" / "party.toml"
    with pytest.raises(ConfigError, match="only bank has metrics"):
        await asyncio.to_thread(lambda: fedmq.connect(telco).models["m"].metrics)


def test_without_a_daemon_the_line_says_how_to_start_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DaemonsInMemory(tmp_path, monkeypatch).folder
    with pytest.raises(DaemonAway, match=r"no daemon runs at .* start it with: fedmq run"):
        fedmq.connect(folder / "bank" / "party.toml")


def test_the_keys_of_a_job_are_those_of_its_file() -> None:
    apart = {"party", "params", "nfold"}
    assert typing.get_type_hints(JobKeys).keys() == TrainingJob.model_fields.keys() - apart


def test_the_keys_of_a_screen_are_those_of_its_file() -> None:
    apart = {"party", "name"}
    assert typing.get_type_hints(ScreenKeys).keys() == ScreenJob.model_fields.keys() - apart
