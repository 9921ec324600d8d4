"""End what a test run leaves behind when it is killed: brokers, databases, daemons.

::

    python tests/left_behind.py FOLDER

waits until its standard input ends, as it does when the run ends in any way, and then kills every
process that knows FOLDER, by its command, its working directory or its environment: all but those
that it descends from, and the trackers of semaphores, which end with the last process they serve.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Set
from pathlib import Path

_ROUNDS, _SECONDS = 20, 0.1
_TRACKER = b"resource_tracker import main"
"""Python's and loky's: a test run tells its own of the last semaphores after its last fixture."""


def watch(folder: Path) -> subprocess.Popen[bytes]:
    """A process that ends what knows ``folder``, once this one has ended or closed its input."""
    return subprocess.Popen(
        [sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )


def ancestors() -> Iterator[int]:
    """This process, its parent, and so on."""
    process = os.getpid()
    while process > 0:
        yield process
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def left(folder: Path, spared: Set[int]) -> Iterator[int]:
    """The processes that know ``folder``."""
    marks = (f"{folder}/".encode(), f"{folder}\0".encode())
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) in spared:
            continue
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if _TRACKER in command:
                continue
            known = b"\0".join(
                (
                    command,
                    (process / "environ").read_bytes(),
                    os.fsencode((process / "cwd").readlink()),
                    b"",
                )
            )
            if any(mark in known for mark in marks):
                yield int(process.name)


def main() -> None:
    folder, spared = Path(sys.argv[1]), frozenset(ancestors())
    sys.stdin.buffer.read()
    for _ in range(_ROUNDS):  # one that is killed may have started another meanwhile
        found = list(left(folder, spared))
        if not found:
            return
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_SECONDS)


if __name__ == "__main__":
    main()
