"""How does the active party ask one party about a model?"""

from __future__ import annotations

from collections.abc import Sequence

from fedmq.errors import ProtocolError
from fedmq.messages.body import Body, SessionRefuse
from fedmq.messages.model_request import (
    ModelCardOffer,
    ModelCardSigned,
    ModelColumnNames,
    ModelColumns,
    ModelDelete,
    ModelDeleted,
    ModelGroupPiece,
    ModelGroups,
    ModelGroupSums,
)
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.machine import Machine, on, on_message
from fedmq.protocol.model_request.states import ACTIVE_MODEL_REQUEST, ActiveModelRequestState

__all__ = ["ActiveModelRequest"]


class ActiveModelRequest(Machine):
    """The active party's side: puts ``question`` to ``peer``, and finishes with the answer.

    ``pieces`` of the question follow it.
    """

    TABLE = ACTIVE_MODEL_REQUEST
    failed_state = ActiveModelRequestState.FAILED

    def __init__(
        self,
        peer: str,
        question: ModelCardOffer | ModelDelete | ModelColumns | ModelGroups,
        pieces: Sequence[ModelGroupPiece] = (),
    ) -> None:
        super().__init__(ActiveModelRequestState.READY, (peer,))
        self._question = question
        self._pieces = pieces

    @on(Start)
    def _on_start(self, _: Start) -> None:
        for body in (self._question, *self._pieces):
            self._send(self.peers[0], body)

    @on_message(ModelCardSigned)
    def _on_signed(self, _: str, body: ModelCardSigned) -> None:
        self._finish(body, ModelCardOffer)

    @on_message(ModelDeleted)
    def _on_deleted(self, _: str, body: ModelDeleted) -> None:
        self._finish(body, ModelDelete)

    @on_message(ModelColumnNames)
    def _on_names(self, _: str, body: ModelColumnNames) -> None:
        self._finish(body, ModelColumns)

    @on_message(ModelGroupSums)
    def _on_group_sums(self, _: str, body: ModelGroupSums) -> None:
        self._finish(body, ModelGroups)

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body, "does not do that")

    def _finish(self, answer: Body, question: type[Body]) -> None:
        if not isinstance(self._question, question):
            raise ProtocolError("that was not asked")
        self._emit(Finish(answer))
