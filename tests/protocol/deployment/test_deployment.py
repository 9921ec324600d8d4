"""A name changes its meaning at all parties together, or at none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.model.tree import Agreed, DisclosedColumns
from fedmq.computation import Given
from fedmq.errors import Aborted, DataError, Refused
from fedmq.messages.array import Array
from fedmq.messages.body import RecordColumns
from fedmq.messages.online import ModelReady
from fedmq.protocol.deployment.active import ActiveDeployment
from fedmq.protocol.deployment.passive import PassiveDeployment
from fedmq.protocol.record_columns import record_columns
from tests.protocol.online.test_online import World
from tests.simulator import Link, Simulation


@pytest.fixture(scope="module")
def world() -> World:
    return World(rows=200, trees=4, depth=3)


class Broken:
    label = "Broken"

    def run(self) -> Any:
        raise DataError("telco: data.csv, line 7: 'secret' is no number")


def run(
    world: World,
    seed: int = 0,
    link: Link | None = None,
    only_asks: bool = False,
    readies: dict[str, ModelReady] | None = None,
    **hosting: Any,
) -> Simulation:
    machines: dict[str, Any] = {
        "active": ActiveDeployment("production", world.served, "hop", only_asks)
    }
    for party, share in world.shares.items():
        load, refusal = hosting.get(party, (Given(share), ""))
        ready = (readies or {}).get(party, ModelReady())
        machines[party] = PassiveDeployment("active", load, refusal, lambda _, held=ready: held)
    simulation = Simulation(machines, seed=seed, link=link)
    simulation.run()
    return simulation


@pytest.mark.parametrize("seed", range(5))
def test_every_party_serves_its_share_whatever_befalls_the_messages(
    world: World, seed: int
) -> None:
    simulation = run(world, seed, Link(drop=0.2, repeat=0.2, delay=1.0))

    assert simulation.results == {"active": Agreed(), **world.shares}


@pytest.mark.parametrize("seed", range(3))
def test_whoever_is_only_asked_serves_nothing_new(world: World, seed: int) -> None:
    simulation = run(world, seed, Link(drop=0.2, repeat=0.2, delay=1.0), only_asks=True)

    assert simulation.results == {"active": None, **dict.fromkeys(world.shares)}


def test_whoever_is_only_asked_says_what_is_missing(world: World) -> None:
    refusing = (Given(None), "retail has no share of model m")
    simulation = run(world, only_asks=True, retail=refusing)

    assert simulation.results == {}
    assert "retail has no share of model m" in str(simulation.errors["active"])


def test_a_refusal_leaves_everything_as_it_was(world: World) -> None:
    simulation = run(world, retail=(Given(None), "retail has no share of model m"))

    assert simulation.results == {}
    assert isinstance(simulation.errors["active"], Refused)
    assert "retail has no share of model m" in str(simulation.errors["active"])
    assert set(simulation.errors) == {"active", "telco", "retail"}


def test_what_is_wrong_with_a_partys_data_stays_at_home(world: World) -> None:
    simulation = run(world, telco=(Broken(), ""))

    assert simulation.results == {}
    assert "secret" in str(simulation.errors["telco"])
    for other in ("active", "retail"):
        assert "secret" not in str(simulation.errors[other])
    assert "its own share or data could not be loaded" in str(simulation.errors["active"])


def test_the_active_party_keeps_to_which_reasons_the_others_agreed(world: World) -> None:
    share = world.shares["telco"]
    columns = DisclosedColumns.of(share.share.lookup_table, len(share.chains), {})
    readies = {
        "telco": ModelReady(columns=record_columns(columns)),
        "retail": ModelReady(explain=False),
    }
    agreed = run(world, link=Link(repeat=0.3, delay=1.0), readies=readies).results["active"]
    assert agreed.refusing == ("retail",)
    assert agreed.columns["telco"].column.tolist() == columns.column.tolist()
    assert Agreed.model_validate_json(agreed.model_dump_json()).columns.keys() == {"telco"}


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0], "telco discloses the columns of 1 records"),
        (None, "telco numbers columns otherwise than from 0"),
    ],
    ids=["too few", "numbered wrong"],
)
def test_columns_that_do_not_fit_the_records_are_refused(
    world: World, numbers: list[int] | None, words: str
) -> None:
    numbers = numbers or [2] * len(world.shares["telco"].chains)
    columns = RecordColumns(column=Array.of(np.array(numbers, np.uint32)), texts=("a",))
    simulation = run(world, readies={"telco": ModelReady(columns=columns)})
    assert isinstance(simulation.errors["active"], Aborted)
    assert words in str(simulation.errors["active"])
