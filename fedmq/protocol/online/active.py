"""What does the active party do with a batch of online scores?

A batch holds the rows of one or several requests, each with its own time. All rows walk down all
trees at once (SecureBoost, Figure 3): when pairs (row, tree) reach another party's records, the
active party asks that party, and each answer moves its pairs on. New questions wait until all
answers of the round have arrived, so that a round costs every party one message; a repeated
question no longer delays the other parties. A party that stays silent too long counts as away, and
its rows continue as ``degrade`` says.

`OnlineBatch` is the machine. A `Walk` holds the place of each pair, `OpenQuestions` the open
questions, and a `Degradation` the guessed and unknown directions. `Descend` and `sum_online` are
the arithmetic, of microseconds to milliseconds; `OnlineScores` is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import ACTIVE_PARTY, LEAF
from fedmq.computation import computation
from fedmq.errors import AnswerRefused, DataError, FedmqError, PeerAway, PeerSilent, ProtocolError
from fedmq.messages import online
from fedmq.messages.array import Array
from fedmq.messages.online import OnlineHop, OnlineQuestion, OnlineRows
from fedmq.privacy.plan import single
from fedmq.protocol.events import (
    Answer,
    CancelTimer,
    Effect,
    Event,
    Fail,
    Finish,
    PeerLost,
    Send,
    SetTimer,
    Start,
    TimerFired,
)
from fedmq.protocol.machine import Machine, on, on_message
from fedmq.protocol.online.options import AskedRows, Degrade, Mode, Timeouts
from fedmq.protocol.online.states import ALL_ANSWERED, ONLINE_BATCH, SUMS, WALK, OnlineBatchState

__all__ = [
    "AskAgain",
    "Deadline",
    "Degradation",
    "Descend",
    "Descended",
    "GiveUp",
    "OnlineBatch",
    "OnlineScores",
    "OpenQuestions",
    "OpenRequests",
    "Question",
    "Walk",
    "pair_parts",
    "row_parts",
    "sum_online",
    "unknown_places",
]


State = OnlineBatchState

# A message stays below 1 MiB.
_PAIRS_PER_HOP = 50_000  # 8 bytes each, and ids of up to 256 characters
_IDS_PER_QUESTION = 500
_BITS_PER_QUESTION = 4_000_000

_SELDOMEST_SECONDS = 1.0
"""A question is repeated at least so often: a party that is back answers while callers wait."""

# The holder of a pair that neither a descent nor a question holds.
_ARRIVED = 0
_GATHERING = -1
_COLLECTED = -2


@dataclass(frozen=True, slots=True)
class Deadline:
    """The timer for the end of request ``request``."""

    request: int


class OnlineBatch(Machine):
    """Scores ``ids`` with ``values`` (rows, own features); one :class:`Answer` per request.

    ``away``: parties known not to answer, each with the reason. ``batch``: a number unique within
    the session.
    """

    TABLE = ONLINE_BATCH
    failed_state = State.FAILED

    def __init__(
        self,
        batch: int,
        served: ServedForest,
        ids: Sequence[str],
        values: NDArray[np.float32],
        requests: Sequence[AskedRows],
        mode: Mode,
        degrade: Degrade,
        timeouts: Timeouts,
        away: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(State.READY, tuple(served.asked.values()))
        self._served = served
        self._ids = tuple(ids)
        self._values = values
        self._requests = OpenRequests(requests, timeouts, self._emit)
        self._mode = mode
        self._degrade = degrade
        self._timeouts = timeouts
        self._owners = {party: owner for owner, party in served.asked.items()}
        self._away = {
            self._owners[party]: reason for party, reason in away.items() if party in self.peers
        }
        self._request_of = np.repeat(
            np.arange(len(requests)), [request.stop - request.start for request in requests]
        )
        self._pairs = Walk(served, len(ids))
        self._trees = served.trees
        self._degradation = Degradation(len(ids), self._trees)
        self._bitmaps: dict[int, NDArray[np.bool_]] = {}
        self._questions = OpenQuestions(batch, served, self._ids, timeouts, self._emit)
        self._impatient = False
        self.silent: set[str] = set()
        """Parties that did not answer a question in time."""
        self.rounds = 0
        """The number of rounds of questions to the other parties."""

    @property
    def model(self) -> str:
        """The id of the scoring model."""
        return self._served.share.model_id

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The requests without scores, by number."""
        return tuple(self._requests.open)

    def check(self) -> None:
        self._questions.check()
        assert not self._questions.owners & self._away.keys()
        assert not (self.state is State.FINISHED and self._requests.open)

    # Setting out.

    @on(Start)
    def _on_start(self, _: Start) -> None:
        self._requests.begin()
        if self._away and self._degrade == "fail":
            reason = "; ".join(dict.fromkeys(self._away.values()))
            self._requests.answer_all(PeerAway(reason, _named(self._served, self._away)))
        elif self._mode == "bitmap":
            self.rounds += 1
            for owner in self._served.asked:
                if owner not in self._away:
                    self._questions.ask_rows(owner, self._requests.budget)
            self._walk_when_gathered()
        else:
            self._walk(self._pairs.unmoved)
        self._finish_when_done()

    def _walk_when_gathered(self) -> None:
        if self._mode == "bitmap" and not self._questions.open:
            self._walk(self._pairs.unmoved)

    # Questions.

    @on_message(online.OnlineExits)
    def _on_exits(self, peer: str, body: online.OnlineExits) -> None:
        question = self._questions.answered(peer, body)
        if question is None:
            return
        exits = body.exits.values
        if self._mode != "hop" or len(exits) != len(question.pairs):
            raise ProtocolError(f"{peer}: {len(exits)} exits, not the requested ones")
        assert isinstance(question.body, online.OnlineHop)
        try:
            nodes = self._served.below_exits(question.owner, exits)
        except DataError as error:
            raise ProtocolError(str(error)) from None
        unknown = unknown_places(peer, body.unknown, len(question.body.ids))
        self._questions.settle(body.hop)
        pairs = self._pairs.moved(body.hop, question.pairs, nodes)
        lacking = np.isin(question.body.rows.values, unknown)
        self._degradation.unknown(question.owner, question.pairs[lacking] // self._trees)
        self._walk(pairs)
        self._finish_when_done()

    @on_message(online.OnlineBitmaps)
    def _on_bitmaps(self, peer: str, body: online.OnlineBitmaps) -> None:
        question = self._questions.answered(peer, body)
        if question is None:
            return
        rows = question.rows.stop - question.rows.start
        needed = len(self._served.node_of[question.owner])
        if (
            self._mode != "bitmap"
            or body.records < needed
            or body.left.count != rows * body.records
        ):
            raise ProtocolError(f"{peer}: bitmaps that do not fit the model and the rows")
        unknown = unknown_places(peer, body.unknown, rows)
        self._questions.settle(body.hop)
        if question.owner not in self._bitmaps:
            self._bitmaps[question.owner] = np.zeros((len(self._ids), needed), np.bool_)
        left = body.left.numpy().reshape(rows, body.records)
        self._bitmaps[question.owner][question.rows] = left[:, :needed]
        self._degradation.unknown(question.owner, question.rows.start + unknown)
        self._walk_when_gathered()
        self._finish_when_done()

    # Walking.

    def _walk(self, pairs: NDArray[np.int64]) -> None:
        if not len(pairs):
            return
        number = self._questions.number()
        descent = self._pairs.descent(
            number, pairs, self._values, self._bitmaps, frozenset(self._away)
        )
        self._run(WALK, single(descent), partial(self._with_descended, number))

    def _with_descended(self, number: int, done: Descended) -> None:
        arrived, guessed = self._pairs.descended(number, done)
        for owner, pairs in guessed.items():
            self._degradation.guessed(owner, pairs)
        if len(arrived):
            touched = np.unique(self._request_of[arrived // self._trees])
            for index in touched.tolist():
                self._sum_when_arrived(index)

    def handle(self, event: Event) -> list[Effect]:
        self._at_end(self._ask_next_round)
        return super().handle(event)

    def _ask_next_round(self) -> None:
        """Ask the next round, once the last one is answered and no pair walks."""
        if not self._questions.open:
            self._impatient = False
        if self.state is not State.WALKING or self._plans:
            return
        if self._questions.open and not self._impatient:
            return
        pairs, owners = self._pairs.collected
        waited_for = self._questions.owners
        asked = [owner for owner in np.unique(owners).tolist() if owner not in waited_for]
        self.rounds += bool(asked)
        for owner in asked:
            of_owner = pairs[owners == owner]
            if owner in self._away:  # it went away while these pairs walked towards it
                self._walk(of_owner)
                continue
            nodes, budget = self._pairs.nodes, self._requests.budget
            for question in self._questions.ask_pairs(owner, of_owner, nodes, budget):
                self._pairs.hold(question.pairs, question.body.hop)

    # Answers.

    def _sum_when_arrived(self, index: int) -> None:
        request = self._requests.open.get(index)
        if request is None:
            return
        leaves = self._pairs.leaves(request.start, request.stop)
        if leaves is not None:
            summing = sum_online.bind(self._served, leaves, request.base_margin)
            self._run(SUMS, single(summing), partial(self._with_sums, index))

    def _with_sums(self, index: int, sums: tuple[NDArray[np.float32], NDArray[np.float32]]) -> None:
        request = self._requests.open.get(index)
        if request is None:
            return
        unknown, degraded = self._degradation.of(
            request.start, request.stop, self._served.share.parties
        )
        bitmaps = None
        if request.explain and self._mode == "bitmap" and not degraded:  # a guess has no reasons
            rows = slice(request.start, request.stop)
            bitmaps = {owner: bits[rows] for owner, bits in self._bitmaps.items()}
        self._requests.answer(index, OnlineScores(*sums, unknown, degraded, bitmaps))
        self._finish_when_done()

    def _give_up(self, index: int) -> None:
        if self._away:
            reason = "; ".join(self._away.values())
            self._requests.answer(index, PeerSilent(reason, _named(self._served, self._away)))
        else:
            self._requests.answer_late(index, self._questions.parties)

    def _finish_when_done(self) -> None:
        if self._requests.open or self.state is not State.WALKING:
            return
        self._questions.settle_all()
        self._plans.clear()
        self._move(ALL_ANSWERED)
        self._emit(Finish(None))

    # When a party does not answer.

    @on(TimerFired)
    def _on_timer(self, event: TimerFired) -> None:
        match event.key:
            case Deadline(request) if request in self._requests.open:
                self._run_out_of_time(request)
            case AskAgain(number) if number in self._questions.open:
                self._questions.repeat(number)
                self._impatient = True
            case GiveUp(number) if number in self._questions.open:
                owner = self._questions.owner(number)
                party = self._served.asked[owner]
                self.silent.add(party)
                self._set_away(owner, f"{party} did not answer within {self._timeouts.away:g} s")
        self._finish_when_done()

    @on_message(online.OnlineRefusal)
    def _on_refusal(self, peer: str, body: online.OnlineRefusal) -> None:
        question = self._questions.answered(peer, body)
        if question is None:
            return
        reason = f"{peer} refused: {body.reason}"
        if self._degrade == "fail":
            self._requests.answer_all(AnswerRefused(reason, (peer,)))
        else:
            self._set_away(question.owner, reason)
        self._finish_when_done()

    def _on_peer_lost(self, event: PeerLost) -> None:
        owner = self._owners.get(event.peer)
        if owner is not None and owner not in self._away:
            self._set_away(owner, event.reason)
        self._finish_when_done()

    def _set_away(self, owner: int, reason: str) -> None:
        self._away[owner] = reason
        if self._degrade == "fail":
            for index in self.unanswered:
                self._give_up(index)
            return
        if self._degrade == "active_only":
            others = [other for other in self._served.asked if other not in self._away]
            self._away |= dict.fromkeys(others, reason)
        open_pairs = [np.empty(0, np.int64)]
        for number, question in self._questions.withdraw(frozenset(self._away)):
            open_pairs.append(self._pairs.held(question.pairs, number))
        # A partial bitmap is of no use for the remaining rows.
        self._bitmaps = {
            other: bits for other, bits in self._bitmaps.items() if other not in self._away
        }
        if self._degrade == "active_only":
            self._start_over(range(len(self._ids)))
        elif self._mode == "bitmap":
            self._walk_when_gathered()
        else:
            self._walk(np.concatenate(open_pairs))

    def _start_over(self, rows: range) -> None:
        """Walk the unanswered rows of ``rows`` anew from the roots."""
        open_rows = [row for row in rows if int(self._request_of[row]) in self._requests.open]
        pairs = self._pairs.restart(open_rows)
        self._degradation.forget(pairs)
        self._walk(pairs)

    def _run_out_of_time(self, index: int) -> None:
        """End a request out of time: guess its unknown directions, or fail."""
        if self._requests.had_time(index):
            self.silent |= self._questions.parties
        if self._degrade == "fail":
            self._give_up(index)
            return
        away, bitmaps = dict(self._away), self._bitmaps
        silent = self._questions.owners
        some_answered = self._degrade == "partial" and self._mode == "bitmap"
        for owner in silent if some_answered else self._served.asked:
            self._away.setdefault(owner, f"{self._served.asked[owner]} did not answer in time")
        self._bitmaps = {owner: bits for owner, bits in bitmaps.items() if owner not in self._away}
        request = self._requests.open[index]
        if self._degrade == "active_only":
            self._start_over(range(request.start, request.stop))
        else:
            self._walk(self._pairs.walking(request.start, request.stop))
        # Only this request is out of time; these parties may still answer for the others.
        self._away, self._bitmaps = away, bitmaps

    def _fail(self, error: FedmqError, except_for: str = "", disclosed: str = "") -> None:
        """Fail the requests; the other parties keep nothing of a batch and need no message."""
        self._requests.answer_all(error)
        self._plans.clear()
        self.state = State.FAILED
        self._emit(Fail(error))


def _named(served: ServedForest, owners: Iterable[int]) -> list[str]:
    return [served.asked[owner] for owner in owners]


def unknown_places(sender: str, array: Array, count: int) -> NDArray[np.int64]:
    """The places that ``sender`` names among its ``count`` asked ids."""
    places = array.values.astype(np.int64)
    if len(places) and int(places.max()) >= count:
        raise ProtocolError(f"{sender} names unrequested ids as unknown")
    return places


class Walk:
    """The pairs (row * trees + tree) of a batch of ``rows`` rows, each at a node of its tree.

    A descent or a question holds a pair, by number. A late answer finds the pair held by another
    number, and leaves it alone.
    """

    def __init__(self, served: ServedForest, rows: int) -> None:
        self.nodes = np.tile(served.forest.roots, rows)
        """The node of each pair: int32 (pairs,)."""
        self._served = served
        self._trees = served.trees
        self._holder = np.full(len(self.nodes), _GATHERING, dtype=np.int64)

    @property
    def unmoved(self) -> NDArray[np.int64]:
        """The pairs that have not started."""
        return np.flatnonzero(self._holder == _GATHERING)

    @property
    def collected(self) -> tuple[NDArray[np.int64], NDArray[np.int16]]:
        """The pairs at records of other owners that were not asked yet, and the owners."""
        pairs = np.flatnonzero(self._holder == _COLLECTED)
        return pairs, self._served.forest.owner[self.nodes[pairs]]

    def hold(self, pairs: NDArray[np.int64], number: int) -> None:
        """Let the descent or question ``number`` hold ``pairs`` from now on."""
        self._holder[pairs] = number

    def held(self, pairs: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """The ``pairs`` that ``number`` holds."""
        held: NDArray[np.int64] = pairs[self._holder[pairs] == number]
        return held

    def descent(
        self,
        number: int,
        pairs: NDArray[np.int64],
        values: NDArray[np.float32],
        bitmaps: Mapping[int, NDArray[np.bool_]],
        away: frozenset[int],
    ) -> Descend:
        """The descent ``number`` of ``pairs``, as far as directions are known."""
        self.hold(pairs, number)
        return Descend(self._served, values, bitmaps, away, pairs, self.nodes[pairs])

    def descended(
        self, number: int, done: Descended
    ) -> tuple[NDArray[np.int64], Mapping[int, NDArray[np.int64]]]:
        """Take the end of a descent; returns the arrived pairs, and the guessed pairs by owner."""
        mine = self._holder[done.pairs] == number
        pairs, nodes = done.pairs[mine], done.nodes[mine]
        guessed = {owner: self.held(pairs_of, number) for owner, pairs_of in done.guessed.items()}
        self.nodes[pairs] = nodes
        arrived = pairs[self._served.forest.owner[nodes] == LEAF]
        self._holder[pairs] = _COLLECTED
        self._holder[arrived] = _ARRIVED
        return arrived, guessed

    def moved(
        self, number: int, pairs: NDArray[np.int64], nodes: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Move ``pairs`` to ``nodes`` by the answer to question ``number``; returns those moved."""
        mine = self._holder[pairs] == number
        moved: NDArray[np.int64] = pairs[mine]
        self.nodes[moved] = nodes[mine]
        return moved

    def leaves(self, start: int, stop: int) -> NDArray[np.int32] | None:
        """The leaves (rows, trees) of the rows from ``start`` to ``stop``; None while some walk."""
        trees = self._trees
        pairs = slice(start * trees, stop * trees)
        if not (self._holder[pairs] == _ARRIVED).all():
            return None
        return self.nodes[pairs].reshape(-1, trees)

    def walking(self, start: int, stop: int) -> NDArray[np.int64]:
        """The pairs of the rows from ``start`` to ``stop`` that have not arrived."""
        trees = self._trees
        pairs = np.arange(start * trees, stop * trees)
        walking: NDArray[np.int64] = pairs[self._holder[pairs] != _ARRIVED]
        return walking

    def restart(self, rows: Sequence[int]) -> NDArray[np.int64]:
        """Take ``rows`` back to the roots; returns their pairs."""
        trees = self._trees
        pairs = (np.array(rows, np.int64)[:, None] * trees + np.arange(trees)).ravel()
        self.nodes[pairs] = np.tile(self._served.forest.roots, len(rows))
        return pairs


@dataclass(frozen=True, slots=True)
class AskAgain:
    """The timer after which question ``number`` is repeated."""

    number: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The timer after which the party asked question ``number`` counts as away."""

    number: int


@dataclass(slots=True, eq=False)
class Question:
    """A question to ``owner`` about ``pairs`` (in mode hop), or about ``rows`` of the batch.

    In mode sealed the rows are people of the batch.
    """

    owner: int
    body: OnlineQuestion
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


class OpenRequests:
    """The requests of a batch, each until it is answered.

    ``emit`` takes the answers, and the timers :class:`Deadline`.
    """

    def __init__(
        self, requests: Sequence[AskedRows], timeouts: Timeouts, emit: Callable[[Effect], None]
    ) -> None:
        self._timeouts = timeouts
        self._emit = emit
        self.open = dict(enumerate(requests))
        """The unanswered requests, by number."""

    @property
    def budget(self) -> float:
        """The seconds of the request that has the most."""
        return max((request.seconds for request in self.open.values()), default=0.0)

    def begin(self) -> None:
        """Begin the time of all requests."""
        for index, request in self.open.items():
            self._emit(SetTimer(Deadline(index), request.seconds))

    def had_time(self, index: int) -> bool:
        """Whether the request's end says something about a party that did not answer."""
        return self.open[index].seconds >= self._timeouts.ask_again

    def answer(self, index: int, result: OnlineScores | FedmqError) -> None:
        """Answer request ``index``."""
        del self.open[index]
        self._emit(CancelTimer(Deadline(index)))
        self._emit(Answer(index, result))

    def answer_all(self, error: FedmqError) -> None:
        """Answer all that are left by ``error``."""
        for index in list(self.open):
            self.answer(index, error)

    def answer_late(self, index: int, parties: Set[str]) -> None:
        """Answer that the time of request ``index`` is over, while ``parties`` were waited for."""
        names = ", ".join(sorted(parties))
        names = names or "nobody: this party's own computations took too long"
        reason = f"no score within {self.open[index].seconds:g} s; waited for {names}"
        self.answer(index, PeerSilent(reason, tuple(parties)))


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
        self.batch = batch
        self._served = served
        self._trees = served.trees
        self._ids = tuple(ids)
        self._timeouts = timeouts
        self._emit = emit
        self.open: dict[int, Question] = {}
        """The unsettled questions, by number."""
        self._last = 0

    @property
    def owners(self) -> set[int]:
        """The owners that have not answered yet."""
        return {question.owner for question in self.open.values()}

    @property
    def parties(self) -> set[str]:
        """The names of the parties that have not answered yet."""
        return {self._served.asked[owner] for owner in self.owners}

    def check(self) -> None:
        """Assert the invariants."""
        assert all(number <= self._last for number in self.open)

    def number(self) -> int:
        """A number that no other question ever has."""
        self._last += 1
        return self._last

    def ask_rows(self, owner: int, budget: float) -> None:
        """Ask ``owner`` for its directions of all rows, within ``budget`` seconds."""
        for part in row_parts(self._served, owner, len(self._ids)):
            body = OnlineRows(
                batch=self.batch,
                hop=self.number(),
                model=self._served.share.model_id,
                ids=self._ids[part],
                budget=budget,
                training=self._served.share.training,
            )
            self.ask(Question(owner, body, np.empty(0, np.int64), part))

    def ask_pairs(
        self, owner: int, pairs: NDArray[np.int64], nodes: NDArray[np.int32], budget: float
    ) -> Iterator[Question]:
        """Ask ``owner`` for the directions of ``pairs``; ``nodes``: the nodes of all pairs."""
        for part, asked, places in pair_parts(pairs, self._trees):
            body = OnlineHop(
                batch=self.batch,
                hop=self.number(),
                model=self._served.share.model_id,
                ids=tuple(self._ids[row] for row in asked.tolist()),
                rows=Array.of(places),
                records=Array.of(self._served.forest.record[nodes[part]].astype(np.uint32)),
                budget=budget,
                training=self._served.share.training,
            )
            question = Question(owner, body, part, slice(0, 0))
            self.ask(question)
            yield question

    def repeat(self, number: int) -> None:
        """Ask again, less and less often down to once a second: a slow party is not overloaded."""
        question = self.open[number]
        self._emit(Send(self._served.asked[question.owner], question.body))
        question.repeated += 1
        first = self._timeouts.ask_again
        wait = max(first, min(first * 2**question.repeated, _SELDOMEST_SECONDS))
        self._emit(SetTimer(AskAgain(number), wait))

    def answered(self, sender: str, body: Any) -> Question | None:
        """The question of an answer; None if it was answered or given up before.

        Raises:
            ProtocolError: ``sender`` was not asked this.
        """
        question = self.open.get(body.hop)
        if question is not None and self._served.asked[question.owner] != sender:
            raise ProtocolError(f"{sender} answers a question to another party")
        return question

    def owner(self, number: int) -> int:
        """The owner that was asked question ``number``."""
        return self.open[number].owner

    def settle(self, number: int) -> None:
        """Stop waiting for the answer to question ``number``."""
        del self.open[number]
        self._emit(CancelTimer(AskAgain(number)))
        if self._timeouts.away is not None:
            self._emit(CancelTimer(GiveUp(number)))

    def settle_all(self) -> None:
        """Stop waiting for all answers."""
        for number in list(self.open):
            self.settle(number)

    def withdraw(self, owners: frozenset[int]) -> list[tuple[int, Question]]:
        """Settle the questions to ``owners``; returns them with their numbers."""
        withdrawn = [
            (number, question) for number, question in self.open.items() if question.owner in owners
        ]
        for number, _ in withdrawn:
            self.settle(number)
        return withdrawn

    def ask(self, question: Question) -> None:
        """Send ``question``, and wait for its answer."""
        number = question.body.hop
        self.open[number] = question
        self._emit(Send(self._served.asked[question.owner], question.body))
        self._emit(SetTimer(AskAgain(number), self._timeouts.ask_again))
        if self._timeouts.away is not None:
            self._emit(SetTimer(GiveUp(number), self._timeouts.away))


class Degradation:
    """The unknown rows and guessed pairs (row * ``trees`` + tree), by index of the owner."""

    def __init__(self, rows: int, trees: int) -> None:
        self._rows = rows
        self._trees = trees
        self._unknown: dict[int, NDArray[np.bool_]] = {}
        self._guessed: dict[int, NDArray[np.bool_]] = {}

    def unknown(self, owner: int, rows: NDArray[np.int64]) -> None:
        """Note that ``owner`` does not know ``rows``."""
        if len(rows):
            self._unknown.setdefault(owner, np.zeros(self._rows, np.bool_))[rows] = True

    def guessed(self, owner: int, pairs: NDArray[np.int64]) -> None:
        """Note that the directions of ``pairs`` at ``owner`` were guessed."""
        pairs_in_all = self._rows * self._trees
        self._guessed.setdefault(owner, np.zeros(pairs_in_all, np.bool_))[pairs] = True

    def forget(self, pairs: NDArray[np.int64]) -> None:
        """Forget ``pairs``, which start over."""
        for guessed in self._guessed.values():
            guessed[pairs] = False

    def of(
        self, start: int, stop: int, parties: Sequence[str]
    ) -> tuple[dict[str, NDArray[np.bool_]], dict[str, float]]:
        """By party: its unknown rows from ``start`` to ``stop``, and the share of guessed pairs."""
        pairs = slice(start * self._trees, stop * self._trees)
        return (
            {
                parties[owner]: mask[start:stop]
                for owner, mask in self._unknown.items()
                if mask[start:stop].any()
            },
            {
                parties[owner]: float(mask[pairs].mean())
                for owner, mask in self._guessed.items()
                if mask[pairs].any()
            },
        )


@dataclass(frozen=True, slots=True, eq=False)
class OnlineScores:
    """The scores of a request's rows: float32 (rows,) each, or (rows, classes).

    ``unknown`` bool (rows,) by party: rows that the party does not hold; their values there count
    as missing. ``degraded`` by party: the share of (row, tree) pairs whose direction at that party
    was guessed because it did not answer; absent if all are exact. ``bitmaps`` bool (rows, records)
    by index of each owner: all directions, if the request asks for reasons and nothing was guessed.
    ``waited``: by party, the seconds from questions to their answers. ``contributions`` float32
    (rows, parties + 1): each party's part in a sealed score, the bias last; None without reasons.
    """

    margins: NDArray[np.float32]
    predictions: NDArray[np.float32]
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    degraded: Mapping[str, float] = field(default_factory=dict)
    bitmaps: Mapping[int, NDArray[np.bool_]] | None = None
    waited: Mapping[str, float] = field(default_factory=dict)
    contributions: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Descended:
    """The end of a descent: ``pairs`` at leaves, or at nodes of owners that must be asked.

    ``guessed``: by owner, the pairs that took the likely direction.
    """

    pairs: NDArray[np.int64]
    nodes: NDArray[np.int32]
    guessed: Mapping[int, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Descend:
    """Walk pairs (row * trees + tree) down from ``nodes``, as far as directions are known.

    ``bitmaps`` bool (rows, records) by owner: directions given beforehand. Owners in ``guessed``
    are away: at their nodes a pair goes where most of the training weight went.
    """

    label: ClassVar[str] = "Descend"
    served: ServedForest
    values: NDArray[np.float32]
    bitmaps: Mapping[int, NDArray[np.bool_]]
    guessed: frozenset[int]
    pairs: NDArray[np.int64]
    nodes: NDArray[np.int32]

    def run(self) -> Descended:
        forest = self.served.forest
        nodes = self.nodes.copy()
        guesses: dict[int, list[NDArray[np.int64]]] = {}
        walking = np.arange(len(nodes))
        while len(walking):
            here = nodes[walking]
            owners = forest.owner[here]
            moved = []
            for owner in (ACTIVE_PARTY, *self.bitmaps, *self.guessed):
                places = walking[owners == owner]
                if not len(places):
                    continue
                moved.append(places)
                nodes[places] = forest.below(
                    nodes[places], self._left(owner, places, nodes[places])
                )
                if owner in self.guessed:
                    guesses.setdefault(owner, []).append(self.pairs[places])
            walking = np.concatenate(moved) if moved else walking[:0]
        return Descended(
            self.pairs, nodes, {owner: np.concatenate(pairs) for owner, pairs in guesses.items()}
        )

    def _left(
        self, owner: int, places: NDArray[np.int64], nodes: NDArray[np.int32]
    ) -> NDArray[np.bool_]:
        if owner in self.guessed:
            return self.served.likely_left[nodes]
        rows = self.pairs[places] // self.served.trees
        records = self.served.forest.record[nodes]
        if owner == ACTIVE_PARTY:
            return self.served.share.lookup_table.directions(self.values, rows, records)
        return self.bitmaps[owner][rows, records]


@computation("SumOnline")
def sum_online(
    served: ServedForest, leaves: NDArray[np.int32], base_margin: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Margins and predictions of rows from their ``leaves`` (rows, trees).

    ``base_margin`` as in :class:`AskedRows`.
    """
    assert (served.forest.owner[leaves] == LEAF).all()
    return served.scores(leaves, base_margin)
