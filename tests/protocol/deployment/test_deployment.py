"""A name changes its meaning at all parties together, or at none."""

from __future__ import annotations

from typing import Any

import pytest

from fedmq.computation import Given
from fedmq.errors import DataError, Refused
from fedmq.protocol.deployment.active import ActiveDeployment
from fedmq.protocol.deployment.passive import PassiveDeployment
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
    **hosting: Any,
) -> Simulation:
    machines: dict[str, Any] = {
        "active": ActiveDeployment("production", world.served, "hop", only_asks)
    }
    for party, share in world.shares.items():
        load, refusal = hosting.get(party, (Given(share), ""))
        machines[party] = PassiveDeployment("active", load, refusal)
    simulation = Simulation(machines, seed=seed, link=link)
    simulation.run()
    return simulation


@pytest.mark.parametrize("seed", range(5))
def test_every_party_serves_its_share_whatever_befalls_the_messages(
    world: World, seed: int
) -> None:
    simulation = run(world, seed, Link(drop=0.2, repeat=0.2, delay=1.0))

    assert simulation.results == {"active": None, **world.shares}


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
