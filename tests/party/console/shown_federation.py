"""The example federation with something to show: two models, one of them evaluated and served."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command import fedmq
from tests.party.daemons import ACTIVE, FEDMQ, PARTIES, ExampleFederation
from tests.rabbitmq_node import RabbitNode

__all__ = [
    "ASKS",
    "SERVED",
    "add_to_policy",
    "begin_training",
    "owner_asked",
    "start_with_consoles",
    "train_and_serve",
]

SERVED = "credit-2026"
SECOND = "credit-2026-with-a-rather-long-name"

ASKS = 'consent = "ask"'
"""What a policy says whose owner is asked."""

JOB = """
model = "%s"
engine = "paillier"
engine_options = { key_bits = 512, allow_weak_keys = true }
evaluation = 0.2
[params]
num_boost_round = %d
max_depth = 3
max_bin = 16
eval_metric = ["logloss", "auc"]
"""


def start_with_consoles(folder: Path, node: RabbitNode) -> ExampleFederation:
    """The example federation, whose daemons run and serve consoles."""
    federation = ExampleFederation(folder, node)
    for party in PARTIES:
        config = federation.config(party)
        config.write_text(f"{config.read_text()}[http]\nport = 0\nconsole = true\n")
    federation.start(*PARTIES)
    return federation


def add_to_policy(federation: ExampleFederation, line: str, *parties: str) -> None:
    """Write ``line`` into the policies of ``parties``, whose daemons take it up."""
    for party in parties:
        path = federation.config(party)
        path.write_text(path.read_text().replace("[policy]\n", f"[policy]\n{line}\n", 1))
        federation.daemons[party].process.send_signal(signal.SIGHUP)
        federation.daemons[party].wait_until_says("policy apply")


def begin_training(
    federation: ExampleFederation, model: str, trees: int
) -> subprocess.Popen[bytes]:
    """A training that goes on; the process is its command."""
    job = federation.job(JOB % (model, trees))
    return subprocess.Popen(
        [FEDMQ, "train", str(job)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@contextmanager
def owner_asked(federation: ExampleFederation, party: str, model: str) -> Iterator[None]:
    """A training of ``model`` waits for the consent of the owner of ``party``, who refuses it."""
    config = federation.config(party)
    before = config.read_text()
    add_to_policy(federation, ASKS, party)
    training = begin_training(federation, model, 50)
    try:
        while not (waiting := _waiting(config)):
            assert training.poll() is None
        yield
        for request in waiting:
            assert fedmq("refuse", config, request, "--reason", "ask in May").code == 0
        training.wait(60)
    finally:
        training.kill()
        config.write_text(before)
        federation.daemons[party].process.send_signal(signal.SIGHUP)


def _waiting(config: Path) -> list[str]:
    requests = fedmq("inbox", config, "--json").result
    return [found["request"] for found in requests if found["state"] == "waiting"]


def train_and_serve(federation: ExampleFederation, folder: Path) -> None:
    """Two models; the first is evaluated and served, and has answered a few times."""
    config = federation.config(ACTIVE)
    for model, trees in ((SERVED, 12), (SECOND, 4)):
        assert begin_training(federation, model, trees).wait(120) == 0
    done = fedmq("evaluate", config, SERVED, "--output", folder / "report", "--samples", "50")
    assert done.code == 0, done.err
    assert fedmq("models", "card", config, SERVED, "-o", folder / "a.card.json").code == 0
    assert fedmq("activate", config, SERVED, "--mode", "bitmap").code == 0
    for _ in range(3):
        assert fedmq("score", config, "P0000", "--json").code == 0
