"""What does a passive party do where scores are sealed?

It multiplies what the active party has encrypted by zeros and ones: of each slot of leaves, whether
its own splits allow it to the row. It learns who is scored, and nothing of their way or score.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import PassiveShare
from fedmq.errors import MessageError, ProtocolError, Refused
from fedmq.messages import inference
from fedmq.messages.array import Array
from fedmq.privacy.plan import single
from fedmq.privacy.random_stream import Stream
from fedmq.privacy.sealed_scores.ciphertexts import Answered, AnswerQuery, Ciphertext
from fedmq.protocol.inference.states import MULTIPLIED
from fedmq.protocol.machine import Machine, Part, on_message
from fedmq.protocol.sealed_sums import MultipliedShare, answer_sealed, neighbours

__all__ = ["SealedAnswers"]


class SealedAnswers(Part):
    """Answers sealed questions about rows of this party's ``values`` (rows, features).

    ``row_of`` int64: the local row of each row of the session. ``seed`` of 32 bytes is secret, and
    fresh for each attempt.

    Raises:
        Refused: the terms do not fit the party's share, or name parties that it does not know.
    """

    def __init__(
        self,
        machine: Machine,
        share: PassiveShare,
        values: NDArray[np.float32],
        row_of: NDArray[np.int64],
        terms: inference.SealedTerms,
        seed: bytes,
    ) -> None:
        super().__init__(machine)
        self._values = values
        self._row_of = row_of
        self._seed = seed
        self._active, *others = machine.peers
        self._previous, self._next = _neighbours(share.party, terms.chain, others)
        self._share = MultipliedShare.of(share, terms)
        self._link = b""
        """The seed of the masks between the previous party and this one, once it has come."""
        self._gave_link = False
        self._number = 0
        """Of the question that is asked, or will be next."""
        self._asked: list[Ciphertext] = []
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._scored = np.zeros(len(row_of), np.bool_)
        """The rows that were asked about."""
        self._held: list[tuple[int, NDArray[np.int64], list[Ciphertext]]] = []
        """Questions that wait for the link."""

    @on_message(inference.SealedLink)
    def _on_link(self, peer: str, body: inference.SealedLink) -> None:
        if peer != self._previous or self._link:
            raise ProtocolError("a link of sealed scores, out of place")
        self._link = body.seed
        held, self._held = self._held, []
        for question in held:
            self._multiply(*question)

    @on_message(inference.SealedQuery)
    def _on_query(self, _: str, body: inference.SealedQuery) -> None:
        rows = body.rows.numpy()
        if body.number != self._number or body.piece != len(self._asked):
            raise ProtocolError(f"sealed question {body.number} is out of place, or asked again")
        if not 0 < len(rows) <= self._share.packing.rows or int(rows.max()) >= len(self._row_of):
            raise ProtocolError(f"sealed question {body.number} asks for rows that do not exist")
        if not self._asked:
            if self._scored[rows].any() or len(np.unique(rows)) < len(rows):
                raise ProtocolError(f"sealed question {body.number} asks about a row again")
            self._scored[rows] = True
        here = self._row_of[rows]
        if self._asked and not np.array_equal(here, self._rows):
            raise ProtocolError(f"sealed question {body.number} is about different rows")
        try:
            self._asked.append(Ciphertext(body.seed, body.words.numpy()))
        except MessageError as error:
            raise ProtocolError(f"sealed question {body.number}: {error}") from error
        self._rows = here
        if len(self._asked) < self._share.packing.ciphertexts(len(rows)):
            return
        question = self._number, here, self._asked
        self._asked = []
        self._number += 1
        if self._next and not self._gave_link:
            self._gave_link = True
            self._send(self._next, inference.SealedLink(seed=self._drawn("link")))
        if self._previous and not self._link:
            self._held.append(question)
        else:
            self._multiply(*question)

    def _drawn(self, *names: object) -> bytes:
        return _drawn(self._seed, *names)

    def _multiply(self, number: int, here: NDArray[np.int64], asked: Sequence[Ciphertext]) -> None:
        before = _drawn(self._link, "masks", number) if self._previous else None
        after = _drawn(self._drawn("link"), "masks", number) if self._next else None
        query = AnswerQuery(
            asked,
            self._share.key,
            self._share.packing,
            np.zeros((len(here), 0), np.bool_),
            self._drawn("answer", number),
            before,
            after,
        )
        computation = answer_sealed.bind(self._share, self._values[here], query)
        self._run(MULTIPLIED, single(computation), partial(self._reply, number))

    def _reply(self, number: int, answers: Sequence[Answered]) -> None:
        for piece, part in enumerate(answers):
            body = inference.SealedAnswer(
                number=number,
                piece=piece,
                masks=Array.of(part.masks),
                numbers=Array.of(part.numbers),
            )
            self._send(self._active, body)


def _drawn(seed: bytes, *names: object) -> bytes:
    return Stream(seed, f"fedmq sealed answers {' '.join(map(str, names))}").read(32)


def _neighbours(party: str, chain: Sequence[str], others: Sequence[str]) -> tuple[str, str]:
    """The parties before and after this one in the ``chain``; "" where there is none."""
    previous, following = neighbours(party, chain)
    if {previous, following} - {""} != set(others):
        raise Refused("sealed scores: the order of the parties names one that is not known here")
    return previous, following
