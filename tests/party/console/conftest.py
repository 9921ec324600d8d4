"""A browser, and the example federation with a console at every party."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.party.console.chromium import chromium
from tests.party.console.shown_federation import start_with_consoles
from tests.party.daemons import ExampleFederation
from tests.rabbitmq_node import RabbitNode


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=20_000)  # a command takes seconds to begin on a busy machine
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def consoles(
    tmp_path_factory: pytest.TempPathFactory, node: RabbitNode
) -> Iterator[ExampleFederation]:
    """The example federation, whose daemons serve consoles."""
    federation = start_with_consoles(tmp_path_factory.mktemp("federation"), node)
    yield federation
    federation.discard()
