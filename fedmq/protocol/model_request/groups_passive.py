"""How does a party add up, by groups of its column, what it cannot read?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages.array import Array
from fedmq.messages.body import SessionRefuse
from fedmq.messages.model_request import ModelGroupPiece, ModelGroups, ModelGroupSums
from fedmq.privacy.plan import single
from fedmq.protocol.events import ComputationFailed, Finish
from fedmq.protocol.machine import REFUSES, Machine, on_message
from fedmq.protocol.model_request.states import PASSIVE_GROUPS, SUMS, PassiveGroupsState

__all__ = ["MakeAddition", "PassiveGroups"]

_MOST_BYTES = 2**27  # of 100,000 people under a key of 5,000 bits

MakeAddition = Callable[[ModelGroups, tuple[str, ...], NDArray[np.uint8]], Computation]
"""Of a question, its ids and ciphertexts: the computation of ModelGroupSums' three fields.

Raises Refused for a key that is none.
"""


class PassiveGroups(Machine):
    """Gathers the question of ``peer`` and answers it; ``consent`` raises Refused."""

    TABLE = PASSIVE_GROUPS
    failed_state = PassiveGroupsState.FAILED

    def __init__(
        self, peer: str, consent: Callable[[ModelGroups], None], addition: MakeAddition
    ) -> None:
        super().__init__(PassiveGroupsState.READY, (peer,))
        self._consent = consent
        self._addition = addition
        self._question: ModelGroups
        self._ids: list[str] = []
        self._pieces: list[NDArray[np.uint8]] = []

    @on_message(ModelGroups)
    def _on_groups(self, _: str, body: ModelGroups) -> None:
        self._question = body
        try:
            self._consent(body)
        except FedmqError as error:
            self._refuse(error, str(error))

    @on_message(ModelGroupPiece)
    def _on_piece(self, _: str, body: ModelGroupPiece) -> None:
        asked, people = len(self._ids), self._question.people
        numbers = body.ciphertexts
        if body.start != asked or asked + len(body.ids) > people:
            raise ProtocolError(f"people from {body.start} on, {asked} of {people} was next")
        if numbers.dtype != "|u1" or len(numbers.shape) != 2 or numbers.shape[0] != len(body.ids):
            raise ProtocolError("one ciphertext for each person is needed")
        if people * numbers.shape[1] > _MOST_BYTES:
            raise ProtocolError(f"ciphertexts of more than {_MOST_BYTES:,} bytes together")
        if self._pieces and self._pieces[0].shape[1] != numbers.shape[1]:
            raise ProtocolError("ciphertexts of different lengths")
        self._ids.extend(body.ids)
        self._pieces.append(numbers.numpy())
        if len(self._ids) == people:
            try:
                addition = self._addition(
                    self._question, tuple(self._ids), np.concatenate(self._pieces)
                )
            except Refused as error:
                self._refuse(error, str(error))
                return
            self._run(SUMS, single(addition), self._answer)

    def _answer(self, sums: tuple[Sequence[str], NDArray[np.uint32], NDArray[np.uint8]]) -> None:
        names, counts, ciphertexts = sums
        body = ModelGroupSums(
            groups=tuple(names), counts=Array.of(counts), ciphertexts=Array.of(ciphertexts)
        )
        self._send(self.peers[0], body)
        self._emit(Finish(body))

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is not PassiveGroupsState.GATHERING:
            super()._on_computation_failed(event)
        elif isinstance(event.error, Refused):
            self._refuse(event.error, str(event.error))
        else:  # it may quote this party's data
            self._refuse(event.error, "it could not be done; the log of this party says why")

    def _refuse(self, error: FedmqError, reason: str) -> None:
        self._move(REFUSES)
        self._send(self.peers[0], SessionRefuse(reason=reason[:2000]))
        self._fail(error, except_for=self.peers[0])
