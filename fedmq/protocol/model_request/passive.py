"""How does a party answer what it is asked about a model?

The party decides before it takes the question: it has the answer, or a reason to refuse, or it
first gathers the pieces of the question and computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.model_request import ANSWERS, ModelGroupPiece, ModelGroupSums, ModelQuestion
from fedmq.privacy.plan import single
from fedmq.protocol.events import ComputationFailed, Finish, Save
from fedmq.protocol.machine import Machine, on_message, turn_down
from fedmq.protocol.model_request.states import (
    KNOWS,
    PASSIVE_MODEL_REQUEST,
    SUMS,
    PassiveModelRequestState,
)
from fedmq.protocol.session_records import PeopleAnswered

__all__ = ["GroupPieces", "MakeAddition", "PassiveModelRequest"]

_MOST_BYTES = 2**27  # of 100,000 people under a key of 5,000 bits

MakeAddition = Callable[[tuple[str, ...], NDArray[np.uint8]], Computation]
"""Of ids and their ciphertexts (ids, bytes): the computation of ModelGroupSums' three fields.

Its fourth result are the people whom these sums are about, who are kept before the answer leaves.
"""


class GroupPieces:
    """The arriving ids and ciphertexts of ``people`` people, and the computation of their sum."""

    def __init__(self, people: int, addition: MakeAddition) -> None:
        self._people = people
        self._addition = addition
        self._ids: list[str] = []
        self._ciphertexts: list[NDArray[np.uint8]] = []

    def take(self, piece: ModelGroupPiece) -> Computation | None:
        """Take ``piece``; returns the addition after the last. ProtocolError if out of order."""
        known, people = len(self._ids), self._people
        numbers = piece.ciphertexts
        if piece.start != known or known + len(piece.ids) > people:
            raise ProtocolError(f"people begin at {piece.start}, not at {known} of {people}")
        if numbers.dtype != "|u1" or len(numbers.shape) != 2 or numbers.shape[0] != len(piece.ids):
            raise ProtocolError("one ciphertext for each person is needed")
        if people * numbers.shape[1] > _MOST_BYTES:
            raise ProtocolError(f"ciphertexts of more than {_MOST_BYTES:,} bytes together")
        if self._ciphertexts and self._ciphertexts[0].shape[1] != numbers.shape[1]:
            raise ProtocolError("ciphertexts of different lengths")
        self._ids.extend(piece.ids)
        self._ciphertexts.append(numbers.numpy())
        if len(self._ids) < people:
            return None
        return self._addition(tuple(self._ids), np.concatenate(self._ciphertexts))


class PassiveModelRequest(Machine):
    """The side of a party that has decided: ``answer`` is an answer, its pieces, or a refusal.

    The deciding service gives an answer that fits the question.
    """

    TABLE = PASSIVE_MODEL_REQUEST
    failed_state = PassiveModelRequestState.FAILED

    def __init__(self, peer: str, answer: Body | GroupPieces | Refused) -> None:
        super().__init__(PassiveModelRequestState.READY, (peer,))
        self._answer = answer

    @on_message(*ANSWERS)
    def _on_question(self, _: str, __: ModelQuestion) -> None:
        if isinstance(self._answer, Refused):
            self._refuse(self._answer, str(self._answer))
        elif isinstance(self._answer, Body):
            self._move(KNOWS)
            self._reply(self._answer)

    @on_message(ModelGroupPiece)
    def _on_piece(self, _: str, body: ModelGroupPiece) -> None:
        assert isinstance(self._answer, GroupPieces)  # else it has answered already
        addition = self._answer.take(body)
        if addition is not None:
            self._run(SUMS, single(addition), self._reply_sums)

    def _reply_sums(
        self, sums: tuple[Sequence[str], NDArray[np.uint32], NDArray[np.uint8], PeopleAnswered]
    ) -> None:
        names, counts, ciphertexts, people = sums
        self._emit(Save(people))
        self._reply(
            ModelGroupSums(
                groups=tuple(names), counts=Array.of(counts), ciphertexts=Array.of(ciphertexts)
            )
        )

    def _reply(self, answer: Body) -> None:
        self._send(self.peers[0], answer)
        self._emit(Finish(answer))

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is not PassiveModelRequestState.DECIDED:
            super()._on_computation_failed(event)
        elif isinstance(event.error, Refused):
            self._refuse(event.error, str(event.error))
        else:  # it may quote this party's data
            self._refuse(event.error, "the request failed; the party's log says why")

    def _refuse(self, error: FedmqError, reason: str) -> None:
        turn_down(self, self.peers[0], reason)
        self._fail(error, except_for=self.peers[0])
