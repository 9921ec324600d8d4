"""Three daemons as processes on a private node, with a model that was trained beforehand."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from fedmq import TrainParams, simulate
from fedmq.party.configuration.party import BROKER_VARIABLE
from fedmq.party.store.documents import ModelStore
from tests.forked_command import ForkedProcess, forks
from tests.free_port import free_port
from tests.rabbitmq_node import RabbitNode

PARTIES = ("bank", "telco", "retail")
TOKEN = "token-of-the-tests"


def fedmq(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    done = forks().run(arguments, timeout=280)
    if check:
        done.check_returncode()
    return done


class ServingFederation:
    """Columns of ``table`` dealt out to bank, telco and retail; ``models`` by id.

    The broker is ``node``, or one of its own, with which the parties speak TLS.
    """

    def __init__(
        self,
        folder: Path,
        table: NDArray[np.float32],
        label: NDArray[np.int64],
        params: Sequence[TrainParams],
        online: str = "",
        unknown_at_telco: int = 0,
        node: RabbitNode | None = None,
    ) -> None:
        self.folder = folder
        self.broker = node
        port = free_port()
        passives = [argument for party in PARTIES[1:] for argument in ("--passive", party)]
        address = ("--no-tls",) if node else ("--broker", f"127.0.0.1:{port}")
        fedmq("init", folder, "--active", "bank", *passives, *address)
        self.broker_port = port
        self.http_port = free_port()
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.ids = [f"P{row:05d}" for row in range(len(table))]
        self.table = table
        self.margins: dict[str, NDArray[np.float32]] = {}
        self.boosters: dict[str, xgboost.Booster] = {}
        self.processes: dict[str, ForkedProcess] = {}
        self._ready_before: Counter[str] = Counter()
        parts = np.array_split(np.arange(table.shape[1]), 3)
        self.columns = {party: table[:, part] for party, part in zip(PARTIES, parts, strict=True)}
        for party in PARTIES:
            skip = unknown_at_telco if party == "telco" else 0
            self._write_data(party, label, skip)
            self._configure(party, online)
        for number, params_of_model in enumerate(params, 1):
            self._train(f"model-{number}", label, params_of_model)

    def _write_data(self, party: str, label: NDArray[np.int64], skip: int) -> None:
        columns = self.columns[party]
        names = [f"f{place}" for place in range(columns.shape[1])]
        with (self.folder / party / "data.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(["label"] if party == "bank" else []), *names])
            for row in range(skip, len(columns)):
                # repr of the float32 as a float64 comes back as the same float32
                cells = ["" if np.isnan(x) else repr(float(x)) for x in columns[row]]
                writer.writerow(
                    [self.ids[row], *([int(label[row])] if party == "bank" else []), *cells]
                )

    def _configure(self, party: str, online: str) -> None:
        path = self.folder / party / "party.toml"
        text = path.read_text()
        text = re.sub(r"engines = \[.*\]", 'engines = ["plain", "paillier", "ou"]', text)
        if party != "bank":
            text = text.replace("[policy]\n", '[policy]\nexplain = "column"\n')
        text = text.replace("[data]\n", f'[data]\nreasons = {{ f1 = "f1 of {party}" }}\n')
        text = re.sub(r"\[online\]\nmodes? = .*\n", "", text)
        text += "\n[compute]\nworkers = 1\n\n[online]\n" + online + "\n"
        if party == "bank":
            text += f'\n[http]\nport = {self.http_port}\ntokens = ["{TOKEN}"]\n'
        path.write_text(text)

    def _train(self, model: str, label: NDArray[np.int64], params: TrainParams) -> None:
        trained = simulate(
            active=self.columns["bank"],
            label=label,
            passive={party: self.columns[party] for party in PARTIES[1:]},
            params=params,
            engine="plain",
        )
        share = trained.share.model_copy(update={"model_id": model, "parties": PARTIES})
        ModelStore(self.folder / "bank" / "state").save(share)
        for party, passive_share in trained.passive_shares.items():
            renamed = passive_share.model_copy(update={"model_id": model})
            ModelStore(self.folder / party / "state").save(renamed)
        booster = self.boosters[model] = trained.to_xgboost()
        matrix = xgboost.DMatrix(self.table, feature_names=booster.feature_names)
        self.margins[model] = booster.predict(matrix, output_margin=True)

    def columns_used(self, party: str, model: str) -> list[str]:
        """The columns of ``party`` in the order in which its records use them first."""
        table = ModelStore(self.folder / party / "state").passive(model).lookup_table
        return [table.feature_names[feature] for feature in dict.fromkeys(table.feature.tolist())]

    # Processes.

    def start_broker(self) -> None:
        """Start its own, without the management page, which takes a second to start."""
        plugins = self.folder / "broker" / "enabled_plugins"
        plugins.write_text("[rabbitmq_auth_mechanism_ssl].\n")
        self._node("start", "--port", str(self.broker_port))

    def restart_broker(self) -> None:
        """kill -9, and start again."""
        self._signal_broker(signal.SIGKILL)
        self._node("start")

    @contextmanager
    def frozen_broker(self) -> Iterator[None]:
        """Its clock stands still: it neither answers nor hangs up."""
        self._signal_broker(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal_broker(signal.SIGCONT)

    def _signal_broker(self, number: int) -> None:
        record = json.loads((self.folder / "broker" / "data" / "node.json").read_text())
        os.killpg(record["server_pid"], number)

    def _node(self, *arguments: str) -> None:
        action, *rest = arguments
        broker = self.folder / "broker"
        done = subprocess.run(
            [str(broker / "node"), action, str(broker), *rest],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip())

    def start(self, *parties: str) -> None:
        """Start the daemons of ``parties``, all if none is named, and wait until they are ready."""
        chosen = parties or PARTIES
        for party in chosen:
            with (self.folder / f"{party}.log").open("ab") as log:
                command = ["run", self.folder / party / "party.toml"]
                environment = dict(os.environ)
                if self.broker is not None:
                    environment[BROKER_VARIABLE] = self.broker.url(party)
                self.processes[party] = forks().start(command, log, log, environment=environment)
        for party in chosen:
            self._wait_ready(party)

    def _wait_ready(self, party: str) -> None:
        for _ in range(1800):
            log = (self.folder / f"{party}.log").read_text()
            if log.count("is ready in") > self._ready_before[party]:
                self._ready_before[party] = log.count("is ready in")
                return
            assert self.processes[party].poll() is None, log
            time.sleep(0.05)
        raise AssertionError(f"{party} does not get ready: {log}")

    def kill(self, party: str) -> None:
        """kill -9."""
        self.processes[party].kill()
        self.processes[party].wait()

    def stop(self) -> None:
        """End everything."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if (self.folder / "broker" / "data" / "node.json").exists():
            self._node("stop")

    def activate(self, model: str, mode: str = "hop") -> Any:
        party = self.folder / "bank" / "party.toml"
        done = fedmq("activate", party, model, "--mode", mode, "--json", check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
