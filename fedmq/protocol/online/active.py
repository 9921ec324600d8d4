"""What does the label holder do with a batch of online scores?

A batch holds the rows of one or several requests, each with its own time. All rows walk down all
trees at once (SecureBoost, Figure 3): wherever pairs (row, tree) enter another party's records,
that party is asked, and each answer sets its pairs walking again. What they then need to know of
other parties is collected until all answers of the round are there, so that a round costs every
party one message; once a party had to be asked again, the others are no longer held up for it.
One that stays silent too long counts as away, and the rows go on as ``degrade`` says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.errors import AnswerRefused, DataError, FedmqError, PeerAway, PeerSilent, ProtocolError
from fedmq.messages import online
from fedmq.messages.array import Array
from fedmq.privacy.plan import single
from fedmq.protocol.events import (
    Answer,
    CancelTimer,
    Event,
    Fail,
    Finish,
    PeerLost,
    SetTimer,
    Start,
    TimerFired,
)
from fedmq.protocol.machine import Machine, on, on_message
from fedmq.protocol.online.computations import Descended, OnlineScores, SumOnline
from fedmq.protocol.online.degradation import Degradation
from fedmq.protocol.online.options import AskedRows, Degrade, Mode, Timeouts
from fedmq.protocol.online.questions import AskAgain, GiveUp, OpenQuestions
from fedmq.protocol.online.states import (
    ALL_ANSWERED,
    ONLINE_BATCH,
    SUMS,
    WALK,
    OnlineBatchState,
)
from fedmq.protocol.online.walk import Walk

__all__ = ["Deadline", "OnlineBatch"]

State = OnlineBatchState


@dataclass(frozen=True, slots=True)
class Deadline:
    """The timer after which the time of request ``request`` is over."""

    request: int


class OnlineBatch(Machine):
    """Scores ``ids`` with ``values`` (rows, own features); one :class:`Answer` per request.

    ``away``: parties that are known not to answer. ``batch`` is told apart from all others of the
    same session.
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
        away: Collection[str] = (),
    ) -> None:
        super().__init__(State.READY, tuple(served.asked.values()))
        self._served = served
        self._ids = tuple(ids)
        self._values = values
        self._requests = dict(enumerate(requests))
        self._mode = mode
        self._degrade = degrade
        self._timeouts = timeouts
        self._owners = {party: owner for owner, party in served.asked.items()}
        self._away = {
            self._owners[party]: f"{party} is away" for party in away if party in self.peers
        }
        self._request_of = np.repeat(
            np.arange(len(requests)), [request.stop - request.start for request in requests]
        )
        self._pairs = Walk(served, len(ids))
        self._degradation = Degradation(len(ids), served.trees)
        self._bitmaps: dict[int, NDArray[np.bool_]] = {}
        self._questions = OpenQuestions(batch, served, self._ids, timeouts, self._emit)
        self._impatient = False
        self.silent: set[str] = set()
        """Parties that left a question unanswered until its time was over."""
        self.rounds = 0
        """How often the other parties were asked, each time all that is to be asked of them."""

    @property
    def model(self) -> str:
        """The id of the model that scores."""
        return self._served.share.model_id

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The requests that have no scores yet, by number."""
        return tuple(self._requests)

    def check(self) -> None:
        self._questions.check()
        assert not self._questions.owners & self._away.keys()
        assert not (self.state is State.FINISHED and self._requests)

    # Setting out.

    @on(Start)
    def _on_start(self, _: Start) -> None:
        for index, request in self._requests.items():
            self._emit(SetTimer(Deadline(index), request.seconds))
        if self._away and self._degrade == "fail":
            for index in list(self._requests):
                self._answer(index, PeerAway("; ".join(self._away.values())))
        elif self._mode == "bitmap":
            self._gather()
            self._walk_when_gathered()
        else:
            self._walk(self._pairs.unmoved)
        self._finish_when_done()

    def _gather(self) -> None:
        self.rounds += 1
        for owner in self._served.asked:
            if owner not in self._away:
                self._questions.ask_rows(owner, self._budget)

    def _walk_when_gathered(self) -> None:
        if self._mode == "bitmap" and not self._questions:
            self._walk(self._pairs.unmoved)

    # Questions.

    @property
    def _budget(self) -> float:
        return max((request.seconds for request in self._requests.values()), default=0.0)

    @on_message(online.OnlineExits)
    def _on_exits(self, peer: str, body: online.OnlineExits) -> None:
        question = self._questions.answered(peer, body)
        if question is None:
            return
        exits = body.exits.numpy()
        if self._mode != "hop" or len(exits) != len(question.pairs):
            raise ProtocolError(f"{peer}: {len(exits)} exits, not those that were asked for")
        assert isinstance(question.body, online.OnlineHop)
        try:
            nodes = self._served.below_exits(question.owner, exits)
        except DataError as error:
            raise ProtocolError(str(error)) from None
        unknown = self._places(peer, body.unknown, len(question.body.ids))
        self._questions.settle(body.hop)
        pairs = self._pairs.moved(body.hop, question.pairs, nodes)
        lacking = np.isin(question.body.rows.numpy(), unknown)
        self._degradation.unknown(question.owner, question.pairs[lacking] // self._served.trees)
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
        unknown = self._places(peer, body.unknown, rows)
        self._questions.settle(body.hop)
        if question.owner not in self._bitmaps:
            self._bitmaps[question.owner] = np.zeros((len(self._ids), needed), np.bool_)
        left = body.left.numpy().reshape(rows, body.records)
        self._bitmaps[question.owner][question.rows] = left[:, :needed]
        self._degradation.unknown(question.owner, question.rows.start + unknown)
        self._walk_when_gathered()
        self._finish_when_done()

    def _places(self, sender: str, array: Array, count: int) -> NDArray[np.int64]:
        places = array.numpy().astype(np.int64)
        if len(places) and int(places.max()) >= count:
            raise ProtocolError(f"{sender} does not know ids that it was not asked about")
        return places

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
            touched = np.unique(self._request_of[arrived // self._served.trees])
            for index in touched.tolist():
                self._sum_when_arrived(index)

    def _take(self, event: Event) -> str:
        self._at_end(self._ask_next_round)
        return super()._take(event)

    def _ask_next_round(self) -> None:
        """Ask the next round, once the last one is answered and nothing walks any more."""
        if not self._questions:
            self._impatient = False
        if self.state is not State.WALKING or self._plans:
            return
        if self._questions and not self._impatient:
            return
        pairs, owners = self._pairs.collected
        waited_for = self._questions.owners
        asked = [owner for owner in np.unique(owners).tolist() if owner not in waited_for]
        self.rounds += bool(asked)
        for owner in asked:
            if owner in self._away:  # it went away while these pairs walked towards it
                self._walk(pairs[owners == owner])
            else:
                self._ask_about(owner, pairs[owners == owner])

    def _ask_about(self, owner: int, pairs: NDArray[np.int64]) -> None:
        for asked in self._questions.ask_pairs(owner, pairs, self._pairs.nodes, self._budget):
            self._pairs.hold(asked.pairs, asked.body.hop)

    # Answers.

    def _sum_when_arrived(self, index: int) -> None:
        if index not in self._requests:
            return
        request = self._requests[index]
        leaves = self._pairs.leaves(request.start, request.stop)
        if leaves is not None:
            computation = SumOnline(self._served, leaves, request.base_margin)
            self._run(SUMS, single(computation), partial(self._with_sums, index))

    def _with_sums(self, index: int, sums: tuple[NDArray[np.float32], NDArray[np.float32]]) -> None:
        if index not in self._requests:
            return
        request = self._requests[index]
        unknown, degraded = self._degradation.of(
            request.start, request.stop, self._served.share.parties
        )
        bitmaps = None
        if request.explain and self._mode == "bitmap" and not degraded:  # a guess has no reasons
            rows = slice(request.start, request.stop)
            bitmaps = {owner: bits[rows] for owner, bits in self._bitmaps.items()}
        self._answer(index, OnlineScores(*sums, unknown, degraded, bitmaps))

    def _answer(self, index: int, result: OnlineScores | FedmqError) -> None:
        del self._requests[index]
        self._emit(CancelTimer(Deadline(index)))
        self._emit(Answer(index, result))
        self._finish_when_done()

    def _give_up(self, index: int) -> None:
        if self._away:
            reason = "; ".join(self._away.values())
            self._answer(index, PeerSilent(reason))
            return
        seconds = self._requests[index].seconds
        silent = ", ".join(sorted(self._questions.parties))
        names = silent or "nobody: this party's own work took too long"
        self._answer(index, PeerSilent(f"no score within {seconds:g} s; waited for {names}"))

    def _finish_when_done(self) -> None:
        if self._requests or self.state is not State.WALKING:
            return
        self._questions.settle_all()
        self._plans.clear()
        self._move(ALL_ANSWERED)
        self._emit(Finish(None))

    # When a party does not answer.

    @on(TimerFired)
    def _on_timer(self, event: TimerFired) -> None:
        match event.key:
            case Deadline(request) if request in self._requests:
                self._run_out_of_time(request)
            case AskAgain(number) if number in self._questions:
                self._questions.repeat(number)
                self._impatient = True
            case GiveUp(number) if number in self._questions:
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
            for index in list(self._requests):
                self._answer(index, AnswerRefused(reason))
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
            for index in list(self._requests):
                self._give_up(index)
            return
        if self._degrade == "active_only":
            others = [other for other in self._served.asked if other not in self._away]
            self._away |= dict.fromkeys(others, reason)
        open_pairs = [np.empty(0, np.int64)]
        for number, question in self._questions.withdraw(frozenset(self._away)):
            open_pairs.append(self._pairs.held(question.pairs, number))
        # A bitmap that came only in part is of no use for the rest.
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
        """Rows that were answered before stay answered; the others walk anew from the roots."""
        open_rows = [row for row in rows if int(self._request_of[row]) in self._requests]
        pairs = self._pairs.restart(open_rows)
        self._degradation.forget(pairs)
        self._walk(pairs)

    def _run_out_of_time(self, index: int) -> None:
        """The time of a request is over: what is not known by now is guessed, or it fails."""
        if self._requests[index].seconds >= self._timeouts.ask_again:
            # Whoever has less time than that for an answer learns nothing about a party.
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
        request = self._requests[index]
        if self._degrade == "active_only":
            self._start_over(range(request.start, request.stop))
        else:
            self._walk(self._pairs.walking(request.start, request.stop))
        # Only this request is out of time; for the others these parties may still answer.
        self._away, self._bitmaps = away, bitmaps

    def _fail(self, error: FedmqError, but: str = "", disclosed: str = "") -> None:
        """Tell the requests; the other parties keep nothing of a batch and need not know."""
        for index in list(self._requests):
            self._emit(Answer(index, error))
        self._requests.clear()
        self._plans.clear()
        self.state = State.FAILED
        self._emit(Fail(error))
