"""A federation of real daemons around a real broker, to be treated badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.errors import DaemonError
from fedmq.party.configuration.federation import pin
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.identity import private_keys as private_keys
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.operations.control import request_daemon, send_request
from fedmq.party.store.documents import ModelStore
from fedmq.transport.sealing.keys import PrivateKeys
from tests.chaos.proxy import Proxy
from tests.chaos.stepped_clock import ClockFile
from tests.forked_command import ForkedProcess, forks
from tests.rabbitmq_node import RabbitNode

PARTIES = ("bank", "telco", "retail")
FEDMQ = [sys.executable, "-c", "from fedmq.cli.main import main; main()"]

# Waits are short, so that a test sees in seconds what takes minutes in the field.
_RETRY = """
[retry]
first = 0.5
ceiling = 2.0
probe = 1.0
"""


def write_tables(folder: Path, rows: int, seed: int = 0) -> None:
    """Made-up people with missing values: three columns at each party, and a label at the bank."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 9)).round(2)
    label = (X @ np.linspace(-1, 1, 9) + random.normal(size=rows) * 0.5 > 0).astype(int)
    holes = random.random(X.shape) < 0.1
    for number, party in enumerate(PARTIES):
        names = ["id", *(["label"] if party == "bank" else []), *(f"x{each}" for each in range(3))]
        lines = [",".join(names)]
        for row in range(rows):
            cells = [f"p{row}", *([str(label[row])] if party == "bank" else [])]
            own = range(3 * number, 3 * number + 3)
            cells.extend("" if holes[row, column] else str(X[row, column]) for column in own)
            lines.append(",".join(cells))
        (folder / party).mkdir(exist_ok=True)
        (folder / party / "data.csv").write_text("\n".join(lines) + "\n")


