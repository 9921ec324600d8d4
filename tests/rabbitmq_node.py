"""A private RabbitMQ node for tests: brokers/rabbitmq/node, and rough treatment by process id."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import aio_pika
from aio_pika.abc import AbstractQueue

from fedmq.transport.rabbitmq.topology import topology

BROKER = Path(__file__).parent.parent / "brokers" / "rabbitmq"
COMMANDS = Path(os.environ.get("FEDMQ_RABBITMQ") or "/usr/lib/rabbitmq/bin")
"""Where rabbitmq-server and rabbitmqctl lie, as for ``node``."""
ENABLED = ("rabbitmq_auth_mechanism_ssl", "rabbitmq_management")
"""The plugins that some node of the tests enables."""


def quick_erlang(folder: Path) -> Path:
    """A folder with an ``erl`` with which RabbitMQ takes half of its seven seconds to start.

    RabbitMQ looks for steps of its boot in all modules of all libraries, and for settings in all
    plugins that are installed: here Erlang's own libraries name no modules, and only the plugins
    that nodes of tests enable are there, with what those need.
    """
    erl = Path(shutil.which("erl") or os.devnull)
    if not erl.is_file() or "FEDMQ_RABBITMQ" in os.environ:
        return folder  # another RabbitMQ, or none: it starts as it does
    for kind in ("bin", "libraries", "plugins"):
        (folder / kind).mkdir(parents=True)
    for library in (erl.resolve().parents[1] / "lib").glob("*/ebin/*.app"):
        named = re.sub(
            r"{\s*modules\s*,\s*\[[^]]*]\s*}", "{modules,[]}", library.read_text("utf-8")
        )
        (folder / "libraries" / library.name).write_text(named, "utf-8")
    for plugin in _needed_plugins():
        (folder / "plugins" / plugin.name).symlink_to(plugin)
    script = folder / "bin" / "erl"
    script.write_text(
        f"#!/bin/sh\nexport RABBITMQ_PLUGINS_DIR='{folder / 'plugins'}'\n"
        f"exec '{erl}' -pa '{folder / 'libraries'}' \"$@\"\n"
    )
    script.chmod(0o755)
    return script.parent


def _needed_plugins() -> set[Path]:
    installed = {
        file.stem: file for file in COMMANDS.resolve().parent.glob("lib/*/plugins/*/ebin/*.app")
    }
    needed: set[str] = set()
    found = {"rabbit", "rabbitmq_prelaunch", *ENABLED}
    while found:
        needed |= found
        words = " ".join(installed[name].read_text("utf-8") for name in found if name in installed)
        lists = " ".join(re.findall(r"{\s*applications\s*,\s*\[([^]]*)]", words))
        found = {*re.findall(r"\w+", lists)} & {*installed} - needed
    return {installed[name].parents[1] for name in needed if name in installed}


class RabbitNode:
    """One node with the project's own files, whose federation ``demo`` is the example's.

    The user ``admin`` has all rights. Tests that need RabbitMQ do not skip without it: starting
    fails with the line that says how to install it.
    """

    FEDERATION = "demo"
    PARTIES = ("bank", "telco", "retail")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("rabbitmq.conf", "definitions.json"):
            shutil.copy(BROKER / name, directory)
        # The management page takes a second to start, and no test looks at it.
        (directory / "enabled_plugins").write_text("[].\n")

    @property
    def port(self) -> int:
        return int(self._record["port"])

    def url(self, user: str = "admin", password: str | None = None, vhost: str = "") -> str:
        """The AMQP URL of a user, with the example's password."""
        return f"amqp://{user}:{password or f'{user}-example'}@127.0.0.1:{self.port}/{vhost}"

    def start(self) -> None:
        """Start the node, with the data it had before, and wait until it serves."""
        self._node("start")

    def stop(self) -> None:
        """End the node in good order."""
        self._node("stop")

    def kill(self) -> None:
        """kill -9."""
        os.killpg(self._record["server_pid"], signal.SIGKILL)

    def restart(self) -> None:
        """kill -9, and start again."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop the node's clock: it neither answers nor hangs up."""
        os.killpg(self._record["server_pid"], signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen node go on."""
        os.killpg(self._record["server_pid"], signal.SIGCONT)

    def empty(self) -> None:
        """Drop what lies in the queues: the parties for which it was meant are gone."""

        self._of_queues(lambda queue: queue.purge())

    def waiting(self) -> int:
        """How many messages lie in the queues, dead letters among them."""

        async def count(queue: AbstractQueue) -> int:
            return queue.declaration_result.message_count or 0

        return sum(self._of_queues(count))

    def _of_queues(self, do: Callable[[AbstractQueue], Awaitable[Any]]) -> list[Any]:
        async def done() -> list[Any]:
            connection = await aio_pika.connect(self.url())
            async with connection, connection.channel() as channel:
                queues = topology(self.FEDERATION, self.PARTIES).queues
                return [await do(await channel.get_queue(each.name)) for each in queues]

        # Not in this thread, which may have an event loop of its own.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, done()).result()

    def discard(self) -> None:
        """End the node at once, for its data will not be needed again."""
        self.kill()
        self.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def remember_queues(self) -> None:
        """Write to the disk which queues there are: the node itself takes its time with it."""
        self.ctl("eval", "mnesia:dump_log().")

    def ctl(self, *arguments: str) -> None:
        """Run ``rabbitmqctl`` on this node."""
        record, data = self._record, self.directory / "data"
        subprocess.run(
            [COMMANDS / "rabbitmqctl", *arguments],
            check=True,
            capture_output=True,
            timeout=60,
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "LANG": "C.UTF-8",
                "HOME": str(data),
                "RABBITMQ_NODENAME": "fedmq@localhost",
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "ERL_EPMD_PORT": str(record["epmd_port"]),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
            },
        )

    @property
    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.directory / "data" / "node.json").read_text())
        return record

    def _node(self, action: str) -> None:
        done = subprocess.run(
            [str(BROKER / "node"), action, str(self.directory)],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
