"""A broker and the example federation on it, for all tests that need real daemons."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from httpx._transports import default
from hypothesis import settings
from xdist.remote import Producer

from tests.kept_processes import kept_processes
from tests.left_behind import watch
from tests.party.daemons import PARTIES, ExampleFederation
from tests.rabbitmq_node import RabbitNode, quick_erlang
from tests.schedule import LongestFirst, Stopwatch

if TYPE_CHECKING:
    from tests.party.daemons_in_memory import DaemonsInMemory

# How long an example takes depends on what else the machine does; where time matters, tests
# measure it.
# `make test` draws the same examples each time, `make test-long` others each time.
settings.register_profile("often", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=100)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store-durations", action="store_true", help="write durations.json anew")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if _is_long(config) else "often")
    if config.getoption("--store-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongestFirst:
    """Hand out the tests to the workers, the longest first."""
    return LongestFirst(config, log)


def _is_long(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "long")


STARTS_A_NODE = {"node", "own_node"}
"""The fixtures that do."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Mark the tests that need a broker, so that all of them can run with another one.

    What a browser looks at is for ``make test-long``, and so are all examples of what is drawn.
    """
    for item in items:
        is_drawn = getattr(item.obj, "is_hypothesis_test", False)
        if "browser" in item.fixturenames or (is_drawn and _is_long(config)):
            item.add_marker("long")
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        chosen = {value for value in parameters.values() if isinstance(value, str)}
        if STARTS_A_NODE.intersection(item.fixturenames) - parameters.keys() or "rabbit" in chosen:
            item.add_marker("broker")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without a search for garbage: half the time went to looking through what stays.

    Thousands of tests and all modules stay till the end, so no later search looks through them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Brokers, databases and daemons end with this process, also where it is killed."""
    watcher = watch(tmp_path_factory.getbasetemp())
    yield
    watcher.communicate()


@pytest.fixture(scope="session", autouse=True)
def nodes_start_quickly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All nodes: also those of federations with a broker of their own."""
    with pytest.MonkeyPatch.context() as patch:
        erlang = quick_erlang(tmp_path_factory.mktemp("erlang"))
        patch.setenv("PATH", str(erlang), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session", autouse=True)
def authorities_read_once() -> Iterator[None]:
    """Each HTTP client of a test reads all authorities of the web anew, and asks for HTTP alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", cache(default.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def processes_handed_on() -> Iterator[None]:
    """Simulations take the worker processes of those before them."""
    with kept_processes():
        yield


@pytest.fixture
def short_exponents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Base transfers with exponents of 32 bits, where what follows on them is tested.

    Each session makes hundreds of powers, which take most of the time of a small training.
    """
    monkeypatch.setattr("fedmq.privacy.oblivious_transfer.base_transfers._EXPONENT_BYTES", 4)


@pytest.fixture(scope="session")
def started_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """The private RabbitMQ node of this process; to start one takes four seconds of a core."""
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq")) as node:
        yield node


@pytest.fixture(scope="module")
def node(started_node: RabbitNode) -> RabbitNode:
    """A RabbitMQ node whose queues are empty. A test may stop it that starts it again."""
    started_node.empty()
    return started_node


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    """Three daemons in this process, which have trained nothing yet."""
    from tests.party.daemons_in_memory import DaemonsInMemory  # most tests need no daemon

    async with DaemonsInMemory(tmp_path, monkeypatch) as daemons:
        yield daemons


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, node: RabbitNode) -> Iterator[ExampleFederation]:
    """The example federation with its three daemons running."""
    federation = ExampleFederation(tmp_path_factory.mktemp("federation"), node)
    try:
        federation.start(*PARTIES)
        yield federation
    finally:
        federation.discard()
