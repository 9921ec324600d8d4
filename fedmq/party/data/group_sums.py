"""Sums by groups of an owner's column, none of them over few people."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import Refused
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.id_column import comparable
from fedmq.party.data.table import read_text_column
from fedmq.party.store.answered_people import (
    SECRET_BYTES,
    EarlierPeople,
    GroupQuestion,
    GroupQuestions,
    combination,
    sketch_of,
)
from fedmq.privacy.homomorphic.group_sums import add_by_group
from fedmq.privacy.homomorphic.paillier import PublicKey
from fedmq.protocol.session_records import PeopleAnswered, hashed_ids

__all__ = ["AddGroups", "check_new", "joined_groups"]

_NONE, _OTHER = "(none)", "other"
_MOST_GROUPS = 500
_DAY = 24 * 3600.0
_COMBINED = 200
"""Questions of which combinations are compared, the last ones; pairs are compared with all."""
_LONGEST_NAME = 200  # characters of a group's name; the rest is left out


@dataclass(frozen=True, eq=False)
class AddGroups:
    """Add ``ciphertexts`` (people, bytes) of ``ids`` by the groups of ``column``, at ``party``.

    ``session`` names the question; ``questions`` stores it before the answer. ``earlier``: the
    people of trainings, with whom these are compared; None if they are not.
    """

    label: ClassVar[str] = "AddGroups"
    party: str
    data: DataSection
    column: str
    ids: tuple[str, ...]
    public: PublicKey
    ciphertexts: NDArray[np.uint8]
    session: str
    questions: GroupQuestions
    smallest: int
    most_per_day: int
    shows_names: bool
    earlier: EarlierPeople | None = None

    def run(
        self,
    ) -> tuple[tuple[str, ...], NDArray[np.uint32], NDArray[np.uint8], PeopleAnswered]:
        """By group: its name, how many people it has, and their sum as of the wire; and all people.

        Raises:
            Refused: an id is repeated or unknown, people are too few, or too like those of an
                earlier question; or there were enough questions for a day.
            DataError: there is no such column, or the file of a question is damaged.
            MessageError: ciphertexts do not fit the key.
        """
        with self.questions.alone(self.column):  # refusals count as well: they disclose something
            if self.questions.asked_since(self.questions.clock() - _DAY, self.column) >= (
                self.most_per_day
            ):
                raise Refused(
                    f"{self.party} takes {self.most_per_day} questions about groups of a column a "
                    "day at most"
                )
            self.questions.begin(self.column, self.session)
        ids = comparable(list(self.ids), self.data)
        if len(set(ids)) < len(ids):
            raise Refused(f"{self.party} adds up each person once: an id is repeated")
        by_id = read_text_column(self.party, self.data, self.column)
        if any(name not in by_id for name in ids):
            # Invented ids would make a group only seem large.
            raise Refused(f"{self.party} does not know all of these ids")
        names, group_of = joined_groups([by_id[name] or _NONE for name in ids], self.smallest)
        if len(names) < 2:
            raise Refused(
                f"{self.party}: there are no two groups of {self.smallest} people among these "
                f"{len(ids):,}; ask about more"
            )
        if len(names) > _MOST_GROUPS:
            raise Refused(f"{self.party} shows {_MOST_GROUPS} groups at most, not {len(names):,}")
        sums = add_by_group(self.public, self.ciphertexts, group_of)
        people = hashed_ids(ids)
        answered = PeopleAnswered(self.party, "question", people)
        if self.earlier is not None:
            self.earlier.check(answered)
        with self.questions.alone(self.column):
            self._keep(people, by_id, names)
        shown = names if self.shows_names else tuple(f"group {n + 1}" for n in range(len(names)))
        counts = np.bincount(group_of).astype(np.uint32)
        return tuple(name[:_LONGEST_NAME] for name in shown), counts, sums, answered

    def _keep(
        self, people: NDArray[np.uint64], by_id: Mapping[str, str], names: Sequence[str]
    ) -> None:
        """Store the question; Refused if an earlier one was about nearly the same people."""
        earlier = self.questions.about(self.column)
        groups = (name if (name := text or _NONE) in names else _OTHER for text in by_id.values())
        group_of = dict(zip(hashed_ids(list(by_id)).tolist(), groups, strict=True))
        check_new(self.party, people, earlier, group_of, self.smallest)
        self.questions.keep(self.column, self.session, people)


def joined_groups(texts: Sequence[str], smallest: int) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """The groups that may be shown, the largest first, and the group of each of ``texts``.

    Groups of fewer than ``smallest`` join as "other". While "other" is smaller, the next larger
    group joins, because a hidden sum follows from the total. A group named "other" joins, too. If
    all groups join, only "other" is left.
    """
    by_name = Counter(texts)
    joined = by_name.pop(_OTHER, 0)
    ordered = sorted(by_name.items(), key=lambda group: (group[1], group[0]))
    while ordered and (ordered[0][1] < smallest or 0 < joined < smallest):
        joined += ordered.pop(0)[1]
    names = [name for name, _ in reversed(ordered)]
    places = {name: place for place, name in enumerate(names)}
    group_of = np.array([places.get(text, len(names)) for text in texts], np.intp)
    return (*names, *((_OTHER,) if joined else ())), group_of


def check_new(
    party: str,
    people: NDArray[np.uint64],
    earlier: Iterable[GroupQuestion],
    group_of: Mapping[int, str],
    smallest: int,
) -> None:
    """Raise Refused if an ``earlier`` answer and this one differ by few people of a group.

    Or if so few people of a group are left where several earlier answers are added and subtracted:
    combinations are found as for trainings, among the last questions. ``people`` and the keys of
    ``group_of`` are hashes. A person no longer in the data counts as one of "other".
    """
    groups = _GroupNumbers(group_of)
    last: deque[GroupQuestion] = deque(maxlen=_COMBINED)
    for question in earlier:
        counts = np.bincount(groups.of(np.setxor1d(people, question.people)))
        if ((counts > 0) & (counts < smallest)).any():
            raise Refused(
                f"{party}: these people are nearly those of an earlier question"
                f"{_named([question])}; ask about the same, or about others that differ by "
                f"{smallest} people of a group or none"
            )
        last.append(question)
    secret = secrets.token_bytes(SECRET_BYTES)
    before = [(question.people, groups.of(question.people)) for question in last]
    own = groups.of(people)
    for group in np.unique(own).tolist() if before else ():
        sketches = np.array([sketch_of(asked[of == group], secret) for asked, of in before])
        singled = combination(sketch_of(people[own == group], secret), sketches, smallest)
        if singled is not None:
            named = _named([last[number] for number in singled.earlier])
            raise Refused(
                f"{party}: these people, combined with those of earlier questions{named}, leave "
                f"about {singled.people} people of a group; ask about the same, or about others, "
                f"of whom {smallest} people of a group are left or none"
            )


class _GroupNumbers:
    """The numbers of groups by hash of a person, as arrays: a question may be about many people."""

    def __init__(self, group_of: Mapping[int, str]) -> None:
        names = dict.fromkeys([_OTHER, *group_of.values()])
        numbers = {name: number for number, name in enumerate(names)}
        self._people = np.array(sorted(group_of), np.uint64)
        self._groups = np.array([numbers[group_of[person]] for person in sorted(group_of)], np.intp)

    def of(self, people: NDArray[np.uint64]) -> NDArray[np.intp]:
        """The number of each person's group: (people,)."""
        places = np.searchsorted(self._people, people)
        known = np.append(self._people, 0)[places] == people
        return np.where(known & (places < len(self._people)), np.append(self._groups, 0)[places], 0)


def _named(questions: Sequence[GroupQuestion]) -> str:
    named = [f"session {question.session}" for question in questions if question.session]
    return f" ({', '.join(named)})" if named else ""
