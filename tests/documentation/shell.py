"""A shell in which one line is typed after another, as a reader does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


class Shell:
    """A bash that stays open; all that it and its jobs print is one log."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "shell.log"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with self.log.open("w") as log:
            self._bash = subprocess.Popen(
                ["bash", "--noprofile", "--norc"],
                cwd=folder,
                env={**os.environ, "PATH": path, "BROWSER": "true"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self._typed = 0
        self.type("set -m")

    def type(self, lines: str, seconds: float = 240) -> str:
        """What ``lines`` print. All must end with 0; those with ``&`` go on."""
        self._typed += 1
        before = len(self.log.read_text())
        assert self._bash.stdin is not None
        for line in lines.replace("\\\n", " ").splitlines():
            self._write(f"{line}\n__ended=$?; test $__ended = 0 || echo '<ended with' $__ended'>'")
        self._write(f"echo '<typed {self._typed}>'")
        printed = self.wait_until_says(f"<typed {self._typed}>\n", seconds)[before:]
        assert "<ended with" not in printed, printed
        return printed

    def wait_until_says(self, words: str, seconds: float, times: int = 1) -> str:
        """The log, when ``words`` are in it so many times."""
        deadline = time.monotonic() + seconds
        while self.log.read_text().count(words) < times:
            assert self._bash.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return self.log.read_text()

    def close(self) -> None:
        """End the shell and what it still runs."""
        self._write("kill $(jobs -p) 2>/dev/null; wait; exit")
        self._bash.communicate(timeout=60)

    def _write(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{line}\n")
        self._bash.stdin.flush()
