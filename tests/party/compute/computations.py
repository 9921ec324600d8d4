"""Computations that worker processes of the tests import."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError


@dataclass(frozen=True, eq=False)
class SumUp:
    """The sum of an array, and whether the process could write to it."""

    array: NDArray[Any]

    def run(self) -> tuple[Any, bool]:
        return self.array.sum(), self.array.flags.writeable


@dataclass(frozen=True, eq=False)
class Copy:
    """The array itself."""

    array: NDArray[Any]

    def run(self) -> NDArray[Any]:
        return np.array(self.array)


@dataclass(frozen=True)
class ProcessId:
    """Where it runs."""

    def run(self) -> int:
        return os.getpid()


@dataclass(frozen=True)
class DieOnce:
    """Kills its process the first time; ``mark`` remembers that."""

    mark: Path
    value: int

    def run(self) -> int:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.value


@dataclass(frozen=True)
class DieAlways:
    """Kills its process."""

    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Fail:
    """Raises DataError."""

    def run(self) -> None:
        raise DataError("bank: data.csv, line 3: nonsense")
