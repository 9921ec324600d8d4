"""A job that continues a model: each party has its share of it, or the job is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import DaemonError
from fedmq.party.configuration.job import TrainingJob
from tests.party.daemons_in_memory import DaemonsInMemory


def training(model: str, rounds: int, **wanted: Any) -> dict[str, Any]:
    params = TrainParams(num_boost_round=rounds, max_depth=2, max_bin=8)
    job = TrainingJob.model_validate(
        {"model": model, "engine": "plain", "params": params, **wanted}
    )
    return job.model_dump(mode="json")


def store(federation: DaemonsInMemory, party: str) -> Any:
    return federation.daemons[party].parts.context.model_store


async def test_two_jobs_make_the_model_of_one(federation: DaemonsInMemory) -> None:
    await federation.ask("bank", "train", job=training("first", 2))
    result = await federation.ask("bank", "train", job=training("m", 1, continue_from="first"))
    assert result["trees"] == 3
    await federation.ask("bank", "train", job=training("whole", 3))
    both, whole = (store(federation, "bank").active(model) for model in ("m", "whole"))
    assert [tree.model_dump_json() for tree in both.trees] == [
        tree.model_dump_json() for tree in whole.trees
    ]
    for party in ("telco", "retail"):
        both, whole = (store(federation, party).passive(model) for model in ("m", "whole"))
        assert both.lookup_table.model_dump_json() == whole.lookup_table.model_dump_json()
        assert both.places == whole.places
    scores = [
        await federation.ask("bank", "predict", model=model, ids=["p01", "p02"])
        for model in ("m", "whole")
    ]
    assert scores[0]["scores"] == scores[1]["scores"]


async def test_a_model_that_is_not_there_is_refused_at_once(federation: DaemonsInMemory) -> None:
    with pytest.raises(DaemonError, match="model 'nothing' has no share here"):
        await federation.ask("bank", "train", job=training("m", 1, continue_from="nothing"))
    assert await federation.daemons["bank"].parts.context.session_store.running() == []


async def test_a_party_that_lost_its_share_refuses(federation: DaemonsInMemory) -> None:
    await federation.ask("bank", "train", job=training("first", 2))
    store(federation, "telco").path("first").unlink()
    with pytest.raises(DaemonError, match="telco has no share of model 'first'"):
        await federation.ask("bank", "train", job=training("m", 1, continue_from="first"))


async def test_all_who_hold_shares_have_to_take_part(federation: DaemonsInMemory) -> None:
    await federation.ask("bank", "train", job=training("first", 1))
    job = training("m", 1, continue_from="first", parties=["telco"])
    with pytest.raises(DaemonError, match="retail holds a share of model 'first', and takes no"):
        await federation.ask("bank", "train", job=job)
