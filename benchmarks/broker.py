"""A private RabbitMQ node for the time of a benchmark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedmq.transport.rabbitmq.definitions import definitions
from tests.left_behind import watch

BROKER = Path(__file__).parent.parent / "brokers" / "rabbitmq"
RABBITMQ = Path(os.environ.get("FEDMQ_RABBITMQ") or "/usr/lib/rabbitmq/bin", "rabbitmq-server")


@contextmanager
def private_node(parties: Sequence[str] = ("bank",)) -> Iterator[str]:
    """The URL of a fresh node, or ``memory://`` where RabbitMQ is not installed.

    It is the administrator's; the password of each of ``parties`` is its name.
    """
    if not RABBITMQ.exists():
        print("RabbitMQ is not installed: the parties talk through memory")
        yield "memory://"
        return
    with tempfile.TemporaryDirectory(prefix="fedmq-benchmark-") as name:
        folder = Path(name)
        watched = watch(folder)
        shutil.copy(BROKER / "rabbitmq.conf", folder)
        (folder / "enabled_plugins").write_text("[].\n")
        users = definitions(
            "benchmark", parties, {name: name for name in parties}, admin_password="admin"
        )
        (folder / "definitions.json").write_text(json.dumps(users))
        subprocess.run([str(BROKER / "node"), "start", name], check=True, capture_output=True)
        try:
            port = json.loads((folder / "data" / "node.json").read_text())["port"]
            yield f"amqp://admin:admin@127.0.0.1:{port}/"
        finally:
            subprocess.run([str(BROKER / "node"), "stop", name], check=True, capture_output=True)
            watched.communicate()
