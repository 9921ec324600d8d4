"""How is a node won where no sum is shown? In a contest, by the circuits of both halves.

Several feature holders stand in a chain, each of which hands on the best so far to the next. On the
label holder's side a plan for each of them does so, and the last one's tells all who won.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.plan import Plan

__all__ = ["ALONE", "ActiveContestant", "Contest", "PassiveContestant", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """The ``number`` of a feature holder, from 1 to ``parties``, in the order of the columns."""

    number: int
    parties: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.parties:
            raise ValueError(f"no place {self.number} in a chain of {self.parties}")

    @property
    def is_first(self) -> bool:
        """Whether the label holder's own best is what it has to beat."""
        return self.number == 1

    @property
    def is_last(self) -> bool:
        """Whether the label holder is told who won."""
        return self.number == self.parties


ALONE = Place(1, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Contest:
    """Nodes of a level that have as many candidates of a peer each, and what these have to beat.

    All have been asked about. ``totals`` int64 (nodes, 2): the sums of g and h of each.
    ``best`` float32 (nodes,): the gain of the label holder's best candidate, -inf without one.
    ``place``: that of the peer.
    """

    nodes: tuple[int, ...]
    totals: NDArray[np.int64]
    best: NDArray[np.float32]
    place: Place = ALONE


class ActiveContestant:
    """What the label holder's half of an engine does in contests; most engines have none."""

    def contest_bytes(self, nodes: int, candidates: int, place: Place) -> int:
        """What a passive half sends about nodes with so many candidates each, at most."""
        return 0

    def find_winners(self, peer: str, contest: Contest) -> Plan[NDArray[np.bool_]]:
        """Learn in which nodes a candidate of ``peer`` wins: bool (nodes,).

        `Reply` sends the passive half a parcel, `Exchange` waits for the next one of the passive
        half; before it, it sends one if it has pieces. The first parcel leaves at once. The plan
        of the last of a chain hands on to that of the first.
        """
        raise MessageError("an engine that has no contests")
        yield


class PassiveContestant:
    """What a feature holder's half of an engine does in contests."""

    def contest_bytes(self, nodes: int, candidates: int, place: Place) -> int:
        """What the active half sends about nodes with so many candidates each, at most."""
        return 0

    def find_winners(
        self, nodes: Sequence[int], place: Place
    ) -> Plan[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
        """Learn which of ``nodes`` are won: bool (nodes,), and by which candidates: int64 (nodes,).

        Candidates are counted in the order of the answers. The other side of
        `ActiveContestant.find_winners`; it begins when the first parcel has come.
        """
        raise MessageError("an engine that has no contests")
        yield
