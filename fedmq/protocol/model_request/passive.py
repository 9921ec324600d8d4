"""How does a party answer what it is asked about a model?"""

from __future__ import annotations

from fedmq.errors import Refused
from fedmq.messages.body import SessionRefuse
from fedmq.messages.model_request import (
    ModelCardOffer,
    ModelCardSigned,
    ModelColumnNames,
    ModelColumns,
    ModelDelete,
    ModelDeleted,
)
from fedmq.protocol.events import Finish
from fedmq.protocol.machine import REFUSES, Machine, on_message
from fedmq.protocol.model_request.states import (
    ANSWERS,
    PASSIVE_MODEL_REQUEST,
    PassiveModelRequestState,
)

__all__ = ["PassiveModelRequest"]


class PassiveModelRequest(Machine):
    """The side of a party that has decided: ``answer`` is what it did, or why it does not."""

    TABLE = PASSIVE_MODEL_REQUEST
    failed_state = PassiveModelRequestState.FAILED

    def __init__(
        self, peer: str, answer: ModelCardSigned | ModelDeleted | ModelColumnNames | Refused
    ) -> None:
        super().__init__(PassiveModelRequestState.READY, (peer,))
        self._answer = answer

    @on_message(ModelCardOffer)
    def _on_card(self, peer: str, _: ModelCardOffer) -> None:
        self._reply(peer)

    @on_message(ModelDelete)
    def _on_delete(self, peer: str, _: ModelDelete) -> None:
        self._reply(peer)

    @on_message(ModelColumns)
    def _on_columns(self, peer: str, _: ModelColumns) -> None:
        self._reply(peer)

    def _reply(self, peer: str) -> None:
        if isinstance(self._answer, Refused):
            self._move(REFUSES)
            self._send(peer, SessionRefuse(reason=str(self._answer)[:2000]))
            self._fail(self._answer, except_for=peer)
        else:
            self._move(ANSWERS)
            self._send(peer, self._answer)
            self._emit(Finish(self._answer))
