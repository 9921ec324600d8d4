"""What do commands import, and how long does that take?"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

__all__ = ["COMMANDS", "Started", "started"]

COMMANDS = ("import fedmq", "fedmq --help", "fedmq status")


class Started(NamedTuple):
    """A new interpreter that has done something."""

    modules: tuple[str, ...]
    """The modules of fedmq that it imported."""
    seconds: float
    """Its processor time, from start to end."""


def started(command: str) -> Started:
    """One of ``COMMANDS`` in a new interpreter. No daemon answers ``fedmq status``."""
    with tempfile.TemporaryDirectory() as folder:
        if command == "import fedmq":
            program = ["-c", command]
        else:
            program = ["-c", "from fedmq.cli.main import main; main()", *command.split()[1:]]
        if command == "fedmq status":
            program.append(str(_party_file(Path(folder))))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *program],
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    modules = (line.rpartition("|")[2].strip() for line in lines)
    return Started(
        tuple(sorted({module for module in modules if module.split(".")[0] == "fedmq"})),
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def _party_file(folder: Path) -> Path:
    (folder / "federation.toml").write_text('name = "demo"\nactive = "bank"\npassive = ["telco"]\n')
    party = folder / "party.toml"
    party.write_text(
        'party = "bank"\nfederation = "federation.toml"\n'
        'broker = "amqp://bank:secret@127.0.0.1:1/"\n'
        '[data]\npath = "data.csv"\nid = "id"\nlabel = "label"\n'
    )
    return party
