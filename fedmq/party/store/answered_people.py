"""About whom was answered before?

Two answers about nearly the same people tell, by their difference, of the few who are in only one
of them; so do several answers, added and subtracted. `AnsweredPeopleStore` keeps the people of all
trainings, and refuses their neighbours. `GroupQuestions` keeps the people of questions about groups
of a column, for as long as the column may be asked about.

Trainings are kept as sketches: each person counts, with a secret sign, in one of 1,024 numbers, and
once more in another 1,024 (Charikar, Chen and Farach-Colton, ICALP 2002). A sketch says nothing of
anybody to a reader without the secret, is 4 kB long for any number of people, and is linear: the
sketch of a difference is the difference of the sketches, and shows how many people differ.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import ConfigError, DataError, Refused
from fedmq.party.atomic_file import write_whole
from fedmq.party.store.database import Database
from fedmq.protocol.session_records import PeopleAnswered

__all__ = [
    "SECRET_BYTES",
    "AnsweredPeopleStore",
    "Combination",
    "EarlierPeople",
    "GroupQuestion",
    "GroupQuestions",
    "combination",
    "compare_people",
    "people_in",
    "sketch_of",
]

# Sketches

_NUMBERS = 1024
_HALVES = 2
SECRET_BYTES = 16 * _HALVES
"""Of a secret: two keys for each half."""

_MISSED = 0.9
"""Two people may cancel each other: of about fifty, two or four are missed at times."""

_FEW = 100.0
"""Of more people many cancel each other."""


def sketch_of(people: NDArray[np.uint64], secret: bytes) -> NDArray[np.int32]:
    """The sketch of ``people``, hashes of their ids: int32 (2 * 1024,)."""
    keys = np.frombuffer(secret, "<u8").astype(np.uint64).reshape(_HALVES, 2)
    halves = []
    for first, second in keys:
        mixed = _mixed(_mixed(people ^ first) ^ second)
        places = (mixed % np.uint64(_NUMBERS)).astype(np.intp)
        signs = 1.0 - 2.0 * (mixed >> np.uint64(63)).astype(np.float64)
        halves.append(np.bincount(places, signs, _NUMBERS))
    return np.concatenate(halves).astype(np.int32)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def people_in(sketch: NDArray[np.float64]) -> float:
    """How many people a difference or combination with this sketch is about, or a few less.

    It misses people who cancel each other, and never counts too many of a few. Of many it takes the
    squared length (Alon, Matias and Szegedy, STOC 1996), less four standard deviations.
    """
    counted = float(np.abs(sketch).reshape(_HALVES, _NUMBERS).sum(axis=1).max())
    if counted <= _FEW:
        return counted
    spread = 4 * math.sqrt(2 / (_HALVES * _NUMBERS))
    return max(counted, float(sketch @ sketch) / _HALVES * (1 - spread))


# Combinations. The new set is approximated by the earlier ones, in the sense of least squares.

_NOTHING = 1e-6
_MOST_TIMES = 4


@dataclass(frozen=True, slots=True)
class Combination:
    """A combination of a set with ``earlier`` ones, by number, is about so many ``people``."""

    people: int
    earlier: tuple[int, ...]


def combination(
    sketch: NDArray[np.int32], earlier: NDArray[np.int32], smallest: int
) -> Combination | None:
    """How a set can be combined with ``earlier`` ones to single out fewer than ``smallest`` people.

    ``earlier`` int32 (sets, 2 * 1024). Whole factors are found by least squares, where the new set
    counts up to four times. Whatever the factors, none leaves people with a sum of squared factors
    below a quarter of ``smallest``. None where nothing is left: that follows from earlier answers.
    """
    new = sketch.astype(np.float64)
    chosen, basis = _independent(earlier.astype(np.float64))
    rest = _rest(new, basis)
    # With as many directions left out, as many of the sketch's numbers say nothing.
    left = float(rest @ rest) / (_HALVES - len(basis) / _NUMBERS)
    if not len(chosen) or left < _NOTHING or left >= 4 * smallest:
        return None
    sets = earlier[chosen].astype(np.float64)
    factors = np.linalg.lstsq(sets.T, new)[0]
    for times in range(1, _MOST_TIMES + 1):
        whole = np.rint(times * factors)
        singled = times * new - whole @ sets
        people = people_in(singled)
        if whole.any() and 0 < people < _MISSED * smallest:
            return Combination(round(people), tuple(chosen[np.flatnonzero(whole)].tolist()))
    named = np.flatnonzero(np.abs(factors) > 1 / (2 * _MOST_TIMES))
    if len(named) and left < smallest / 4:
        return Combination(max(1, round(left)), tuple(chosen[named].tolist()))
    return None


def _independent(
    sketches: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Numbers of sketches of which none is a combination of those before, and an orthonormal basis.

    Shapes (directions,) and (directions, 2 * 1024), by Gram and Schmidt, each direction twice.
    """
    chosen: list[int] = []
    basis = np.empty_like(sketches)
    for number, sketch in enumerate(sketches):
        rest = _rest(sketch, basis[: len(chosen)])
        squared = float(rest @ rest)
        if squared > _NOTHING:
            basis[len(chosen)] = rest / np.sqrt(squared)
            chosen.append(number)
    return np.array(chosen, np.intp), basis[: len(chosen)]


