"""A broker for the session, and a fresh federation for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.federation import PARTIES, ChaosFederation
from tests.rabbitmq_node import RabbitNode


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq"), parties=PARTIES) as node:
        yield node


@pytest.fixture
def federation(node: RabbitNode, tmp_path: Path) -> Iterator[ChaosFederation]:
    federation = ChaosFederation(tmp_path, node)
    yield federation
    federation.close()
