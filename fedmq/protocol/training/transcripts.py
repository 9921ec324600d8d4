"""Which messages of a training does a party answer for, and when does it sign them?"""

from __future__ import annotations

from collections.abc import Sequence

from fedmq.errors import Inconsistent, ProtocolError
from fedmq.messages import training
from fedmq.messages.body import Body
from fedmq.protocol.events import Save
from fedmq.protocol.machine import Machine
from fedmq.protocol.records import (
    SignedStatement,
    Signing,
    Transcript,
    TranscriptMessage,
    message_hash,
)

__all__ = ["Transcripts"]

_TRANSCRIBED = frozenset(training.BODIES) - {training.CircuitPiece, training.BestSoFar}
"""Circuits are drawn at random and told nobody afterwards: nothing is proved by them."""


class Transcripts:
    """The witness of ``machine``: it keeps a transcript with each peer, of all messages.

    A passive party signs as it says that a tree is saved, the ``active`` one as it goes on. The
    passive party keeps what was hashed, and nothing else: an auditor hashes it again.
    """

    def __init__(
        self, machine: Machine, party: str, peers: Sequence[str], signing: Signing, *, active: str
    ) -> None:
        self._emit = machine._emit
        self._party = party
        self.by_peer: dict[str, Transcript] = {}
        for peer in peers:
            passive = peer if party == active else party
            self.by_peer[peer] = Transcript(signing, active, passive)
        self._hashed: tuple[Body | None, bytes] = (None, b"")

    def sending(self, recipient: str, body: Body) -> Body:
        """Note ``body``, and sign where a signature is due; the body that leaves."""
        transcript = self.by_peer.get(recipient)
        if transcript is not None and type(body) in _TRANSCRIBED:
            body = self._signed(transcript, body)
            self._keep(transcript, False, transcript.answers.count, body)
        return body

    def received(self, sender: str, body: Body) -> None:
        """Note ``body``; raises as `_verify` where its signature does not hold."""
        transcript = self.by_peer.get(sender)
        if transcript is not None and type(body) in _TRANSCRIBED:
            transcript.note(sender, self._hash(body))
            self._keep(transcript, True, transcript.questions.count, body)
            self._verify(transcript, sender, body)

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
                del self.by_peer[sender]
        elif isinstance(body, training.TreeSaved):
            statement = transcript.state(body.tree)
            if not transcript.signing.verifies(sender, statement.to_bytes(), body.signature):
                raise Inconsistent(
                    sender,
                    f"tree {body.tree}: it signs other messages than were sent",
                    {"tree": body.tree, "signature": body.signature.hex()},
                )
            self._emit(Save(SignedStatement(statement, body.signature)))
        elif isinstance(body, training.TreeStarted | training.SessionFinished):
            self._verify_countersignature(transcript, body.signature)

    def _verify_countersignature(self, transcript: Transcript, signature: bytes) -> None:
        if not transcript.is_countersigned(signature):
            raise ProtocolError("the messages of the tree before are not signed by their sender")

    def _keep(self, transcript: Transcript, incoming: bool, number: int, body: Body) -> None:
        if self._party == transcript.passive:
            self._emit(Save(TranscriptMessage(incoming, number, body)))

    def _hash(self, body: Body) -> bytes:
        """One message to several peers is hashed once: a broadcast is large."""
        if self._hashed[0] is not body:
            self._hashed = (body, message_hash(body))
        return self._hashed[1]
