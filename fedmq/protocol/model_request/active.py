"""How does the active party ask one party about a model?"""

from __future__ import annotations

from collections.abc import Sequence

from fedmq.errors import ProtocolError
from fedmq.messages.body import Body, SessionRefuse
from fedmq.messages.model_request import ANSWERS, ModelGroupPiece, ModelQuestion
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.machine import Machine, on, on_message
from fedmq.protocol.model_request.states import ACTIVE_MODEL_REQUEST, ActiveModelRequestState

__all__ = ["ActiveModelRequest"]


class ActiveModelRequest(Machine):
    """The active party's side: sends ``question`` to ``peer``, and finishes with the answer.

    ``pieces`` of the question follow it.
    """

    TABLE = ACTIVE_MODEL_REQUEST
    failed_state = ActiveModelRequestState.FAILED

    def __init__(
        self, peer: str, question: ModelQuestion, pieces: Sequence[ModelGroupPiece] = ()
    ) -> None:
        super().__init__(ActiveModelRequestState.READY, (peer,))
        self._question = question
        self._pieces = pieces

    @on(Start)
    def _on_start(self, _: Start) -> None:
        for body in (self._question, *self._pieces):
            self._send(self.peers[0], body)

    @on_message(*ANSWERS.values())
    def _on_answer(self, _: str, body: Body) -> None:
        if type(body) is not ANSWERS[type(self._question)]:
            raise ProtocolError("that was not asked")
        self._emit(Finish(body))

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body, "does not do that")
