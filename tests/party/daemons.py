"""The example federation as processes: its files, its daemons, and its broker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from examples.demo import make_tables
from fedmq.party.configuration.party import BROKER_VARIABLE
from tests.forked_command import ForkedProcess, forks
from tests.rabbitmq_node import RabbitNode

EXAMPLE = Path(make_tables.__file__).parent
ACTIVE, *PASSIVE = PARTIES = make_tables.PARTIES
_HIDES_SUMS = """\
engines = ["lattice", "ou", "paillier"]
engine_options.lattice = { sums = "hidden" }
engine_options.ou = { sums = "hidden" }
engine_options.paillier = { sums = "hidden" }
"""
_SHOWS_SUMS = """\
engines = ["paillier", "ou"]
engine_options.ou = { sums = "shown" }
engine_options.paillier = { sums = "shown" }
"""
FEDMQ = str(Path(sys.executable).with_name("fedmq"))


class Daemon:
    """One ``fedmq run``; its log is a file beside its configuration.

    ``prefix`` is what stands before the command, such as ``ip netns exec``.
    """

    def __init__(
        self, config: Path, broker: str | None = None, *more: str, prefix: Sequence[str] = ()
    ) -> None:
        self.log = config.with_suffix(".log")
        # A new file: what is left of a killed daemon still writes into the old one.
        self.log.unlink(missing_ok=True)
        with self.log.open("a") as log:
            environment = {**os.environ, **({BROKER_VARIABLE: broker} if broker else {})}
            self.process: ForkedProcess | subprocess.Popen[bytes]
            if prefix:
                self.process = subprocess.Popen(
                    [*prefix, FEDMQ, "run", str(config), *more],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            else:
                command = ["run", config, *more]
                self.process = forks().start(command, log, log, environment=environment)

    def wait_until_says(self, words: str, seconds: float = 90) -> None:
        """Wait for ``words`` in the log."""
        deadline = time.monotonic() + seconds
        while words not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def terminate(self) -> tuple[int, float]:
        """SIGTERM; the exit code, and the seconds it took."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60), time.monotonic() - begun

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def discard(self) -> None:
        """End the process, however it does."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


class ExampleFederation:
    """A copy of ``examples/demo`` with its tables, whose parties accept short keys.

    Where the example hides sums, these parties show them with paillier and ou: most tests want
    what is quick.
    """

    def __init__(self, folder: Path, broker: RabbitNode) -> None:
        self.folder = folder
        self.broker = broker
        self.daemons: dict[str, Daemon] = {}
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("state"))
        make_tables.main(folder)
        for party in PARTIES:
            text = self.config(party).read_text()
            assert _HIDES_SUMS in text
            self.config(party).write_text(
                text.replace(_HIDES_SUMS, _SHOWS_SUMS)
                + "allow_weak_keys = true\n[compute]\nworkers = 1\n"
            )

    def config(self, party: str) -> Path:
        """A party's configuration file."""
        return self.folder / party / "party.toml"

    def table(self, party: str) -> Path:
        """A party's training table."""
        return self.folder / party / "tables" / "training.csv"

    def state(self, party: str) -> Path:
        """A party's state folder."""
        return self.folder / party / "state"

    def models(self, party: str) -> list[str]:
        """What lies in the folder of a party's shares."""
        folder = self.state(party) / "models"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def job(self, text: str) -> Path:
        """A job file of the active party."""
        path = self.folder / ACTIVE / "job.toml"
        path.write_text(text)
        return path

    def start(self, *parties: str) -> None:
        """Start daemons, and wait until they are ready."""
        for party in parties:
            self.daemons[party] = Daemon(self.config(party), self.broker.url(party))
        for party in parties:
            self.daemons[party].wait_until_says(f"{party} is ready in demo")

    def discard(self) -> None:
        """End all daemons."""
        for daemon in self.daemons.values():
            daemon.discard()
