"""How does the active party find the smallest change that would have moved one person's score?

It has the person's directions at all records, as for reasons, and the alternatives that owners
offer of their own columns; so it finds the change of each owner itself, and asks for the words of
the chosen alternatives alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.changes import (
    MOST_DIRECTIONS,
    Alternatives,
    Changed,
    ChangeRules,
    TargetScore,
)
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import ACTIVE_PARTY
from fedmq.errors import ProtocolError
from fedmq.messages import inference
from fedmq.messages.array import Array, Bitmap
from fedmq.privacy.plan import single
from fedmq.protocol.inference.computations import FoundChanges, find_changes
from fedmq.protocol.inference.states import ALL_TOLD, CHANGES
from fedmq.protocol.machine import Machine, Part, on_message

__all__ = ["PartyChange", "PersonChanges", "SoughtChanges", "WantedChanges"]


@dataclass(frozen=True, slots=True)
class WantedChanges:
    """A score to be reached, and the active party's rules for its own columns."""

    target: TargetScore
    rules: ChangeRules


@dataclass(frozen=True, slots=True)
class PartyChange:
    """What ``party`` could change so that the ``score`` follows: by column, the change in words.

    Without a score the party has no change of its own that is enough, or does not tell any.
    """

    party: str
    tells: bool
    changes: tuple[tuple[str, str], ...] = ()
    score: float | None = None


@dataclass(frozen=True, slots=True)
class PersonChanges:
    """A person's ``score`` now, and what each party could change, the active one first.

    A score that is ``reached`` takes no change.
    """

    score: float
    reached: bool
    parties: tuple[PartyChange, ...]


class SoughtChanges(Part):
    """Seeks changes for the person of ``row`` (1, features), by the trees of ``served``."""

    def __init__(
        self,
        machine: Machine,
        served: ServedForest,
        row: NDArray[np.float32],
        wanted: WantedChanges,
    ) -> None:
        super().__init__(machine)
        self._served = served
        self._row = row
        self._wanted = wanted
        self._then: Callable[[PersonChanges], None]
        self._offered: dict[int, Alternatives] = {}
        self._found: FoundChanges
        self._asked: dict[str, Changed] = {}
        """By party, the change of which it has not told the words."""
        self._told: dict[str, tuple[tuple[str, str], ...]] = {}

    def offer(self, owner: int, offered: inference.ChangesOffered | None) -> None:
        """Take what ``owner`` offers, if it does."""
        if offered is None:
            return
        column, records = offered.column.numpy(), len(self._served.node_of[owner])
        bits = len(column) * records
        if offered.left.count != bits or bits > MOST_DIRECTIONS:
            raise ProtocolError(f"{len(column)} changes are offered that do not fit the model")
        left = offered.left.numpy().reshape(len(column), records)
        self._offered[owner] = Alternatives(column.astype(np.int64).astype(np.int32), left)

    def seek(self, directions: Mapping[int, Bitmap], then: Callable[[PersonChanges], None]) -> None:
        """Find the changes of a person with these ``directions``, and hand them to ``then``."""
        self._then = then
        wanted = self._wanted
        finding = find_changes.bind(
            self._served, self._row, directions, wanted.rules, self._offered, wanted.target
        )
        self._run(CHANGES, single(finding), self._with_found)

    def _with_found(self, found: FoundChanges) -> None:
        self._found = found
        for owner, changed in found.changed.items():
            if owner != ACTIVE_PARTY and changed is not None:
                party = self._served.share.parties[owner]
                self._asked[party] = changed
                numbers = Array.of(np.array(changed.numbers, np.uint32))
                self._send(party, inference.ChangeChosen(numbers=numbers))
        self._end_when_told()

    @on_message(inference.ChangeTold)
    def _on_told(self, peer: str, body: inference.ChangeTold) -> None:
        changed, columns, changes = (
            self._asked.pop(peer, None),
            body.told_columns,
            body.told_changes,
        )
        if changed is None or not len(columns) == len(changes) == len(changed.numbers):
            raise ProtocolError("unrequested changes are told")
        self._told[peer] = tuple(zip(columns, changes, strict=True))
        self._end_when_told()

    def _end_when_told(self) -> None:
        if self._asked:
            return
        self._move(ALL_TOLD)
        served, found = self._served, self._found
        parties = {ACTIVE_PARTY: served.share.parties[ACTIVE_PARTY], **served.asked}
        changes = []
        for owner, party in parties.items():
            changed = found.changed.get(owner)
            is_own = owner == ACTIVE_PARTY
            changes.append(
                PartyChange(
                    party,
                    is_own or owner in self._offered,
                    found.own if is_own else self._told.get(party, ()),
                    None if changed is None else changed.score,
                )
            )
        self._then(PersonChanges(found.score, found.reached, tuple(changes)))
