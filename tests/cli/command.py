"""The ``fedmq`` command as people type it: a process, its output and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forked_command import forks
from tests.party.daemons import FEDMQ


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> Any:
        """The one line of JSON that it printed."""
        assert self.code == 0, self.err
        [line] = self.out.splitlines()
        return json.loads(line)

    @property
    def error(self) -> str:
        """The one line that says what is wrong."""
        assert self.out == ""
        line = self.err.splitlines()[-1]
        assert line.startswith("fedmq: ")
        assert "Traceback" not in self.err
        return line.removeprefix("fedmq: ")


def fedmq(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Outcome:
    """Run ``fedmq ARGUMENTS``."""
    if not environment:
        done = forks().run(arguments, cwd)
    else:
        done = subprocess.run(
            [FEDMQ, *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            timeout=280,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
    return Outcome(done.returncode, done.stdout, done.stderr)
