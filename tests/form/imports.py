"""What do commands import, and how long does that take?"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["COMMANDS", "imported", "seconds", "slowness"]

COMMANDS: Mapping[str, float] = {
    "import fedmq": 0.15,
    "fedmq --help": 0.3,
    "fedmq status": 0.6,
}
"""What people start all day, and the seconds of processor time that it may take."""

_LIBRARIES = "import asyncio, click, pydantic, pydantic.types, rich.console, rich.text"
_LIBRARIES_SECONDS = 0.25
"""The processor time of importing these where the seconds of ``COMMANDS`` hold."""


def imported(command: str) -> set[str]:
    """The modules that one of ``COMMANDS`` imports. No daemon answers ``fedmq status``."""
    with _arguments(command) as arguments:
        said, _ = _run("-X", "importtime", *arguments)
    lines = [line for line in said.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def seconds(command: str) -> float:
    """The processor time of one of ``COMMANDS`` in a new interpreter, from start to end."""
    with _arguments(command) as arguments:
        return _run(*arguments)[1]


def slowness() -> float:
    """How many times slower this machine is now than where the seconds hold; at least 1."""
    return max(1.0, min(_run("-c", _LIBRARIES)[1] for _ in range(5)) / _LIBRARIES_SECONDS)


@contextmanager
def _arguments(command: str) -> Iterator[list[str]]:
    """The arguments with which an interpreter carries out ``command``."""
    with tempfile.TemporaryDirectory() as folder:
        if command == "import fedmq":
            yield ["-c", command]
            return
        arguments = ["-c", "from fedmq.cli.main import main; main()", *command.split()[1:]]
        if command == "fedmq status":
            arguments.append(str(_party_file(Path(folder))))
        yield arguments


def _run(*arguments: str) -> tuple[str, float]:
    """What a new interpreter says to standard error, and its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True, timeout=60
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
