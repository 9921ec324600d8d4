"""Trainings and alignments with some of the partners: the others hear nothing of them."""

from __future__ import annotations

from typing import Any

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DaemonError
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from tests.party.daemons_in_memory import DaemonsInMemory


def training(model: str, **wanted: Any) -> dict[str, Any]:
    params = TrainParams(num_boost_round=2, max_depth=2, max_bin=8)
    job = TrainingJob.model_validate(
        {"model": model, "engine": "plain", "params": params, **wanted}
    )
    return job.model_dump(mode="json")


def heard_of(federation: DaemonsInMemory, party: str) -> list[str]:
    """Recipients of what ``party`` gets from now on."""
    heard: list[str] = []

    async def listen(_: str, recipient: str, __: str) -> bool:
        if recipient == party:
            heard.append(recipient)
        return False

    federation.hold = listen
    return heard


async def test_a_training_with_one_partner_asks_nothing_of_the_other(
    federation: DaemonsInMemory,
) -> None:
    heard = heard_of(federation, "retail")
    await federation.ask("bank", "train", job=training("m", parties=["telco"]))
    share = federation.daemons["bank"].parts.context.model_store.active("m")
    assert share.parties == ("bank", "telco")
    assert heard == []
    scores = await federation.ask("bank", "predict", model="m", ids=["p01", "p02"])
    assert len(scores["scores"]) == 2
    assert heard == []


async def test_an_active_party_may_train_alone(federation: DaemonsInMemory) -> None:
    heard = heard_of(federation, "telco")
    await federation.ask("bank", "train", job=training("m", parties=[]))
    assert federation.daemons["bank"].parts.context.model_store.active("m").parties == ("bank",)
    assert heard == []


async def test_partners_come_in_the_federations_order(federation: DaemonsInMemory) -> None:
    await federation.ask("bank", "train", job=training("m", parties=["retail", "telco"]))
    share = federation.daemons["bank"].parts.context.model_store.active("m")
    assert share.parties == ("bank", "telco", "retail")


async def test_an_alignment_of_two_serves_a_training_of_the_same_two(
    federation: DaemonsInMemory,
) -> None:
    heard = heard_of(federation, "telco")
    job = AlignmentJob(name="some", parties=("retail",)).model_dump(mode="json")
    result = await federation.ask("bank", "align", job=job)
    assert (result["parties"], result["rows"]) == (["bank", "retail"], 40)
    await federation.ask("bank", "train", job=training("m", parties=["retail"], alignment="some"))
    assert heard == []
    with pytest.raises(DaemonError, match="alignment 'some'"):
        await federation.ask("bank", "train", job=training("all", alignment="some"))


async def test_a_party_that_is_none_is_named(federation: DaemonsInMemory) -> None:
    for do, job in (
        ("train", training("m", parties=["shop"])),
        ("align", AlignmentJob(name="a", parties=("shop",)).model_dump(mode="json")),
    ):
        with pytest.raises(DaemonError) as refused:
            await federation.ask("bank", do, job=job)
        assert (
            str(refused.value) == "parties: 'shop' is not among the passive parties telco, retail"
        )
        assert refused.value.exit_code == ConfigError.exit_code


@pytest.mark.parametrize(
    ("parties", "members"),
    [
        (("bank", "telco", "retail"), True),
        (("bank", "retail"), True),
        (("bank", "retail", "telco"), False),
        (("telco", "retail"), False),
        (("bank", "shop"), False),
        (("bank", "telco", "telco"), False),
    ],
)
def test_members_are_the_federations_in_its_order(parties: tuple[str, ...], members: bool) -> None:
    federation = Federation(name="demo", active="bank", passive=("telco", "retail"))
    assert federation.are_members(parties) == members
