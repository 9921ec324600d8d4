"""About whom was asked by groups of a column? Kept for as long as the column may be asked about."""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically

__all__ = ["GroupQuestion", "GroupQuestions", "hashed_ids"]


@dataclass(frozen=True, slots=True, eq=False)
class GroupQuestion:
    """An answered question about ``people``: uint64 hashes, ascending."""

    people: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class GroupQuestions:
    """The questions of the party with this state folder: a file each, in a folder per column."""

    state: Path
    clock: Callable[[], float] = time.time

    @contextmanager
    def alone(self, column: str) -> Iterator[None]:
        """Lock the questions about ``column`` against other readers and writers.

        Two questions at once would not be compared with each other. Raises ConfigError if the
        disk refuses.
        """
        path = self._folder(column) / "lock"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = path.open("wb")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def about(self, column: str) -> Iterator[GroupQuestion]:
        """All kept questions; DataError if a file is damaged."""
        folder = self._folder(column)
        for path in sorted(folder.glob("*.people")) if folder.is_dir() else ():
            try:
                data = path.read_bytes()
                people = np.frombuffer(data, "<u8").astype(np.uint64)
                yield GroupQuestion(people)
            except (OSError, ValueError):
                raise DataError(f"{path}: is damaged; restore it from a backup") from None

    def asked_since(self, at: float, column: str) -> int:
        """Number of questions that began after ``at`` (Unix seconds), answered or not.

        Those of before are not counted again.
        """
        count = 0
        for path in list(self._folder(column).glob("*.asked")):
            if int(path.stem.partition("-")[0]) / 1000 > at:
                count += 1
            else:
                path.unlink(missing_ok=True)
        return count

    def begin(self, column: str, session: str) -> None:
        """Count a question; ConfigError if the disk refuses."""
        self._write(column, f"{int(self.clock() * 1000)}-{session}.asked", b"")

    def keep(self, column: str, session: str, people: NDArray[np.uint64]) -> None:
        """Keep a question that is about to be answered; ConfigError if the disk refuses."""
        data = np.sort(people).astype("<u8").tobytes()
        self._write(column, f"{int(self.clock() * 1000)}-{session}.people", data)

    def _write(self, column: str, name: str, data: bytes) -> None:
        path = self._folder(column) / name
        try:
            write_atomically(path, data, 0o600)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    def _folder(self, column: str) -> Path:
        digest = hashlib.blake2b(column.encode(), digest_size=8).hexdigest()
        return self.state / "group-questions" / digest


def hashed_ids(ids: Sequence[str]) -> NDArray[np.uint64]:
    """A hash of each id: uint64 (ids,)."""
    digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in ids]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
