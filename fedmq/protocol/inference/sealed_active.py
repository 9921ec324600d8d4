"""How does the active party score people in mode sealed, without learning any direction?

It encrypts what each slot of leaves adds to a row, where its own splits allow the slot, and sends
the ciphertexts from one passive party to the next. The last answer tells the sum, and nothing else.
Rows of one question share ciphertexts; some questions are under way at once, so that memory does
not grow with the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import ActiveShare
from fedmq.errors import MessageError, ProtocolError
from fedmq.messages import inference
from fedmq.messages.array import Array
from fedmq.privacy.plan import single
from fedmq.privacy.sealed_scores.ciphertexts import Answered, Ciphertext
from fedmq.privacy.sealed_scores.parameters import (
    BLOCKS,
    DEGREE,
)
from fedmq.protocol.events import Report
from fedmq.protocol.inference.computations import Scores
from fedmq.protocol.inference.states import (
    PREPARED,
    SCORES,
    SEALED,
    SEALED_AGAIN,
    SUMMED,
)
from fedmq.protocol.machine import Machine, Part, on_message
from fedmq.protocol.sealed_sums import (
    PartScores,
    SealedModel,
    SealedRows,
    open_sums,
    prepare_sealed,
    score_parts,
    score_sums,
    seal_again,
    seal_rows,
)

__all__ = ["SealedSums"]

_QUESTIONS_AT_ONCE = 8  # that one computation makes
_COMPUTATIONS_AHEAD = 3


@dataclass(slots=True, eq=False)
class _Question:
    """A question under way: the place in the chain of the party that has it, and its answers."""

    rows: NDArray[np.int64]
    place: int = 0
    answers: dict[int, Answered] = field(default_factory=dict)


class SealedSums(Part):
    """Sums of the leaves of rows with these ``values`` (rows, features).

    ``seed`` of 32 bytes is secret, and fresh for each attempt. With ``reasons`` they are sums of
    each party's part.
    """

    def __init__(
        self,
        machine: Machine,
        share: ActiveShare,
        values: NDArray[np.float32],
        seed: bytes,
        reasons: bool = False,
    ) -> None:
        super().__init__(machine)
        self._reasons = reasons
        self._share = share
        self._chain = share.asked
        self._values = values
        self._seed = seed
        self._model: SealedModel
        self._then: Callable[[NDArray[np.float64]], None]
        self._rows: list[NDArray[np.int64]] = []
        """Of each question."""
        self._begun = 0
        self._making = 0
        self._questions: dict[int, _Question] = {}
        self._next = [0] * len(self._chain)
        """By place in the chain: the number of the question that is sent next."""
        self._ready: dict[int, Sequence[Ciphertext]] = {}
        """By number: what is encrypted, but has to wait for an earlier question."""
        self._sums: NDArray[np.float64]
        self._scored = 0

    def prepare(self, then: Callable[[], None]) -> None:
        """Lay out slots and make a key, before the session is opened."""

        def with_prepared(model: SealedModel) -> None:
            self._model = model
            then()

        preparing = prepare_sealed.bind(self._share, self._seed, self._reasons)
        self._run(PREPARED, single(preparing), with_prepared)

    def terms(self, peer: str) -> inference.SealedTerms:
        """What ``peer`` has to know."""
        return self._model.terms(peer)

    def begin(self, known: NDArray[np.bool_], then: Callable[[NDArray[np.float64]], None]) -> None:
        """Ask about the ``known`` rows; ``then`` takes the sums (rows, outputs), NaN of others."""
        self._then = then
        packing = self._model.packing
        self._sums = np.full((len(known), len(packing.counts)), np.nan)
        rows = np.flatnonzero(known)
        self._rows = [
            rows[start : start + packing.rows] for start in range(0, len(rows), packing.rows)
        ]
        self._go_on()

    def _go_on(self) -> None:
        """Make further questions while few are under way; end after the last answer."""
        under_way = len(self._questions) + self._making * _QUESTIONS_AT_ONCE
        while self._begun < len(self._rows) and under_way <= (
            (_COMPUTATIONS_AHEAD - 1) * _QUESTIONS_AT_ONCE
        ):
            first = self._begun
            chosen = self._rows[first : first + _QUESTIONS_AT_ONCE]
            self._begun += len(chosen)
            self._making += 1
            under_way += len(chosen)
            computation = seal_rows.bind(
                self._model, self._values[np.concatenate(chosen)], self._seed, first
            )
            self._run(SEALED, single(computation), partial(self._with_sealed, first, chosen))
        if self._scored == len(self._rows):
            self._then(self._sums)

    def _with_sealed(
        self, first: int, chosen: Sequence[NDArray[np.int64]], asked: SealedRows
    ) -> None:
        self._making -= 1
        self._sums[np.concatenate(chosen)] = asked.clear
        for number, (rows, query) in enumerate(zip(chosen, asked.questions, strict=True), first):
            self._questions[number] = _Question(rows)
            self._ask(number, query)

    def _ask(self, number: int, query: Sequence[Ciphertext]) -> None:
        """Send ``query``, and those after it that wait: workers finish in any order, and a party
        takes numbers in theirs."""
        place = self._questions[number].place
        self._ready[number] = query
        while (first := self._next[place]) in self._ready and self._questions[first].place == place:
            self._next[place] += 1
            self._send_query(first, self._ready.pop(first))

    def _send_query(self, number: int, query: Sequence[Ciphertext]) -> None:
        question = self._questions[number]
        rows = Array.of(question.rows.astype(np.uint32))
        for piece, part in enumerate(query):
            body = inference.SealedQuery(
                number=number, piece=piece, rows=rows, seed=part.seed, words=Array.of(part.words)
            )
            self._send(self._chain[question.place], body)

    @on_message(inference.SealedAnswer)
    def _on_answer(self, peer: str, body: inference.SealedAnswer) -> None:
        question = self._questions.get(body.number)
        pieces = 0 if question is None else self._model.packing.ciphertexts(len(question.rows))
        if (
            question is None
            or self._chain[question.place] != peer
            or body.piece >= pieces
            or body.piece in question.answers
        ):
            raise ProtocolError(f"an unrequested answer to sealed question {body.number}")
        is_last = question.place == len(self._chain) - 1
        answer = Answered(body.masks.numpy(), body.numbers.numpy())
        try:
            answer.check(BLOCKS if is_last else DEGREE)
        except MessageError as error:
            raise ProtocolError(f"sealed question {body.number}: {error}") from error
        question.answers[body.piece] = answer
        if len(question.answers) < pieces:
            return
        answers = [question.answers[piece] for piece in range(pieces)]
        question.answers = {}
        question.place += 1
        if is_last:
            opening = open_sums.bind(self._model, answers, len(question.rows))
            self._run(SUMMED, single(opening), partial(self._with_sums, body.number))
        else:
            sealing = seal_again.bind(self._model, answers, self._seed, body.number, question.place)
            self._run(SEALED_AGAIN, single(sealing), partial(self._ask, body.number))

    def _with_sums(self, number: int, sums: NDArray[np.float64]) -> None:
        rows = self._questions.pop(number).rows
        self._sums[rows] += sums
        self._scored += 1
        trees = len(self._share.used_trees)
        total = sum(map(len, self._rows)) * trees
        done = int(np.count_nonzero(~np.isnan(self._sums[:, 0]))) * trees
        self._emit(Report(min(done, total), total, "leaf", {}))
        self._go_on()

    def scores(
        self,
        sums: NDArray[np.float64],
        base_margin: NDArray[np.float32] | None,
        then: Callable[[Scores], None],
    ) -> None:
        """Turn ``sums`` into scores; ``base_margin`` as in `sum_leaves`."""

        params, parts = self._share.params, self._model.parts
        if parts is None:
            scoring = single(score_sums.bind(params, sums, base_margin))
            self._run(SCORES, scoring, lambda scored: then(Scores(*scored)))
            return

        def with_parts(scored: PartScores) -> None:
            margins, predictions, contributions = scored
            players = self._model.players
            then(Scores(margins, predictions, players=players, contributions=contributions))

        explaining = single(score_parts.bind(params, parts.expected, sums, base_margin))
        self._run(SCORES, explaining, with_parts)
