"""Plans of both halves of comparisons, run in one process, and all that goes between them."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmq.privacy.plan import Compute, Exchange, Handed, HandOn, Plan, Reply, Values

Parcel = Sequence[Values]


def size(parcel: Parcel) -> int:
    """The bytes of a parcel."""
    return sum(piece["bytes"].nbytes for piece in parcel)


def nowhere(_: Parcel) -> None:
    """Let a parcel go."""


def travelled(value: Any) -> Any:
    """``value`` as another process gets it, in shared memory that it may not write to."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers])  # noqa: S301


@dataclass(eq=False)
class Running:
    """A plan, what has come for it, and what it does with what it sends and hands on.

    A plan that has not ``opened`` begins by a parcel that it does not see. If its computations are
    ``apart``, they and their results are pickled on the way, and arrays may not be written to.
    """

    plan: Plan[Any]
    send: Callable[[Parcel], None] = nowhere
    hand_on: Callable[[Parcel], None] = nowhere
    opened: bool = True
    apart: bool = False
    parcels: deque[Parcel] = field(default_factory=deque)
    heard: list[Parcel] = field(default_factory=list)
    handed: deque[Parcel] = field(default_factory=deque)
    step: Any = None
    ended: bool = False
    result: Any = None

    def hear(self, parcel: Parcel) -> None:
        """Take a parcel of the other half."""
        if self.opened:
            self.parcels.append(parcel)
            self.heard.append(parcel)
        self.opened = True

    def go_on(self) -> bool:
        """Go on until something is missing that has not come; whether it went on at all."""
        moved = False
        while not self.ended:
            value: Any = None
            if self.step is not None:
                if isinstance(self.step, Exchange):
                    waiting = self.handed if isinstance(self.step, Handed) else self.parcels
                    if not waiting:
                        return moved
                    value = waiting.popleft()
                elif isinstance(self.step, Compute):
                    value = [self._run(step) for step in self.step.computations]
            moved = True
            self._take(value)
        return moved

    def _run(self, step: Any) -> Any:
        return travelled(travelled(step).run()) if self.apart else step.run()

    def _take(self, value: Any) -> None:
        try:
            self.step = self.plan.send(value)
        except StopIteration as end:
            self.ended, self.result = True, end.value
            return
        if isinstance(self.step, HandOn):
            self.hand_on(self.step.pieces)
        elif isinstance(self.step, Reply) or (isinstance(self.step, Exchange) and self.step.pieces):
            self.send(self.step.pieces)


def run_all(running: Iterable[Running]) -> list[Any]:
    """The results of all plans."""
    every = list(running)
    while not all(one.ended for one in every):
        moved = [one.go_on() for one in every]
        assert any(moved), "all wait for each other"
    return [one.result for one in every]
