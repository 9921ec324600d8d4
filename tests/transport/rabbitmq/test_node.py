"""The script that runs a private node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
