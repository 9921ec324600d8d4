"""What was asked, and is it answered? Questions are cut into messages below 1 MiB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.errors import ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.online import OnlineHop, OnlineRows
from fedmq.protocol.events import CancelTimer, Effect, Send, SetTimer
from fedmq.protocol.online.options import Timeouts

__all__ = ["AskAgain", "GiveUp", "OpenQuestions", "Question", "pair_parts", "row_parts"]

_PAIRS_PER_HOP = 50_000  # 8 bytes each, and ids of up to 256 characters: below 1 MiB
_IDS_PER_QUESTION = 500
_BITS_PER_QUESTION = 4_000_000


@dataclass(frozen=True, slots=True)
class AskAgain:
    """The timer after which question ``number`` is repeated."""

    number: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The timer after which the party that was asked question ``number`` counts as away."""

    number: int


@dataclass(slots=True, eq=False)
class Question:
    """What ``owner`` was asked: about ``pairs`` (in mode hop), or ``rows`` of the batch."""

    owner: int
    body: OnlineHop | OnlineRows
    pairs: NDArray[np.int64]
    rows: slice
    repeated: int = 0


def row_parts(served: ServedForest, owner: int, rows: int) -> Iterator[slice]:
    """The rows of a batch, in parts whose bitmaps over the records of ``owner`` fit a message."""
    records = max(1, len(served.node_of[owner]))
    most = max(1, min(_IDS_PER_QUESTION, _BITS_PER_QUESTION // records))
    for start in range(0, rows, most):
        yield slice(start, min(start + most, rows))


def pair_parts(
    pairs: NDArray[np.int64], trees: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]]:
    """Ascending ``pairs`` in parts; with each, its rows, and the place of each pair among them."""
    rows = pairs // trees
    start = 0
    while start < len(pairs):
        stop = min(start + _PAIRS_PER_HOP, len(pairs))
        asked, places = np.unique(rows[start:stop], return_inverse=True)
        if len(asked) > _IDS_PER_QUESTION:
            stop = start + int(np.searchsorted(places, _IDS_PER_QUESTION))
            asked, places = asked[:_IDS_PER_QUESTION], places[: stop - start]
        yield pairs[start:stop], asked, places.astype(np.uint32)
        start = stop


class OpenQuestions:
    """Asks about the rows ``ids`` of batch number ``batch``, each question until it is settled.

    ``emit`` takes the messages, and the timers :class:`AskAgain` and :class:`GiveUp`.
    """

    def __init__(
        self,
        batch: int,
        served: ServedForest,
        ids: Sequence[str],
        timeouts: Timeouts,
        emit: Callable[[Effect], None],
    ) -> None:
        self._batch = batch
        self._served = served
        self._ids = tuple(ids)
        self._timeouts = timeouts
        self._emit = emit
        self._open: dict[int, Question] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, number: int) -> bool:
        return number in self._open

    @property
    def owners(self) -> set[int]:
        """Who has not answered yet."""
        return {question.owner for question in self._open.values()}

    @property
    def parties(self) -> set[str]:
        """Who has not answered yet, by name."""
        return {self._served.asked[owner] for owner in self.owners}

    def check(self) -> None:
        """Assert what always holds."""
        assert all(number <= self._last for number in self._open)

    def number(self) -> int:
        """A number that no question has, or will have."""
        self._last += 1
        return self._last

    def ask_rows(self, owner: int, budget: float) -> None:
        """Ask ``owner`` for its directions of all rows, within ``budget`` seconds."""
        for part in row_parts(self._served, owner, len(self._ids)):
            body = OnlineRows(
                batch=self._batch,
                hop=self.number(),
                model=self._served.share.model_id,
                ids=self._ids[part],
                budget=budget,
            )
            self._ask(Question(owner, body, np.empty(0, np.int64), part))

    def ask_pairs(
        self, owner: int, pairs: NDArray[np.int64], nodes: NDArray[np.int32], budget: float
    ) -> Iterator[Question]:
        """Ask ``owner`` where ``pairs`` go on, which stand at the ``nodes`` of all pairs."""
        for part, asked, places in pair_parts(pairs, self._served.trees):
            body = OnlineHop(
                batch=self._batch,
                hop=self.number(),
                model=self._served.share.model_id,
                ids=tuple(self._ids[row] for row in asked.tolist()),
                rows=Array.of(places),
                records=Array.of(self._served.forest.record[nodes[part]].astype(np.uint32)),
                budget=budget,
            )
            question = Question(owner, body, part, slice(0, 0))
            self._ask(question)
            yield question

    def repeat(self, number: int) -> None:
        """Ask once more, and then ever less often, so as not to overload a slow party."""
        question = self._open[number]
        self._emit(Send(self._served.asked[question.owner], question.body))
        question.repeated += 1
        wait = self._timeouts.ask_again * 2**question.repeated
        self._emit(SetTimer(AskAgain(number), wait))

    def answered(self, sender: str, body: Any) -> Question | None:
        """The question behind an answer; None if it was answered, or given up, before.

        Raises:
            ProtocolError: ``sender`` was not asked this.
        """
        question = self._open.get(body.hop)
        if question is not None and self._served.asked[question.owner] != sender:
            raise ProtocolError(f"{sender} answers what another party was asked")
        return question

    def owner(self, number: int) -> int:
        """Who was asked question ``number``."""
        return self._open[number].owner

    def settle(self, number: int) -> None:
        """Wait for its answer no more."""
        del self._open[number]
        self._emit(CancelTimer(AskAgain(number)))
        if self._timeouts.away is not None:
            self._emit(CancelTimer(GiveUp(number)))

    def settle_all(self) -> None:
        """Wait for no answer any more."""
        for number in list(self._open):
            self.settle(number)

    def withdraw(self, owners: frozenset[int]) -> list[tuple[int, Question]]:
        """Settle what ``owners`` were asked; those questions with their numbers."""
        withdrawn = [
            (number, question)
            for number, question in self._open.items()
            if question.owner in owners
        ]
        for number, _ in withdrawn:
            self.settle(number)
        return withdrawn

    def _ask(self, question: Question) -> None:
        number = question.body.hop
        self._open[number] = question
        self._emit(Send(self._served.asked[question.owner], question.body))
        self._emit(SetTimer(AskAgain(number), self._timeouts.ask_again))
        if self._timeouts.away is not None:
            self._emit(SetTimer(GiveUp(number), self._timeouts.away))
