"""Transcripts as files, which a party hands to an auditor.

Each record comes from the party that it clears or convicts, so it is validated like a message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgpack
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fedmq.boosting.splits import CategorySet
from fedmq.errors import ConfigError, DataError, MessageError
from fedmq.messages import training
from fedmq.messages.body import Body
from fedmq.messages.codec import unpack_body
from fedmq.party.store.transcripts import (
    MESSAGE,
    files_of,
    records_of,
    replays,
    session_folder,
)
from fedmq.privacy.engine import Winner
from fedmq.privacy.registry import ENGINES
from fedmq.protocol.session_records import (
    AnswerSettings,
    Commitment,
    SignedStatement,
    Statement,
    message_hash,
)

__all__ = ["AttemptTranscript", "KeptMessage", "TranscriptFile", "export"]

_MAGIC, _VERSIONS = "fedmq.transcript", (1, 2)
"""Version 2 is of trainings with hidden sums; what shows sums is written as ever."""

_LEAN = (
    training.EngineSetup,
    training.HistogramReply,
    training.GradientBroadcast,
    training.QueryPiece,
    training.CircuitPiece,
)
"""Messages whose payload may be left out; the auditor hashes all others."""

_LIST = Field(strict=False)  # msgpack gives lists
_Number = Annotated[int, Field(ge=1, lt=2**62)]
_Count = Annotated[int, Field(ge=0, lt=2**40)]
_Hash = Annotated[bytes, Field(min_length=32, max_length=32)]
_NoHash = Annotated[bytes, Field(max_length=0)]


class _CommitmentFields(BaseModel):
    """A `Commitment` as plain data; the table's values as little-endian float32."""

    model_config = ConfigDict(frozen=True, strict=True)

    values: bytes
    shape: Annotated[tuple[_Count, _Count], _LIST]
    features: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    alignment: str
    digest: str
    secret: Annotated[bytes, Field(min_length=16, max_length=16)]
    settings: AnswerSettings
    root: _Hash


_CommitmentRecord = Annotated[tuple[Literal["commitment"], _Number, _CommitmentFields], _LIST]
_StatementRecord = Annotated[tuple[Literal["statement"], _Number, bytes, bytes], _LIST]
_MessageRecord = Annotated[
    tuple[Literal["message"], _Number, bool, _Number, str, bytes, _Hash | _NoHash], _LIST
]
_WonNode = Annotated[tuple[_Number, _Count], _LIST]
_Candidates = Annotated[tuple[Annotated[_Count, Field(lt=2**32)], ...], _LIST, Field(min_length=1)]
_WonBySet = Annotated[tuple[_Number, _Candidates, bool], _LIST]
_WonRecord = Annotated[
    tuple[Literal["won"], _Number, _Count, Annotated[tuple[_WonNode | _WonBySet, ...], _LIST]],
    _LIST,
]
_Record = _CommitmentRecord | _StatementRecord | _MessageRecord | _WonRecord

_RECORD: TypeAdapter[_Record] = TypeAdapter(_Record, config=ConfigDict(strict=True))


def _read_record(record: object) -> _Record:
    """Read an unpacked ``record``; ValueError if it is not a record."""
    return _RECORD.validate_python(record)


def _commitment_in(fields: _CommitmentFields) -> Commitment:
    """The commitment with these ``fields``; ValueError if they do not fit together."""
    values = np.frombuffer(fields.values, "<f4").reshape(fields.shape).astype(np.float32)
    if len(fields.features) != values.shape[1]:
        raise ValueError("another number of columns than of names")
    return Commitment(
        values,
        fields.features,
        fields.alignment,
        fields.digest,
        int.from_bytes(fields.secret, "big"),
        fields.settings,
        fields.root,
    )


@dataclass(frozen=True)
class KeptMessage:
    """A kept message; with ``digest``, the hash of the whole message, its payload is left out."""

    sequence: int
    kind: str
    packed: bytes
    digest: bytes

    @cached_property
    def body(self) -> Body:
        """The body; MessageError if the message has none."""
        return unpack_body(self.kind, self.packed)

    def check(self) -> None:
        """Raise MessageError if a training has no such message."""
        body = self.body
        if not isinstance(body, training.BODIES):
            raise MessageError("no message of a training")
        if self.digest and (not isinstance(body, _LEAN) or body.payload):
            raise MessageError("a hash is given only in place of a payload")

    @property
    def hash(self) -> bytes:
        """The `message_hash` of the body."""
        return self.digest or message_hash(self.body)

    @property
    def tree(self) -> int | None:
        """The number of the message's tree, if it has one."""
        return getattr(self.body, "tree", None)


@dataclass
class AttemptTranscript:
    """A party's transcript of one attempt: ``questions`` arrived, ``answers`` left, in order.

    What another passive party handed on stands among the questions, behind the one before it.
    """

    number: int
    commitment: Commitment | None = None
    questions: list[KeptMessage] = field(default_factory=list)
    answers: list[KeptMessage] = field(default_factory=list)
    won: dict[int, dict[int, Winner]] = field(default_factory=dict)
    """By tree and node the winners where sums are hidden, by the party's word."""

    @property
    def asked(self) -> list[KeptMessage]:
        """The questions of the active party: without what other passive parties handed on."""
        handed = training.BestSoFar.kind
        return [question for question in self.questions if question.kind != handed]

    def lots(self) -> Mapping[int, int]:
        """The lots of the finished trees."""
        bodies = (question.body for question in self.questions if question.tree is not None)
        return {body.tree: body.lot for body in bodies if isinstance(body, training.TreeFinished)}

    def thin_trees(self) -> frozenset[int]:
        """The trees whose gradients or queries are left out."""
        return frozenset(
            question.tree
            for question in self.questions
            if question.digest and question.tree is not None
        )

    def whole_trees(self) -> frozenset[int]:
        """The trees whose gradients or queries are shown."""
        asked = training.GradientBroadcast | training.QueryPiece
        bodies = (question.body for question in self.questions if not question.digest)
        return frozenset(body.tree for body in bodies if isinstance(body, asked))


