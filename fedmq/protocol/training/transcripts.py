"""For what does a party answer in a training, and when does it sign?

A passive party commits to its table when it accepts: to the root of a hash tree (RFC 6962, section
2.1: leaves are hashed with the prefix 0, pairs with 1) over its secret, its settings, the cuts of
each column and all rows as bins. Each leaf begins with a salt of 16 bytes, so that its content
cannot be guessed without the secret. Then both parties keep a transcript (`Transcripts`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence

import msgpack
import numpy as np

from fedmq.boosting.binning import BinMatrix
from fedmq.computation import computation
from fedmq.errors import Inconsistent, ProtocolError
from fedmq.messages import training
from fedmq.messages.array import unpack_payload
from fedmq.messages.body import Body
from fedmq.privacy.engine import SIGNER, Engine
from fedmq.privacy.plan import Plan, single
from fedmq.protocol.events import Save
from fedmq.protocol.machine import Machine
from fedmq.protocol.session_records import (
    AnswerSettings,
    Commitment,
    SignedStatement,
    Signing,
    Transcript,
    TranscriptMessage,
    message_hash,
    signer_statement,
)
from fedmq.protocol.training.terms import PassiveTable

__all__ = [
    "Transcripts",
    "commit_table",
    "committed",
    "noise_secret",
    "salt_of_shares",
    "tree_hash",
]


_ROWS = 256  # of a leaf
_SALT_BYTES = 16
_SECRET_BYTES = 16


def noise_secret(secret: int) -> bytes:
    """The seed of the noise of all answers: 32 bytes."""
    return hmac.digest(_bytes(secret), b"fedmq noise", "sha256")


def committed(
    engine: Engine,
    table: PassiveTable,
    bins: BinMatrix,
    secret: int,
    smallest_node: int,
    smallest_cell: int,
) -> Plan[Commitment]:
    """Commit to ``table``, binned as ``bins``."""
    settings = AnswerSettings(
        engine=engine.name,
        options={name: getattr(engine, name) for name in engine.options()},
        smallest_node=smallest_node,
        smallest_cell=smallest_cell,
        signs={feature: 1 if sign > 0 else -1 for feature, sign in table.signs.items()},
        column_groups={name: list(columns) for name, columns in table.column_groups.items()},
        category_columns={
            name: list(features) for name, features in table.category_columns.items()
        },
        bins={
            name: list(given) if isinstance(given, tuple) else given
            for name, given in table.bins.items()
        },
    )
    root = yield from single(commit_table.bind(bins, table.features, secret, settings))
    return Commitment(
        table.values, table.features, table.alignment, table.digest, secret, settings, root
    )


@computation("CommitTable")
def commit_table(
    bins: BinMatrix, features: tuple[str, ...], secret: int, settings: AnswerSettings
) -> bytes:
    """The root over ``secret``, ``settings``, the columns ``features`` and their ``bins``."""
    drawn = _bytes(secret)
    key = hmac.digest(drawn, b"fedmq salts", "sha256")
    return tree_hash(
        [
            hmac.digest(key, number.to_bytes(8, "big"), "sha256")[:_SALT_BYTES] + content
            for number, content in enumerate(_contents(drawn, bins, features, settings))
        ]
    )


def _contents(
    secret: bytes, bins: BinMatrix, features: tuple[str, ...], settings: AnswerSettings
) -> Iterator[bytes]:
    yield secret
    yield settings.packed()
    cuts = bins.cuts
    for feature, thresholds, has_missing in zip(
        features, cuts.thresholds, cuts.has_missing.tolist(), strict=True
    ):
        yield msgpack.packb([feature, thresholds.astype("<f4").tobytes(), has_missing])
    for start in range(0, bins.n_rows, _ROWS):
        yield bins.codes[start : start + _ROWS].astype("<u2").tobytes()


def tree_hash(leaves: Sequence[bytes]) -> bytes:
    """The Merkle tree hash of RFC 6962 over ``leaves``: SHA-256, 32 bytes."""
    return _root([hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves])


def _root(hashes: Sequence[bytes]) -> bytes:
    if len(hashes) == 1:
        return hashes[0]
    if not hashes:
        return hashlib.sha256(b"").digest()
    # The largest power of two below the number of leaves.
    half = 1 << (len(hashes) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + _root(hashes[:half]) + _root(hashes[half:])).digest()


def _bytes(secret: int) -> bytes:
    return secret.to_bytes(_SECRET_BYTES, "big")


def salt_of_shares(secret: int, tree: int, node: int) -> bytes:
    """The salt of what this party hands on about ``node``: 16 bytes."""
    place = b"fedmq salt of shares %d %d" % (tree, node)
    return hmac.digest(_bytes(secret), place, "sha256")[:_SALT_BYTES]


_TRANSCRIBED = frozenset(training.BODIES) - {training.CircuitPiece, training.BestSoFar}
"""All messages between both parties but circuits, which versions before signed circuits left out.
"""


def _stated_signer(transcript: Transcript, body: training.EngineSetup) -> bytes:
    """What a passive party signs about the key in ``body``."""
    value = unpack_payload(body.payload)[SIGNER]
    key = value.tobytes() if isinstance(value, np.ndarray) else b""
    signing, parties = transcript.signing, (transcript.active, transcript.passive)
    return signer_statement(signing.session, signing.attempt, *parties, key)


class Transcripts:
    """The witness of ``machine``: it keeps a transcript of all messages with each peer.

    A passive party signs when it reports a saved tree, the ``active`` party when it continues. The
    passive party keeps exactly the hashed messages: an auditor hashes them again. Beside them it
    keeps what other passive parties hand on to it, whose hashes its `TreeSaved` names.
    """

    def __init__(
        self, machine: Machine, party: str, peers: Sequence[str], signing: Signing, *, active: str
    ) -> None:
        self._emit = machine._emit
        self._party = party
        self._with_circuits = False
        """Whether circuits are signed; the terms say so."""
        self.by_peer: dict[str, Transcript] = {}
        for peer in peers:
            passive = peer if party == active else party
            self.by_peer[peer] = Transcript(signing, active, passive)
        self._hashed: tuple[Body | None, bytes] = (None, b"")

    def sending(self, recipient: str, body: Body) -> Body:
        """Note ``body``, and sign it if a signature is due; returns the body to send."""
        transcript = self.by_peer.get(recipient)
        if transcript is not None and self._is_signed(body):
            body = self._signed(transcript, body)
            self._keep(transcript, False, transcript.answers.count, body)
        return body

    def received(self, sender: str, body: Body) -> None:
        """Note ``body``; raises like `_verify` if its signature does not hold."""
        transcript = self.by_peer.get(sender)
        if transcript is not None and self._is_signed(body):
            transcript.note(sender, self._hash(body))
            self._keep(transcript, True, transcript.questions.count, body)
            self._verify(transcript, sender, body)
        elif isinstance(body, training.BestSoFar) and self._with_circuits:
            # Of no number of its own: it stands behind the question that came last.
            for told in self.by_peer.values():
                self._keep(told, True, told.questions.count, body)

    def _is_signed(self, body: Body) -> bool:
        """Whether the hashes that both parties sign cover ``body``."""
        if isinstance(body, training.TrainingOpen):
            self._with_circuits = body.signed_circuits
        return type(body) in _TRANSCRIBED or (
            self._with_circuits and isinstance(body, training.CircuitPiece)
        )

    def _signed(self, transcript: Transcript, body: Body) -> Body:
        """Note ``body``, and sign it if a signature is due."""
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
        elif isinstance(body, training.EngineSetup) and SIGNER in body.payload:
            signature = transcript.signing.sign(_stated_signer(transcript, body))
            return body.model_copy(update={"signature": signature})
        return body

    def _verify(self, transcript: Transcript, sender: str, body: Body) -> None:
        """Take the commitment of ``sender``, or verify its signature.

        Raises:
            Inconsistent: it signs another conversation than this party had with it.
            ProtocolError: the active party does not sign the messages it has received.
        """
        if isinstance(body, training.SessionAccept):
            transcript.commitment = body.commitment
            if not body.commitment:  # it does not commit; its own policy decides that
                del self.by_peer[sender]
        elif isinstance(body, training.TreeSaved):
            statement = transcript.state(body.tree)
            if not transcript.signing.verifies(sender, statement.to_bytes(), body.signature):
                raise Inconsistent(
                    sender,
                    f"tree {body.tree}: it signs messages that were not sent",
                    {"tree": body.tree, "signature": body.signature.hex()},
                )
            self._emit(Save(SignedStatement(statement, body.signature)))
        elif isinstance(body, training.TreeStarted | training.SessionFinished):
            self._verify_countersignature(transcript, body.signature)
        elif isinstance(body, training.EngineSetup) and SIGNER in body.payload:
            signed = _stated_signer(transcript, body)
            if not transcript.signing.verifies(sender, signed, body.signature):
                raise Inconsistent(
                    sender,
                    "it does not sign the key by which it signs copies of circuits",
                    {"signature": body.signature.hex()},
                )

    def _verify_countersignature(self, transcript: Transcript, signature: bytes) -> None:
        if not transcript.is_countersigned(signature):
            raise ProtocolError("the sender has not signed the messages of the previous tree")

    def _keep(self, transcript: Transcript, incoming: bool, number: int, body: Body) -> None:
        if self._party == transcript.passive:
            self._emit(Save(TranscriptMessage(incoming, number, body, self._hash(body))))

    def _hash(self, body: Body) -> bytes:
        """The hash of ``body``, made once for several peers: a broadcast is large."""
        if self._hashed[0] is not body:
            self._hashed = (body, message_hash(body))
        return self._hashed[1]
