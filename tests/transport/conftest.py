"""A broker for the session, and a fresh federation for every test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from fedmq.transport.rabbitmq.link import TemporaryTopology
from tests.rabbitmq_node import RabbitNode
from tests.transport.federations import PARTIES, Federation, MemoryFederation, RabbitFederation

numbers = itertools.count()


@pytest.fixture
async def rabbit(node: RabbitNode) -> AsyncIterator[RabbitFederation]:
    name = f"test{next(numbers)}"
    async with TemporaryTopology(node.url(), name, PARTIES):
        federation = RabbitFederation(node.url(), name)
        yield federation
        await federation.close()


@pytest.fixture
async def memory() -> AsyncIterator[MemoryFederation]:
    federation = MemoryFederation()
    yield federation
    await federation.close()


@pytest.fixture(params=["memory", "rabbit"])
def federation(request: pytest.FixtureRequest) -> Federation:
    found: Federation = request.getfixturevalue(request.param)
    return found
