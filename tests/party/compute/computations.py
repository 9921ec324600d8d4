"""Computations that worker processes of the tests import."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError


@dataclass(frozen=True, eq=False)
class SumUp:
    """The sum of an array, and whether the process could write to it."""

    label: ClassVar[str] = "SumUp"
    array: NDArray[Any]

    def run(self) -> tuple[Any, bool]:
        return self.array.sum(), self.array.flags.writeable


@dataclass(frozen=True, eq=False)
class Copy:
    """The array itself."""

    label: ClassVar[str] = "Copy"
    array: NDArray[Any]

    def run(self) -> NDArray[Any]:
        return np.array(self.array)


@dataclass(frozen=True)
class ProcessId:
    """Where it runs."""

    label: ClassVar[str] = "ProcessId"
    brief: bool = False

    def run(self) -> int:
        return os.getpid()


@dataclass(frozen=True)
class DieOnce:
    """Kills its process the first time; ``mark`` remembers that."""

    label: ClassVar[str] = "DieOnce"
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

    label: ClassVar[str] = "DieAlways"

    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Fail:
    """Raises DataError."""

    label: ClassVar[str] = "Fail"

    def run(self) -> None:
        raise DataError("bank: data.csv, line 3: nonsense")
