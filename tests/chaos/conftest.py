"""A broker for the session, and a fresh federation for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.federation import ChaosFederation
from tests.rabbitmq_node import RabbitNode


@pytest.fixture
def federation(node: RabbitNode, tmp_path: Path) -> Iterator[ChaosFederation]:
    federation = ChaosFederation(tmp_path, node)
    yield federation
    federation.close()