def _rest(sketch: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is left of ``sketch`` (numbers,) beside the directions of ``basis`` (any, numbers)."""
    for _ in range(2):
        sketch = sketch - (basis @ sketch) @ basis
    return sketch


# Trainings

_COMBINED = 500
"""Sets of which combinations are compared, the latest ones; pairs are compared with all."""


@dataclass(frozen=True, slots=True, eq=False)
class _Answered:
    """People about whom was answered before, in a ``part`` of ``session``."""

    session: str
    part: str
    combines: int
    sketch: NDArray[np.int32]

    @property
    def place(self) -> str:
        """Where, for people to read."""
        return f"session {self.session}" + f", {self.part}" * self.part.startswith("tree")


@dataclass(frozen=True, slots=True, eq=False)
class EarlierPeople:
    """The people with whom others are compared: ``near`` in pairs, ``combined`` in combinations.

    ``smallest``: by so many they differ, or by nobody.
    """

    secret: bytes
    near: Sequence[_Answered]
    combined: Sequence[_Answered]
    smallest: int

    def check(self, answered: PeopleAnswered) -> NDArray[np.int32] | None:
        """The sketch of the people of ``answered``; None if the same were answered about before.

        Raises:
            Refused: they differ from earlier ones by few, or a combination leaves so few.
        """
        sketch = sketch_of(answered.people, self.secret)
        differ = [people_in((sketch - other.sketch).astype(np.float64)) for other in self.near]
        pairs = list(zip(differ, self.near, strict=True))
        if any(not people and other.combines >= answered.combines for people, other in pairs):
            return None
        for people, other in pairs:
            if 0 < people < _MISSED * self.smallest:
                raise self._refused(answered, f"by about {people:.0f} from", [other])
        earlier = np.array([other.sketch for other in self.combined], np.int32)
        singled = combination(sketch, earlier.reshape(-1, len(sketch)), self.smallest)
        if singled is not None:
            others = [self.combined[number] for number in singled.earlier]
            differ_by = f"by about {singled.people} from a combination of"
            raise self._refused(answered, differ_by, others)
        return sketch

    def _refused(
        self, answered: PeopleAnswered, differ: str, others: Sequence[_Answered]
    ) -> Refused:
        named = "; ".join(other.place for other in others[:5])
        more = f" and {len(others) - 5} more" * (len(others) > 5)
        own = {"rows": "the people who learn", "question": "these people"}
        which = own.get(answered.part, f"those of {answered.part}")
        return Refused(
            f"{answered.party} answers about people who differ by {self.smallest} or nobody from "
            f"those of earlier answers (smallest_difference): {which} differ {differ} those of "
            f"{named}{more}"
        )


@computation("ComparePeople")
def compare_people(earlier: EarlierPeople, answered: PeopleAnswered) -> None:
    """Raise Refused unless ``answered`` may follow the ``earlier`` people."""
    earlier.check(answered)


class AnsweredPeopleStore:
    """The people of all trainings, in a :class:`Database`; none are ever forgotten."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def earlier(self, people: int, smallest: int) -> EarlierPeople:
        """With whom so many ``people`` are compared, who differ by ``smallest`` or by nobody."""
        return await self._database.read(lambda found: _earlier(found, people, smallest))

    async def keep(self, session: str, answered: PeopleAnswered, smallest: int) -> None:
        """Keep the people of a ``session`` before anything is answered about them.

        Raises:
            Refused: they differ from those of an earlier answer by fewer than ``smallest`` people,
                and not by nobody, or can be combined with several such that so few are left.
        """

        def write(connection: sqlite3.Connection) -> None:
            size = len(answered.people)
            sketch = _earlier(connection, size, smallest).check(answered)
            if sketch is not None:
                data = sketch.astype("<i2").tobytes()
                connection.execute(
                    "INSERT INTO answered_people VALUES (?, ?, ?, ?, ?)",
                    (session, answered.part, size, answered.combines, data),
                )

        await self._database.write(write)


def _earlier(connection: sqlite3.Connection, people: int, smallest: int) -> EarlierPeople:
    def found(rest: str, *values: int) -> list[_Answered]:
        query = f"SELECT session, part, combines, sketch FROM answered_people {rest}"
        return [
            _Answered(session, part, combines, np.frombuffer(data, "<i2").astype(np.int32))
            for session, part, combines, data in connection.execute(query, values)
        ]

    (secret,) = connection.execute("SELECT secret FROM people_secret").fetchone()
    return EarlierPeople(
        secret,
        found(
            "WHERE people > ? AND people < ? ORDER BY rowid", people - smallest, people + smallest
        ),
        found("WHERE combines ORDER BY rowid DESC LIMIT ?", _COMBINED),
        smallest,
    )


# Questions about groups


@dataclass(frozen=True, slots=True, eq=False)
class GroupQuestion:
    """An answered question of ``session`` about ``people``: uint64 hashes, ascending."""

    people: NDArray[np.uint64]
    session: str = ""


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
                yield GroupQuestion(people, path.stem.partition("-")[2])
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
        write_whole(path, data, 0o600)

    def _folder(self, column: str) -> Path:
        digest = hashlib.blake2b(column.encode(), digest_size=8).hexdigest()
        return self.state / "group-questions" / digest
