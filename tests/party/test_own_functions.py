"""Objectives and metrics that the active party's party file names, and its job by an alias."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DaemonError
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import PartyFile
from tests.party.daemons_in_memory import DaemonsInMemory

FUNCTIONS = """
[functions]
obj = { focal = "tests.party.test_own_functions:focal", broken = "tests.party.no_such:thing" }
custom_metric = { bias = "tests.party.test_own_functions:bias", late = "tests.party:nothing" }
"""


def focal(margins: Any, rows: Any) -> tuple[Any, Any]:
    """Log loss that minds label 1 twice."""
    p = 1 / (1 + np.exp(-np.asarray(margins, np.float64)))
    scale = np.where(rows.get_label() == 1, 2.0, 1.0)
    return (p - rows.get_label()) * scale, p * (1 - p) * scale


def bias(predictions: Any, rows: Any) -> tuple[str, float]:
    return "bias", abs(float(np.mean(predictions - rows.get_label())))


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    federation = DaemonsInMemory(tmp_path, monkeypatch)
    own = tmp_path / "bank" / "party.toml"
    own.write_text(own.read_text() + FUNCTIONS)
    await federation.start()
    yield federation
    await federation.stop()


async def trained(federation: DaemonsInMemory, **wanted: Any) -> Any:
    params = {"num_boost_round": 12, "max_depth": 2, "max_bin": 8, **wanted.pop("params", {})}
    job = TrainingJob.model_validate(
        {"model": "m", "engine": "plain", "params": TrainParams(**params), **wanted}
    )
    return await federation.ask("bank", "train", job=job.model_dump(mode="json"))


async def test_a_job_names_functions_that_no_message_does(federation: DaemonsInMemory) -> None:
    heard: list[str] = []

    async def listen(_: str, __: str, message: str) -> bool:
        heard.append(message)
        return False

    federation.hold = listen
    result = await trained(
        federation,
        obj="focal",
        custom_metric="bias",
        evaluation=0.3,
        params={"early_stopping_rounds": 2},
    )
    share = federation.daemons["bank"].parts.context.model_store.active("m")
    assert share.base_score == 0.5  # nothing estimates it where the loss is a function
    watched = share.history["eval-bias"]
    assert len(watched) < 12
    assert result["best_iteration"] == int(np.argmin(watched))
    assert result["metrics"]["eval-bias"] == min(watched)
    assert len(heard) > 20
    assert not any(word in message for message in heard for word in ("focal", "bias"))


async def test_another_objective_is_another_model(federation: DaemonsInMemory) -> None:
    await trained(federation, obj="focal", params={"base_score": 0.5})
    await trained(federation, model="plainly", params={"base_score": 0.5})
    store = federation.daemons["bank"].parts.context.model_store
    own, plain = store.active("m"), store.active("plainly")
    assert own.trees[0].cover[0] != plain.trees[0].cover[0]


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ({"obj": "huber"}, "obj = 'huber': functions.obj of this party's file has no such name"),
        ({"custom_metric": "focal"}, "functions.custom_metric .* no such name, but bias, late"),
        ({"obj": "broken"}, "functions.obj.broken: module tests.party.no_such cannot be imported"),
        ({"custom_metric": "late"}, "module tests.party has no function 'nothing'"),
    ],
    ids=["unknown", "of-another-kind", "no-module", "no-function"],
)
async def test_a_function_that_is_not_there_is_named(
    federation: DaemonsInMemory, wanted: dict[str, str], line: str
) -> None:
    with pytest.raises(DaemonError, match=line) as refused:
        await trained(federation, **wanted)
    assert refused.value.exit_code == ConfigError.exit_code
    assert federation.models() == {party: [] for party in ("bank", "telco", "retail")}


async def test_peers_do_not_read_why_a_function_failed(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def secretive(*_: Any) -> Any:
        raise ValueError("the label of p01 is 1")

    monkeypatch.setattr("tests.party.test_own_functions.bias", secretive)
    heard: list[str] = []

    async def listen(_: str, __: str, message: str) -> bool:
        heard.append(message)
        return False

    federation.hold = listen
    with pytest.raises(
        DaemonError,
        match=(
            r"custom_metric\.bias: .*:bias raised, in test_own_functions\.py, line \d+: "
            "ValueError: the label of p01 is 1"
        ),
    ):
        await trained(federation, custom_metric="bias")
    assert any("its own arithmetic failed" in message for message in heard)
    assert not any("p01" in message for message in heard)


async def test_a_training_that_goes_on_has_its_functions_again(
    federation: DaemonsInMemory,
) -> None:
    calm = {"obj": "focal", "custom_metric": "bias", "evaluation": 0.3}
    await trained(federation, model="calm", **calm)
    third, begun = asyncio.Event(), 0

    async def count(_: str, recipient: str, message: str) -> bool:
        nonlocal begun
        begun += recipient == "telco" and "tree started" in message
        if begun == 3:
            third.set()
        return False

    federation.hold = count
    shaken = asyncio.create_task(trained(federation, model="shaken", **calm))
    async with asyncio.timeout(60):
        await third.wait()
    await federation.stop("bank")
    await asyncio.wait({shaken})
    assert shaken.exception() is not None
    await federation.start("bank")

    async def finished() -> bool:
        return "shaken" in federation.models()["bank"]

    await federation.until(finished)
    store = federation.daemons["bank"].parts.context.model_store
    shares = [
        store.active(model).model_dump_json(exclude={"model_id", "training"})
        for model in ("calm", "shaken")
    ]
    assert shares[0] == shares[1]


def test_only_the_active_party_has_functions(federation: DaemonsInMemory) -> None:
    path = federation.folder / "telco" / "party.toml"
    path.write_text(path.read_text() + FUNCTIONS)
    with pytest.raises(ConfigError, match="functions: only bank has objectives and metrics"):
        PartyFile.read(path)


@pytest.mark.parametrize(
    "reference",
    ["losses", "losses.focal", "losses:", ":focal", "a b:c", "losses:focal()", "../losses:focal"],
)
def test_a_reference_is_a_module_and_a_function(
    federation: DaemonsInMemory, reference: str
) -> None:
    path = federation.folder / "bank" / "party.toml"
    path.write_text(path.read_text().replace("tests.party.test_own_functions:focal", reference))
    with pytest.raises(ConfigError, match=r"functions.obj.focal: .*write package.module:function"):
        PartyFile.read(path)
