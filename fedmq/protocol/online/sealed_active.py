"""What does the active party do with a batch of scores of which nobody learns a direction?

Questions hold the sealed leaves of some people, and go from one passive party to the next. The last
answer tells the sum of each person's leaves. A person is asked about once in a batch, in however
many requests; few questions are under way at once, so that memory does not grow with the batch.

Nothing is guessed: a party that does not answer has no substitute in a sum, and its requests end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.errors import (
    AnswerRefused,
    FedmqError,
    MessageError,
    PeerAway,
    PeerSilent,
    ProtocolError,
)
from fedmq.messages import online
from fedmq.messages.array import Array
from fedmq.messages.online import OnlineSealed
from fedmq.privacy.plan import single
from fedmq.privacy.sealed_scores.ciphertexts import Answered, Blank, Ciphertext
from fedmq.privacy.sealed_scores.machine_ring import is_translated
from fedmq.privacy.sealed_scores.parameters import (
    BLOCKS,
    DEGREE,
)
from fedmq.protocol.events import (
    Fail,
    Finish,
    PeerLost,
    Start,
    TimerFired,
)
from fedmq.protocol.machine import Machine, on, on_message
from fedmq.protocol.online.active import (
    AskAgain,
    Deadline,
    GiveUp,
    OnlineScores,
    OpenQuestions,
    OpenRequests,
    Question,
    unknown_places,
)
from fedmq.protocol.online.options import AskedRows, Timeouts
from fedmq.protocol.online.states import (
    ALL_ANSWERED,
    OPENED,
    SCORED,
    SEALED,
    SEALED_AGAIN,
    SEALED_BATCH,
    SealedBatchState,
)
from fedmq.protocol.sealed_sums import (
    PartScores,
    SealedModel,
    SealedRows,
    open_sums,
    score_parts,
    score_sums,
    seal_again,
    seal_rows,
)

__all__ = ["MOST_CIPHERTEXTS", "SealedBatch"]

State = SealedBatchState

MOST_CIPHERTEXTS = 12
"""Of one row: an answer of a party before the last takes 82 kB each, and stays below 1 MiB."""

_QUESTIONS_AT_ONCE = 3  # enough that nobody waits for the next one, and few wait at a party


@dataclass(frozen=True, slots=True, eq=False)
class _Chained:
    """Some people's way along the parties: ``number`` of their first question, and the ``place`` in
    the chain of the party that has them now. ``mask`` is what the party before said of its own."""

    people: slice
    number: int
    place: int = 0
    mask: bytes = b""


class SealedBatch(Machine):
    """Scores ``ids`` with ``values`` (rows, own features); one :class:`Answer` per request.

    ``fresh``: 32 secret bytes that no other batch has; ``blanks``: ciphertexts made ahead, of which
    no other batch has one either. ``sealed`` says whether scores have reasons. ``away`` and
    ``batch`` as in `OnlineBatch`; an id that comes twice has one set of values.
    """

    TABLE = SEALED_BATCH
    failed_state = State.FAILED

    def __init__(
        self,
        batch: int,
        served: ServedForest,
        sealed: SealedModel,
        ids: Sequence[str],
        values: NDArray[np.float32],
        requests: Sequence[AskedRows],
        timeouts: Timeouts,
        fresh: bytes,
        away: Mapping[str, str] = MappingProxyType({}),
        blanks: Sequence[Blank] = (),
    ) -> None:
        super().__init__(State.READY, sealed.chain)
        self._served = served
        self._sealed = sealed
        self._owners = {party: owner for owner, party in served.asked.items()}
        places = {name: place for place, name in enumerate(dict.fromkeys(ids))}
        self._person_of = np.array([places[name] for name in ids], np.int64)
        _, first = np.unique(self._person_of, return_index=True)
        self._people = tuple(places)
        self._values = values[first]
        self._requests = OpenRequests(requests, timeouts, self._emit)
        self._timeouts = timeouts
        self._fresh = fresh
        self._blanks = list(blanks)
        self._away = {party: reason for party, reason in away.items() if party in self.peers}
        self._questions = OpenQuestions(batch, served, self._people, timeouts, self._emit)
        self._chained: dict[int, _Chained] = {}
        """By number of an open question."""
        self._begun = 0
        """People who were asked about first."""
        self._open: list[slice] = []
        """The people of each question under way, whoever has it."""
        self._sums = np.full((len(places), len(sealed.packing.counts)), np.nan)
        self._unknown: dict[str, NDArray[np.bool_]] = {}
        """By party: the people whom it does not know."""
        self.silent: set[str] = set()
        """Parties that did not answer a question in time."""
        self.rounds = 0
        """How many parties a question has come to so far."""

    @property
    def model(self) -> str:
        """The id of the scoring model."""
        return self._served.share.model_id

    @property
    def is_brief(self) -> bool:
        """Whether its computations take less than a millisecond each: of one ciphertext."""
        return is_translated() and self._sealed.packing.ciphertexts(len(self._people)) == 1

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The requests without scores, by number."""
        return tuple(self._requests.open)

    def check(self) -> None:
        self._questions.check()
        assert self._questions.open.keys() == self._chained.keys()
        assert len(self._open) <= _QUESTIONS_AT_ONCE
        assert not (self.state is State.FINISHED and self._requests.open)

    # Setting out.

    @on(Start)
    def _on_start(self, _: Start) -> None:
        self._requests.begin()
        if self._away:
            reason = "; ".join(dict.fromkeys(self._away.values()))
            self._requests.answer_all(PeerAway(reason, tuple(self._away)))
        else:
            self._seal_more()
        self._finish_when_done()

    def _seal_more(self) -> None:
        """Seal further questions while few are under way."""
        most = self._sealed.packing.rows
        while self._begun < len(self._people) and len(self._open) < _QUESTIONS_AT_ONCE:
            people = slice(self._begun, min(self._begun + most, len(self._people)))
            self._begun = people.stop
            self._open.append(people)
            number = self._questions.number()
            sealing = seal_rows.bind(
                self._sealed, self._values[people], self._fresh, number, self._blank()
            )
            self._run(SEALED, single(sealing), partial(self._with_sealed, people, number))

    def _with_sealed(self, people: slice, number: int, sealed: SealedRows) -> None:
        self._sums[people] = sealed.clear
        self._ask(_Chained(people, number), sealed.questions[0])

    def _ask(self, chained: _Chained, query: Sequence[Ciphertext]) -> None:
        number = self._questions.number()
        self._chained[number] = chained
        self.rounds = max(self.rounds, chained.place + 1)
        body = OnlineSealed(
            batch=self._questions.batch,
            hop=number,
            model=self.model,
            ids=self._people[chained.people],
            key=self._sealed.key.seed,
            mask=chained.mask,
            seeds=tuple(part.seed for part in query),
            words=Array.of(np.stack([part.words for part in query])),
            budget=self._requests.budget,
            reasons=self._sealed.parts is not None,
        )
        owner = self._owners[self._sealed.chain[chained.place]]
        self._questions.ask(Question(owner, body, np.empty(0, np.int64), chained.people))

    # Answers.

    @on_message(online.OnlineProducts)
    def _on_products(self, peer: str, body: online.OnlineProducts) -> None:
        question = self._questions.answered(peer, body)
        if question is None:
            return
        chained = self._chained[body.hop]
        people = chained.people.stop - chained.people.start
        is_last = chained.place == len(self._sealed.chain) - 1
        answers = _answered(peer, body, BLOCKS if is_last else DEGREE)
        if len(answers) != self._sealed.packing.ciphertexts(people):
            raise ProtocolError(f"{peer}: {len(answers)} products, not as many as were asked")
        if is_last == bool(body.mask):
            raise ProtocolError(f"{peer}: a mask that fits no place in the chain")
        unknown = unknown_places(peer, body.unknown, people)
        self._settle(body.hop)
        if len(unknown):
            lacking = self._unknown.setdefault(peer, np.zeros(len(self._people), np.bool_))
            lacking[chained.people.start + unknown] = True
        if is_last:
            opening = open_sums.bind(self._sealed, answers, people)
            self._run(OPENED, single(opening), partial(self._with_sums, chained.people))
        else:
            place = chained.place + 1
            following = _Chained(chained.people, chained.number, place, body.mask)
            sealing = seal_again.bind(
                self._sealed, answers, self._fresh, chained.number, place, self._blank()
            )
            self._run(SEALED_AGAIN, single(sealing), partial(self._ask, following))

    def _blank(self) -> list[Blank]:
        """One that was made ahead, if there is one left; it is used for nothing else."""
        return [self._blanks.pop()] if self._blanks else []

    def _settle(self, number: int) -> None:
        self._questions.settle(number)
        del self._chained[number]

    def _with_sums(self, people: slice, sums: NDArray[np.float64]) -> None:
        self._sums[people] += sums
        self._open.remove(people)
        for index, request in list(self._requests.open.items()):
            here = self._person_of[request.start : request.stop]
            is_new = (here >= people.start) & (here < people.stop)
            if is_new.any() and not self._is_open(here):
                self._score(index, here, request.base_margin)
        self._seal_more()

    def _score(
        self, index: int, people: NDArray[np.int64], base_margin: NDArray[np.float32] | None
    ) -> None:
        params, parts = self._sealed.params, self._sealed.parts
        sums, then = self._sums[people], partial(self._with_scores, index, people)
        if parts is None:
            scoring = score_sums.bind(params, sums, base_margin)
            self._run(SCORED, single(scoring), lambda scored: then(OnlineScores(*scored)))
            return

        def with_parts(scored: PartScores) -> None:
            margins, predictions, found = scored
            then(OnlineScores(margins, predictions, contributions=found[:, 0]))

        explaining = score_parts.bind(params, parts.expected, sums, base_margin)
        self._run(SCORED, single(explaining), with_parts)

    def _is_open(self, people: NDArray[np.int64]) -> bool:
        """Whether some of ``people`` have no sum yet."""
        waiting = people >= self._begun
        for part in self._open:
            waiting |= (people >= part.start) & (people < part.stop)
        return bool(waiting.any())

    def _with_scores(
        self,
        index: int,
        people: NDArray[np.int64],
        scores: OnlineScores,
    ) -> None:
        if index in self._requests.open:
            unknown = {party: mask[people] for party, mask in self._unknown.items()}
            unknown = {party: mask for party, mask in unknown.items() if mask.any()}
            self._requests.answer(index, replace(scores, unknown=unknown))
        self._finish_when_done()

    def _finish_when_done(self) -> None:
        if self._requests.open or self.state is not State.ASKING:
            return
        self._questions.settle_all()
        self._chained.clear()
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
            case GiveUp(number) if number in self._questions.open:
                party = self._served.asked[self._questions.owner(number)]
                self.silent.add(party)
                waited = f"{party} did not answer within {self._timeouts.away:g} s"
                self._requests.answer_all(PeerSilent(waited, (party,)))
        self._finish_when_done()

    def _run_out_of_time(self, index: int) -> None:
        if self._requests.had_time(index):
            self.silent |= self._questions.parties
        self._requests.answer_late(index, self._questions.parties)

    @on_message(online.OnlineRefusal)
    def _on_refusal(self, peer: str, body: online.OnlineRefusal) -> None:
        question = self._questions.answered(peer, body)
        if question is None:
            return
        self._requests.answer_all(AnswerRefused(f"{peer} refused: {body.reason}", (peer,)))
        self._finish_when_done()

    def _on_peer_lost(self, event: PeerLost) -> None:
        if event.peer in self.peers:
            self._requests.answer_all(PeerSilent(event.reason, (event.peer,)))
        self._finish_when_done()

    def _fail(self, error: FedmqError, except_for: str = "", disclosed: str = "") -> None:
        """Fail the requests; the other parties keep nothing of a batch and need no message."""
        self._requests.answer_all(error)
        self._questions.settle_all()
        self._chained.clear()
        self._plans.clear()
        self.state = State.FAILED
        self._emit(Fail(error))


def _answered(peer: str, body: online.OnlineProducts, count: int) -> list[Answered]:
    """The products that ``peer`` sent, of ``count`` numbers each; ProtocolError otherwise."""
    masks, numbers = body.masks.values, body.numbers.values
    if masks.ndim != 3 or numbers.ndim != 3 or len(masks) != len(numbers):
        raise ProtocolError(f"{peer}: products that do not pair up")
    answers = [Answered(*parts) for parts in zip(masks, numbers, strict=True)]
    try:
        for answer in answers:
            answer.check(count)
    except MessageError as error:
        raise ProtocolError(f"{peer}: {error}") from error
    return answers
