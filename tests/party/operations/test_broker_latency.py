"""How long a message and its bytes take to the broker, over links of known rate and delay."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.wide_area_link import Link, linked
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations import broker
from fedmq.party.operations.broker import BrokerLatency, latency_of_broker
from fedmq.privacy.plan import PIECE_BYTES
from fedmq.transport.rabbitmq.connection import BrokerConnection
from tests.rabbitmq_node import RabbitNode


async def measured(node: RabbitNode, folder: Path, link: Link) -> BrokerLatency:
    (folder / "federation.toml").write_text(
        'name = "demo"\nactive = "bank"\npassive = ["telco", "retail"]\n'
    )
    with linked(node.port, link) as port:
        url = node.url("bank").replace(str(node.port), str(port))
        (folder / "party.toml").write_text(
            f'party = "bank"\nfederation = "federation.toml"\nbroker = "{url}"\nstate = "state"\n'
            '[data]\npath = "bank.csv"\nid = "id"\nlabel = "label"\n'
        )
        config = PartyFile.read(folder / "party.toml")[0]
        return await latency_of_broker(config, Federation.read(folder / "federation.toml"))


@pytest.mark.parametrize("link", [Link(1, 60), Link(20, 30)])
async def test_rate_and_delay_of_a_link_are_measured_without_filling_it_for_long(
    node: RabbitNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: Link
) -> None:
    sent = []
    publish = BrokerConnection.publish

    async def counted(*given: object, **options: object) -> bool:
        sent.append(len(given[3]))  # type: ignore[arg-type]
        return await publish(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(broker, "_TIMED_SECONDS", 0.5)
    monkeypatch.setattr(BrokerConnection, "publish", counted)
    found = await measured(node, tmp_path, link)
    assert found.is_far
    assert found.message >= link.milliseconds / 1e3
    assert found.byte == pytest.approx(8 / (link.megabits * 1e6), rel=0.5)
    # On a slow link no message is long.
    assert max(sent) == (16_000 if link.megabits == 1 else PIECE_BYTES)
    assert sum(sent) < link.megabits * 125_000 * 3
