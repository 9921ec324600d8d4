"""Which messages of a training does a party answer for, and when does it sign them?"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from fedmq.errors import Inconsistent, ProtocolError
from fedmq.messages import training
from fedmq.messages.body import Body
from fedmq.protocol.events import Event, Received, SaveMessage, SaveStatement
from fedmq.protocol.machine import Machine
from fedmq.protocol.records import SignedStatement, Signing, Transcript, message_hash

__all__ = ["TranscribedMachine"]

_TRANSCRIBED = frozenset(training.BODIES) - {training.CircuitPiece, training.BestSoFar}
"""Circuits are drawn at random and told nobody afterwards: nothing is proved by them."""


class TranscribedMachine(Machine):
    """With ``signing`` it keeps a transcript with each peer: of all messages of the training.

    A passive party signs as it says that a tree is saved, the ``active`` one as it goes on. The
    passive party keeps what was hashed, and nothing else: an auditor hashes it again.
    """

    def __init__(
        self,
        state: Enum,
        party: str,
        peers: Sequence[str],
        signing: Signing | None,
        *,
        active: str,
    ) -> None:
        super().__init__(state, peers)
        self._party = party
        self._transcripts: dict[str, Transcript] = {}
        if signing is not None:
            for peer in peers if party == active else (active,):
                passive = peer if party == active else party
                self._transcripts[peer] = Transcript(signing, active, passive)
        self._hashed: tuple[Body | None, bytes] = (None, b"")

    def _send(self, recipient: str, body: Body) -> None:
        transcript = self._transcripts.get(recipient)
        if transcript is not None and type(body) in _TRANSCRIBED:
            body = self._signed(transcript, body)
            self._keep(transcript, False, transcript.answers.count, body)
        super()._send(recipient, body)

    def _take(self, event: Event) -> str:
        if isinstance(event, Received) and type(event.body) in _TRANSCRIBED:
            transcript = self._transcripts.get(event.sender)
            if transcript is not None:
                transcript.note(event.sender, self._hash(event.body))
                self._keep(transcript, True, transcript.questions.count, event.body)
                self._verify(transcript, event.sender, event.body)
        return super()._take(event)

    def _signed(self, transcript: Transcript, body: Body) -> Body:
        """``body`` as it is sent: noted, and signed where something is due to be."""
        if isinstance(body, training.TreeFinished):
            body = body.model_copy(update={"lot": transcript.signing.lot(body.tree)})
        transcript.note(self._party, self._hash(body))
        if isinstance(body, training.SessionAccept):
            transcript.commitment = body.commitment
        elif isinstance(body, training.TreeSaved):
            statement = transcript.state(body.tree).to_bytes()
            return body.model_copy(update={"signature": transcript.signing.sign(statement)})
        elif isinstance(body, training.TreeStarted | training.SessionFinished):
            return body.model_copy(update={"signature": transcript.countersignature()})
        return body

    def _verify(self, transcript: Transcript, sender: str, body: Body) -> None:
        """Take what ``sender`` commits to, and what it has signed.

        Raises:
            Inconsistent: it signs another conversation than this party had with it.
            ProtocolError: the active party does not sign what it has heard.
        """
        if isinstance(body, training.SessionAccept):
            transcript.commitment = body.commitment
            if not body.commitment:  # it answers for nothing, which is for its own policy to say
                del self._transcripts[sender]
        elif isinstance(body, training.TreeSaved):
            statement = transcript.state(body.tree)
            if not transcript.signing.verifies(sender, statement.to_bytes(), body.signature):
                raise Inconsistent(
                    sender,
                    f"tree {body.tree}: it signs other messages than were sent",
                    {"tree": body.tree, "signature": body.signature.hex()},
                )
            self._emit(SaveStatement(SignedStatement(statement, body.signature)))
        elif isinstance(body, training.TreeStarted | training.SessionFinished):
            self._verify_countersignature(transcript, body.signature)

    def _verify_countersignature(self, transcript: Transcript, signature: bytes) -> None:
        if not transcript.is_countersigned(signature):
            raise ProtocolError("the messages of the tree before are not signed by their sender")

    def _keep(self, transcript: Transcript, incoming: bool, number: int, body: Body) -> None:
        if self._party == transcript.passive:
            self._emit(SaveMessage(incoming, number, body))

    def _hash(self, body: Body) -> bytes:
        """One message to several peers is hashed once: a broadcast is large."""
        if self._hashed[0] is not body:
            self._hashed = (body, message_hash(body))
        return self._hashed[1]
