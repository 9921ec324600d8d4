"""The example federation with something to show: two models, one of them evaluated and served."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cli.command import fedmq
from tests.party.daemons import ACTIVE, FEDMQ, PARTIES, ExampleBroker, ExampleFederation

__all__ = ["SERVED", "begin_training", "start_with_consoles", "train_and_serve"]

SERVED = "credit-2026"
SECOND = "credit-2026-with-a-rather-long-name"

JOB = """
model = "%s"
engine_options = { key_bits = 512, allow_weak_keys = true }
evaluation = 0.2
[params]
num_boost_round = %d
max_depth = 3
max_bin = 16
eval_metric = ["logloss", "auc"]
"""


def start_with_consoles(folder: Path, broker: ExampleBroker) -> ExampleFederation:
    """The example federation, whose daemons run and serve consoles."""
    federation = ExampleFederation(folder, broker)
    for party in PARTIES:
        config = federation.config(party)
        config.write_text(f"{config.read_text()}[http]\nport = 0\nconsole = true\n")
    federation.start(*PARTIES)
    return federation


def begin_training(
    federation: ExampleFederation, model: str, trees: int
) -> subprocess.Popen[bytes]:
    """A training that goes on; the process is its command."""
    job = federation.job(JOB % (model, trees))
    return subprocess.Popen(
        [FEDMQ, "train", str(job)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


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
