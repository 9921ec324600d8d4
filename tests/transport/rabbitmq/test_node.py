"""The script that runs a private node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pytest
from aio_pika.exceptions import AMQPError

from fedmq.transport.rabbitmq.topology import topology
from tests.rabbitmq_node import BROKER, RabbitNode


def node_script(*arguments: str, path: str = "/usr/bin:/bin") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(BROKER / "node"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": path},
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def test_without_rabbitmq_it_says_how_to_install_it(tmp_path: Path) -> None:
    code, line = node_script("start", str(tmp_path), path="/nowhere")

    assert code == 1
    assert line == (
        "node: RabbitMQ is not installed; install with: "
        "apt-get install -y --no-install-recommends rabbitmq-server"
    )


def test_a_directory_without_configuration_is_named(tmp_path: Path) -> None:
    code, line = node_script("start", str(tmp_path))

    assert code == 1
    assert line == f"node: {tmp_path}: no rabbitmq.conf; copy it from brokers/rabbitmq"


def test_a_node_that_was_never_started_is_not_running(tmp_path: Path) -> None:
    assert node_script("status", str(tmp_path)) == (3, "not running")
    assert node_script("stop", str(tmp_path)) == (0, "not running")
    assert node_script("wait", str(tmp_path))[0] == 1


@pytest.mark.long
def test_starting_a_running_node_changes_nothing(node: RabbitNode) -> None:
    code, before = node_script("status", str(node.directory))
    assert code == 0
    assert before.startswith(f"running on 127.0.0.1:{node.port}, pid ")

    assert node_script("start", str(node.directory)) == (0, before)


def test_a_stopped_node_leaves_no_process_and_starts_on_the_same_port(node: RabbitNode) -> None:
    port = node.port

    node.stop()
    assert node_script("status", str(node.directory)) == (3, "not running")
    assert not ours_left(node.directory)
    node.start()

    assert node.port == port
    assert ours_left(node.directory)


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[RabbitNode]:
    """A node that a test may take parties from."""
    with RabbitNode(tmp_path) as node:
        yield node


@pytest.mark.long
async def test_who_is_no_longer_in_the_definitions_loses_login_and_queues(
    own_node: RabbitNode,
) -> None:
    async with await aio_pika.connect(own_node.url()) as connection:
        await (await connection.channel()).declare_queue("scores", durable=True)

    leave_out(own_node, "retail")
    assert node_script("load", str(own_node.directory)) == (0, "users: admin, bank, telco")
    await assert_gone(own_node, "retail")

    # Also where the broker is started after the change.
    own_node.stop()
    leave_out(own_node, "telco")
    own_node.start()
    await assert_gone(own_node, "telco")

    async with await aio_pika.connect(own_node.url()) as connection:
        channel = await connection.channel()
        for queue in ("scores", *queues_of("bank")):
            await channel.declare_queue(queue, passive=True)


def queues_of(party: str) -> list[str]:
    return [queue.name for queue in topology("demo", [party]).queues]


def leave_out(node: RabbitNode, party: str) -> None:
    path = node.directory / "definitions.json"
    content = json.loads(path.read_text())
    content["users"] = [user for user in content["users"] if user["name"] != party]
    own = queues_of(party)
    content["queues"] = [queue for queue in content["queues"] if queue["name"] not in own]
    for key, name in (("permissions", "user"), ("topic_permissions", "user")):
        content[key] = [found for found in content[key] if found[name] != party]
    content["bindings"] = [
        found for found in content["bindings"] if found["destination"] not in own
    ]
    content["policies"] = [found for found in content["policies"] if party not in found["name"]]
    path.write_text(json.dumps(content))


async def assert_gone(node: RabbitNode, party: str) -> None:
    async with await aio_pika.connect(node.url()) as connection:
        for queue in queues_of(party):
            channel = await connection.channel()
            with pytest.raises(AMQPError, match="NOT_FOUND"):
                await channel.declare_queue(queue, passive=True)
    with pytest.raises(AMQPError, match="ACCESS_REFUSED"):
        await aio_pika.connect(node.url(party))


def ours_left(directory: Path) -> list[Path]:
    """Processes that were started for this node, by the mark in their environment."""
    mark = f"FEDMQ_NODE={directory}".encode()
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in environment:
            left.append(process)
    return left