@dataclass
class TranscriptFile:
    """The transcript of ``session`` from ``party``: its own attempts, or others' signatures."""

    party: str
    session: str
    attempts: dict[int, AttemptTranscript]
    statements: list[SignedStatement]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read ``path``; DataError if it is no transcript that `export` wrote."""
        count = 0
        try:
            records = records_of(path)
            party, session = _named(next(records, None))
            transcript = cls(party, session, {}, [])
            for record in records:
                transcript._add(_read_record(record))
                count += 1
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from None
        except _OtherVersion as error:
            raise DataError(f"{path}: {error}") from None
        except (ValueError, DataError, MessageError, MemoryError, msgpack.UnpackException):
            raise DataError(
                f"{path}: not a transcript of this fedmq, or it is damaged: "
                f"{count} records can be read; have it exported anew with: fedmq transcript export"
            ) from None
        for attempt in transcript.attempts.values():
            for messages in (attempt.questions, attempt.answers):
                messages.sort(key=lambda message: message.sequence)
        return transcript

    def _add(self, record: _Record) -> None:
        """Add ``record``; ValueError, MessageError or DataError if it is invalid."""
        attempt = self.attempts.setdefault(record[1], AttemptTranscript(record[1]))
        match record:
            case (_, _, fields):
                attempt.commitment = _commitment_in(fields)
            case ("won", _, tree, won):
                attempt.won.setdefault(tree, {}).update(map(_won_node, won))
            case (_, _, data, signature):
                self.statements.append(SignedStatement(Statement.from_bytes(data), signature))
            case (_, _, incoming, sequence, kind, packed, digest):
                message = KeptMessage(sequence, kind, packed, digest)
                message.check()
                (attempt.questions if incoming else attempt.answers).append(message)


def _won_node(won: tuple[int, int] | tuple[int, tuple[int, ...], bool]) -> tuple[int, Winner]:
    """A node, and who won it."""
    match won:
        case (node, int(candidate)):
            return node, candidate
        case (node, right, default_left):
            return node, CategorySet(np.array(right, np.uint32), default_left)


def _named(head: object) -> tuple[str, str]:
    """Party and session of a transcript that begins with ``head``."""
    match head:
        case [magic, version, str(party), str(session)] if magic == _MAGIC and version in _VERSIONS:
            return party, session
        case [magic, int(version), *_] if magic == _MAGIC and version not in _VERSIONS:
            raise _OtherVersion(
                f"version {version} is unknown; this fedmq reads versions "
                f"{' and '.join(map(str, _VERSIONS))}, so use the fedmq that wrote the file"
            )
    raise ValueError("no head of a transcript")


class _OtherVersion(Exception):
    """A transcript that another fedmq has written."""


def export(state: Path, party: str, session: str, path: Path) -> int:
    """Write the transcript of ``session`` from the folder ``state`` to ``path``; returns its bytes.

    Raises:
        ConfigError: ``party`` keeps nothing of it, or its engine cannot be replayed.
        DataError: the kept files are damaged.
    """
    folder = session_folder(state, session)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: nothing is kept of session {session!r}: transcript_bytes is 0, no tree was "
            "finished, or it was long ago"
        )
    files = files_of(folder)
    hides = _hides_sums(session, files)
    part = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(msgpack.packb([_MAGIC, _VERSIONS[hides], party, session]))
            for file in files:
                for record in _kept_in(file):
                    out.write(msgpack.packb(record))
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return path.stat().st_size


def _kept_in(file: Path) -> Iterator[list[Any]]:
    """The records in a party's own file; DataError if it is damaged."""
    count = 0
    try:
        for record in records_of(file):
            _read_record(record)
            yield record
            count += 1
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, MessageError, MemoryError, msgpack.UnpackException):
        raise DataError(
            f"{file}: damaged: {count} records can be read, and the rest of what was signed cannot "
            "be proved; restore it from a copy of the state folder"
        ) from None


def _hides_sums(session: str, files: Sequence[Path]) -> bool:
    """Whether the training hides sums; ConfigError if it cannot be replayed."""
    hides = False
    for opening in _openings(files):
        hides = hides or opening.sums == "hidden"
        if not replays(opening):
            engine = ENGINES.get(opening.engine)
            if engine is not None and engine.traits.replays:
                raise ConfigError(
                    f"session {session!r} trained with hidden sums, and a party's fedmq was of a "
                    "version that kept nothing of circuits: nothing of it can be replayed"
                )
            replayed = ", ".join(name for name, known in ENGINES.items() if known.traits.replays)
            raise ConfigError(
                f"session {session!r} trained with engine {opening.engine!r}, whose answers cannot "
                f"be replayed; those of {replayed} can"
            )
    return hides


def _openings(files: Sequence[Path]) -> Iterator[training.TrainingOpen]:
    for file in files:
        if file.suffix == ".opening":
            for record in _kept_in(file):
                if record[0] == MESSAGE and record[4] == training.TrainingOpen.kind:
                    yield _opening_in(file, record)


def _opening_in(file: Path, record: list[Any]) -> training.TrainingOpen:
    try:
        body = unpack_body(record[4], record[5])
    except MessageError:
        raise DataError(f"{file}: damaged: it does not say how the session began") from None
    assert isinstance(body, training.TrainingOpen)
    return body
