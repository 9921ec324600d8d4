"""A program on another machine scores by the HTTP API, with the words of one beside the daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

import fedmq
from fedmq.errors import ConfigError, DaemonError, DataError, FedmqError, UnknownModel
from fedmq.party.configuration.http import HttpSection
from fedmq.transport.rabbitmq.certificates import Authority
from tests.free_port import free_port
from tests.party.daemons_in_memory import DaemonsInMemory

TOKEN = "a-long-random-token"
OPERATOR = "another-long-random-token"
IDS = [f"p{row:02}" for row in range(40)]


@pytest.fixture
async def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Where the bank's daemon serves a model over TLS."""
    federation = DaemonsInMemory(tmp_path, monkeypatch)
    authority = Authority.create("the bank's machines")
    server = authority.server(["127.0.0.1"])
    (tmp_path / "ca.pem").write_bytes(authority.pem.certificate)
    (tmp_path / "bank" / "server.pem").write_bytes(server.certificate)
    (tmp_path / "bank" / "server.key").write_bytes(server.key)
    port = free_port()
    with (tmp_path / "bank" / "party.toml").open("a") as file:
        file.write(
            f'[http]\nport = {port}\ntokens = ["{TOKEN}"]\n'
            f'operators = {{ notebook = "{OPERATOR}" }}\n'
            'certificate = "server.pem"\nkey = "server.key"\n'
        )
    async with federation:
        await federation.train("m", 2)
        await federation.ask("bank", "activate", model="m", name="production", mode=None)
        yield f"https://127.0.0.1:{port}"


async def test_it_scores_as_beside_the_daemon(url: str, tmp_path: Path) -> None:
    def program() -> None:
        with fedmq.connect(url, token=TOKEN, ca=tmp_path / "ca.pem") as bank:
            model = bank.models["production"]
            assert (model.name, model.model) == ("production", "m")
            own = fedmq.connect(tmp_path / "bank" / "party.toml").models["m"]
            scores = model.predict(pd.Series([*IDS, "nobody"]))
            np.testing.assert_allclose(scores[:-1], own.predict(IDS), rtol=1e-6)
            assert np.isnan(scores[-1])
            margins = model.predict(IDS, output_margin=True, base_margin=[1.0] * 40)
            beside = own.predict(IDS, output_margin=True, base_margin=[1.0] * 40)
            np.testing.assert_allclose(margins, beside, rtol=1e-5, atol=1e-6)
            assert sorted(bank.models) == ["m", "production"]
            assert bank.serving()["models"]["production"]["model"] == "m"
            assert "<th>production</th><td>m</td>" in bank._repr_html_()
            with pytest.raises(DataError, match="1 of the ids have no score, such as 'nobody'"):
                model.predict(["p01", "nobody"], strict=True)
            with pytest.raises(UnknownModel, match="served as 'm2'; there are: m, production"):
                bank.models["m2"]
            for asked, name in ((bank, "inbox"), (model, "evaluate")):
                with pytest.raises(AttributeError, match=rf"has no {name}: a daemon takes that "):
                    getattr(asked, name)
            assert not hasattr(bank, "nothing_of_the_kind")

    await asyncio.to_thread(program)


async def test_a_wrong_token_authority_or_address_is_one_line(url: str, tmp_path: Path) -> None:
    def refused(kind: type[Exception], line: str, address: str, **given: Any) -> None:
        with pytest.raises(kind, match=line):
            fedmq.connect(address, **given)

    def program() -> None:
        ca = tmp_path / "ca.pem"
        refused(DaemonError, "show a token", url, token="another-long-token-of-nobody", ca=ca)
        refused(DaemonError, "does not answer: .*certificate verify failed", url, token=TOKEN)
        away = f"https://127.0.0.1:{free_port()}"
        refused(DaemonError, "does not answer", away, token=TOKEN, ca=ca)
        refused(ConfigError, "nothing.pem: is no certificate", url, token=TOKEN, ca="nothing.pem")
        refused(ConfigError, r"name a token of the party's \[http\] section", url)
        refused(ConfigError, "would show the token", "http://bank.example", token=TOKEN)
        refused(ConfigError, "is no address; write https://", "party.toml", token=TOKEN)

    await asyncio.to_thread(program)


async def test_with_an_operators_token_it_trains_and_serves_from_another_machine(
    url: str, tmp_path: Path
) -> None:
    def program() -> None:
        with fedmq.connect(url, token=OPERATOR, ca=tmp_path / "ca.pem") as bank:
            assert bank.status()["party"] == "bank"
            run = bank.train({"num_boost_round": 3, "max_depth": 2}, engine="plain", model="far")
            model = run.wait()
            assert (run.progress.done, run.progress.total) == (3, 3) and run.done
            beside = fedmq.connect(tmp_path / "bank" / "party.toml").models["far"]
            np.testing.assert_allclose(model.predict(IDS), beside.predict(IDS))
            assert list(model.explain(IDS[:2]).columns) == list(beside.explain(IDS[:2]).columns)
            model.activate("new")
            assert bank.models["new"].model == "far"
            figures = bank.cv({"num_boost_round": 2, "max_depth": 2}, engine="plain").wait()
            assert len(figures) == 2
            over = {"max_depth": [1, 2], "eta": "0.1:0.5"}
            found = bank.search(over, {"num_boost_round": 2}, trials=2, nfold=2, engine="plain")
            assert [*found.frame().columns] == ["max_depth", "eta", found.metric]
            assert found.best.value == found.frame()[found.metric][0]
            with pytest.raises(DaemonError, match="model 'far' exists already"):
                bank.train({"num_boost_round": 3}, engine="plain", model="far")

    await asyncio.to_thread(program)
    log = (tmp_path / "bank" / "state" / "audit.jsonl").read_text()
    begun = [json.loads(line) for line in log.splitlines() if '"whence": "HTTP"' in line]
    assert {(entry["what"], entry["by"]) for entry in begun} >= {
        ("train", "notebook"), ("activate", "notebook"),
    }  # fmt: skip


async def test_another_token_begins_nothing_and_what_is_for_the_own_machine_stays_there(
    url: str, tmp_path: Path
) -> None:
    def program() -> None:
        ca = tmp_path / "ca.pem"
        with fedmq.connect(url, token=TOKEN, ca=ca) as bank:
            for asked in (bank.status, partial(bank.align, "people"), partial(bank.train, {})):
                with pytest.raises(FedmqError, match=r"takes a token of operators in \[http\]"):
                    asked()
        with fedmq.connect(url, token=OPERATOR, ca=ca) as bank:
            for command in ("approve", "reload", "sign_card", "nothing"):
                with pytest.raises(FedmqError, match=f"{command}' is for the daemon's own machine"):
                    bank.ask(command)

    await asyncio.to_thread(program)


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"operators": {"n": "short"}}, "a token has at least 16 characters"),
        (
            {"host": "0.0.0.0", "operators": {"n": OPERATOR}},
            "operators: 0.0.0.0 can be reached from elsewhere, and tokens would travel unencrypted",
        ),
    ],
    ids=["short", "unencrypted"],
)
def test_tokens_of_operators_are_long_and_travel_encrypted(
    section: dict[str, Any], line: str
) -> None:
    with pytest.raises(ValidationError, match=line):
        HttpSection.model_validate(section)
