"""What does one half say about a copy? Its plan runs until it waits, or has to compute."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.hidden_sums.sides import Unpacked, pieces_of
from fedmq.privacy.hidden_sums.steps import LevelStep
from fedmq.privacy.plan import Compute, Ended, Exchange, Handed, HandOn, Plan, Reply, Values

__all__ = ["Conversation", "Parcel", "Said", "compute", "computes", "joined"]

T = TypeVar("T")

Parcel = NDArray[np.uint8]


class Said(NamedTuple):
    """A ``parcel`` that a half says once it has ``heard`` so many."""

    parcel: Parcel
    heard: int


class Conversation(Generic[T]):
    """The ``plan`` of a half; ``said`` has its parcels that have not left."""

    def __init__(self, plan: Plan[T]) -> None:
        self._plan = plan
        self._unread: deque[Parcel] = deque()
        self._heard = 0
        self.said: deque[Said] = deque()
        self.half: Any = None
        """The half of a level, after its last step."""
        self.step: Any
        self._go_on(None)

    @property
    def computations(self) -> Sequence[Any]:
        """What it has to compute before it goes on."""
        return self.step.computations if isinstance(self.step, Compute) else ()

    @property
    def takes_step(self) -> bool:
        """Whether it has to compute a step of its half."""
        return any(isinstance(step, LevelStep) for step in self.computations)

    @property
    def leaves_copies(self) -> bool:
        """Whether it goes on alone: it has ended, or hands on what a chain needs."""
        return isinstance(self.step, Ended | HandOn | Handed)

    def computed(self, results: Sequence[Any]) -> None:
        """Go on with the results of its computations."""
        if self.takes_step:
            [(self.half, _)] = results
        self._go_on(results)

    def hear(self, parcel: Parcel) -> None:
        """Take a parcel of the other half."""
        self._unread.append(parcel)
        if isinstance(self.step, Exchange) and not isinstance(self.step, Handed):
            self._go_on(self._read())

    def _read(self) -> list[Values]:
        self._heard += 1
        return [{"bytes": self._unread.popleft()}]

    def _go_on(self, value: Any) -> None:
        while True:
            try:
                self.step = self._plan.send(value)
            except StopIteration as end:
                self.step = Ended(end.value)
                return
            if isinstance(self.step, Compute | HandOn | Handed):
                return
            if self.step.pieces:
                self.said.append(Said(joined(self.step.pieces), self._heard))
            value = None
            if isinstance(self.step, Exchange):
                self.step = Exchange()
                if not self._unread:
                    return
                value = self._read()

    def alone(self, first: int) -> Plan[T]:
        """Go on without the other copies, in a talk about node ``first``."""
        while self.said:
            yield Reply(first, pieces_of(self.said.popleft().parcel))
        while not isinstance(self.step, Ended):
            answer = yield self.step
            try:
                self.step = self._plan.send(answer)
            except StopIteration as end:
                self.step = Ended(end.value)
        value: T = self.step.value
        return value


def joined(pieces: Sequence[Values]) -> Parcel:
    """A parcel of its pieces. Raises `MessageError` for other pieces than bytes."""
    return Unpacked(pieces).rest()


def compute(talks: Sequence[Conversation[Any]]) -> Plan[None]:
    """Compute what ``talks`` wait for, side by side."""
    found = deque((yield Compute([step for talk in talks for step in talk.computations])))
    for talk in filter(computes, talks):
        talk.computed([found.popleft() for _ in talk.computations])


def computes(talk: Any) -> bool:
    """Whether a conversation waits for computations; those of no tables are none."""
    return isinstance(talk.step, Compute)