class DaemonProcess:
    """One party's ``fedmq run``, reaching the broker through a proxy of its own."""

    def __init__(self, folder: Path, party: str, broker_port: int) -> None:
        self.party = party
        self.file = folder / party / "party.toml"
        self.state = folder / party / "state"
        self.log = folder / party / "daemon.log"
        self.proxy = Proxy(broker_port)
        self.clock = ClockFile(folder / party / "clock")
        self._process: ForkedProcess | subprocess.Popen[bytes] | None = None
        self._said_before, self._ready = 0, False
        label = 'label = "label"\n' if party == "bank" else ""
        self.file.write_text(
            f'party = "{party}"\nfederation = "../federation.toml"\n'
            f'broker = "amqp://{party}:{party}-example@127.0.0.1:{self.proxy.port}/"\n'
            f'wait_for_broker = true\n[data]\npath = "data.csv"\nid = "id"\n{label}'
            "[compute]\nworkers = 1\n[policy]\n"
            'engines = ["plain", "paillier", "ou", "ldp", "lattice"]\n'
            f"allow_weak_keys = true\n{_RETRY}"
        )
        ring = KeyRing(party, PrivateKeys.generate())
        private_keys.write(self.file.with_name("keys.json"), ring)
        pin(folder / "federation.toml", party, [ring.current.public])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, ready: bool = True) -> float:
        """Start, and return after how many seconds it was ready; at once if that is no matter."""
        begun, self._said_before, self._ready = time.monotonic(), len(self.said), False
        with self.log.open("ab") as log:
            self._process = forks().start(
                ["run", "-v", self.file],
                log,
                log,
                environment={**os.environ, **self.clock.environment},
            )
        if ready:
            self.await_ready()
        return time.monotonic() - begun

    def adopt(self, process: subprocess.Popen[bytes]) -> None:
        """Take ``process``, a daemon of another release, as this party's, and wait for it."""
        self._process, self._said_before, self._ready = process, len(self.said), False
        self.await_ready()

    def await_ready(self) -> None:
        """Return when it has said that it is ready since its last start."""
        assert self._process is not None
        deadline = time.monotonic() + 180
        while not self.is_ready:
            assert self._process.poll() is None, self.said[-3000:]
            assert time.monotonic() < deadline, self.said[-3000:]
            time.sleep(0.02)

    @property
    def is_ready(self) -> bool:
        """Whether it has said so since its last start."""
        self._ready = self._ready or "is ready in" in self.said[self._said_before :]
        return self._ready

    @property
    def open_files(self) -> int:
        """How many files and sockets its process holds open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def await_words(self, words: str) -> None:
        """Return when it has said these since its last start."""
        deadline = time.monotonic() + 180
        while words not in self.said[self._said_before :]:
            assert time.monotonic() < deadline, self.said[-3000:]
            time.sleep(0.05)

    @property
    def said(self) -> str:
        """Its log."""
        return self.log.read_text() if self.log.exists() else ""

    def kill(self) -> None:
        """kill -9, with its compute workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._reap()

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout=60)

    def freeze(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def reload(self, says: str = "keys and policy apply") -> None:
        """SIGHUP, and wait for what it ``says`` about it."""
        begun, said = time.monotonic(), len(self.said)
        os.kill(self.pid, signal.SIGHUP)
        while says not in self.said[said:]:
            assert time.monotonic() < begun + 20, self.said[-3000:]
            time.sleep(0.02)

    def fill_disk(self) -> None:
        """From now on no file of this party can grow beyond what its store needs to exist."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    def clear_disk(self) -> None:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, unlimited)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGCONT)
            self.kill()
        self.proxy.close()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait(timeout=60)


class ChaosFederation:
    """Three parties and their broker."""

    def __init__(self, folder: Path, node: RabbitNode, rows: int = 300) -> None:
        self.folder = folder
        self.node = node
        # What was said to the daemons of an earlier test is under keys that these do not know.
        node.empty()
        self.file = folder / "federation.toml"
        self._whole = ""
        self.file.write_text('name = "demo"\nactive = "bank"\npassive = ["telco", "retail"]\n')
        write_tables(folder, rows)
        self.daemons = {party: DaemonProcess(folder, party, node.port) for party in PARTIES}

    @property
    def bank(self) -> DaemonProcess:
        return self.daemons["bank"]

    def start(self) -> None:
        for daemon in self.daemons.values():
            daemon.start()

    def close(self) -> None:
        for daemon in self.daemons.values():
            daemon.close()

    def leave(self, party: str) -> None:
        """Take ``party`` out of the federation's file; daemons know of it once they reload."""
        self._whole = whole = self.file.read_text()
        listed = re.sub(rf', "{party}"|"{party}", ', "", whole).splitlines()
        self.file.write_text("\n".join(line for line in listed if not line.startswith(party)))
        assert party not in self.file.read_text()

    def come_back(self) -> None:
        """The federation is as it was before the last ``leave``."""
        self.file.write_text(self._whole)

    def ask(self, party: str, do: str, **request: Any) -> Any:
        """What the daemon of ``party`` answers; an error has the last words of all daemons."""
        try:
            return request_daemon(self.daemons[party].state, {"do": do, **request})
        except DaemonError as error:
            error.add_note(self.tell())
            raise

    def train(
        self,
        model: str,
        trees: int,
        engine: str = "plain",
        engine_options: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> str:
        """Ask for a training without waiting for its end; the session.

        Raises:
            DaemonError: the daemon was hit before it had taken the request down.
        """
        given = {"num_boost_round": trees, "max_depth": 3, "max_bin": 16}
        params = given | {"xgboost_arithmetic": OLDEST} | params
        weak = {"key_bits": 512, "allow_weak_keys": True} if engine in ("paillier", "ou") else {}
        job = TrainingJob(
            model=model,
            engine=engine,
            engine_options=engine_options or weak,
            evaluation=0.2,
            params=TrainParams(**params),
        )
        request = {"do": "train", "job": job.model_dump(mode="json")}

        async def opened() -> str:
            async for event in send_request(self.bank.state, request):
                return str(event["session"])
            raise AssertionError("a daemon that answers says at least one thing")

        return asyncio.run(opened())

    def session(self, session: str, party: str = "bank") -> dict[str, Any]:
        """The status of a session."""
        sessions = self.ask(party, "status")["sessions"]
        return next((each for each in sessions if each["session"] == session), {})

    def await_status(
        self, session: str, seen: Callable[[dict[str, Any]], bool], party: str = "bank"
    ) -> dict[str, Any]:
        """The first status of a session that ``seen`` accepts."""
        deadline = time.monotonic() + 180
        while not seen(status := self.session(session, party)):
            assert time.monotonic() < deadline, f"{status}\n{self.tell()}"
            time.sleep(0.05)
        return status

    def settled(self, model: str, party: str = "bank") -> tuple[str, str] | None:
        """State and reason of the session of ``model`` in the store of ``party``."""
        path = self.daemons[party].state / "fedmq.sqlite"
        if not path.exists():
            return None
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as store:
            query = "SELECT state, reason FROM sessions WHERE model = ?"
            found: tuple[str, str] | None = store.execute(query, (model,)).fetchone()
        return found

    def await_ends(self, model: str) -> dict[str, tuple[str, str]]:
        """State and reason at each party, once the session of ``model`` has ended at all."""
        deadline = time.monotonic() + 180
        while True:
            ends = {party: self.settled(model, party) for party in PARTIES}
            over = {party: end for party, end in ends.items() if end and end[0] != "running"}
            if len(over) == len(PARTIES):
                return over
            assert time.monotonic() < deadline, f"{ends}\n{self.tell()}"
            time.sleep(0.05)

    def job(self, model: str) -> dict[str, Any]:
        """What the active party's store says of the training of ``model``."""
        path = self.bank.state / "fedmq.sqlite"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as store:
            query = "SELECT job FROM sessions WHERE model = ?"
            [text] = store.execute(query, (model,)).fetchone()
        job: dict[str, Any] = json.loads(text)
        return job

    def shares(self, model: str) -> dict[str, str]:
        """What each party keeps of ``model``, where it is on disk already; not of which training.

        No two trainings have the same session.
        """
        paths = {party: ModelStore(each.state).path(model) for party, each in self.daemons.items()}
        kept = {party: path.read_text() for party, path in paths.items() if path.exists()}
        return {
            party: json.dumps({**json.loads(text), "training": ""}) for party, text in kept.items()
        }

    def await_shares(self, models: Sequence[str], seconds: float) -> None:
        """Return when every party has its share of all ``models``."""
        deadline = time.monotonic() + seconds
        while any(len(self.shares(model)) < len(PARTIES) for model in models):
            assert time.monotonic() < deadline, self.tell()
            time.sleep(0.05)

    def equal(self, model: str, other: str) -> bool:
        """Whether all parties keep the same of both models, bit for bit."""
        shares = self.shares(model)
        alike = {party: text.replace(f'"{model}"', f'"{other}"') for party, text in shares.items()}
        return len(alike) == len(PARTIES) and alike == self.shares(other)

    def dead_letters(self, party: str) -> str:
        """What a party says about the messages that it put aside, and how each came about."""
        said = self.daemons[party].said
        at = [place.start() for place in re.finditer("dead-lettered|cannot handle message", said)]
        return "\n".join(said[max(0, place - 1500) : place + 2500] for place in at)

    def tell(self) -> str:
        """The last words of all daemons."""
        return "\n".join(
            f"--- {party}\n{daemon.said[-2500:]}" for party, daemon in self.daemons.items()
        )
