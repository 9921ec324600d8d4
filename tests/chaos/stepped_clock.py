"""The wall clock of a process, as another one sets it: somebody who serves it the time is wrong."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ClockFile", "follow", "make_steppable"]

_OFFSET = struct.Struct("d")
_WHERE = "FEDMQ_TEST_CLOCK"
_followed: list[mmap.mmap] = []


class ClockFile:
    """Says by how many seconds the clock of the processes that follow it is wrong."""

    def __init__(self, path: Path) -> None:
        self.environment = {_WHERE: str(path)}
        path.write_bytes(_OFFSET.pack(0.0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _OFFSET.size)

    def step(self, seconds: float) -> None:
        """Set it wrong by so much, at once."""
        _OFFSET.pack_into(self._shared, 0, seconds)


def make_steppable() -> None:
    """Let `time.time` of this process follow a clock file; before anything keeps the function."""
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + _wrong_by()
    time.time_ns = lambda: nanoseconds() + int(_wrong_by() * 1e9)


def follow(environment: Mapping[str, str]) -> None:
    """Follow the clock file that ``environment`` names, if any."""
    if _WHERE not in environment:
        return
    with Path(environment[_WHERE]).open("rb") as file:
        _followed.append(mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ))
    # What is counted in days is looked at every ten minutes, longer than a wrong clock lasts here.
    from fedmq.party.sessions import recovery

    recovery._STEP_SECONDS = 2.0


def _wrong_by() -> float:
    return float(_OFFSET.unpack_from(_followed[0])[0]) if _followed else 0.0
