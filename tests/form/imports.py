"""What do commands import, and how long does that take?"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["COMMANDS", "Started", "slowness", "started"]

COMMANDS: Mapping[str, float] = {
    "import fedmq": 0.15,
    "fedmq --help": 0.3,
    "fedmq status": 0.6,
}
"""What people start all day, and the seconds of processor time that it may take."""

_LOOP = "sum(number * number for number in range(2_000_000))"
_LOOP_SECONDS = 0.2
"""The processor time of the loop where the seconds of ``COMMANDS`` hold."""


class Started(NamedTuple):
    """A new interpreter that has done something."""

    modules: tuple[str, ...]
    """The modules that it imported."""
    seconds: float
    """Its processor time, from start to end."""

    @property
    def of_fedmq(self) -> tuple[str, ...]:
        """The modules of fedmq among them."""
        return tuple(module for module in self.modules if module.partition(".")[0] == "fedmq")


def started(command: str) -> Started:
    """One of ``COMMANDS`` in a new interpreter. No daemon answers ``fedmq status``."""
    with tempfile.TemporaryDirectory() as folder:
        if command == "import fedmq":
            program = ["-c", command]
        else:
            program = ["-c", "from fedmq.cli.main import main; main()", *command.split()[1:]]
        if command == "fedmq status":
            program.append(str(_party_file(Path(folder))))
        said, seconds = _run("-X", "importtime", *program)
    lines = [line for line in said.splitlines() if line.startswith("import time:")]
    modules = (line.rpartition("|")[2].strip() for line in lines)
    return Started(tuple(sorted(set(modules))), seconds)


def slowness() -> float:
    """How many times slower this machine is now than where the seconds hold; at least 1."""
    return max(1.0, min(_run("-c", _LOOP)[1] for _ in range(3)) / _LOOP_SECONDS)


def _run(*program: str) -> tuple[str, float]:
    """What a new interpreter says to standard error, and its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *program], check=False, capture_output=True, text=True, timeout=60
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return done.stderr, used


def _party_file(folder: Path) -> Path:
    (folder / "federation.toml").write_text('name = "demo"\nactive = "bank"\npassive = ["telco"]\n')
    party = folder / "party.toml"
    party.write_text(
        'party = "bank"\nfederation = "federation.toml"\n'
        'broker = "amqp://bank:secret@127.0.0.1:1/"\n'
        '[data]\npath = "data.csv"\nid = "id"\nlabel = "label"\n'
    )
    return party
