"""Transcripts as files: what a party hands to an auditor."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgpack
import numpy as np

from fedmq.errors import ConfigError, DataError, MessageError
from fedmq.messages import training
from fedmq.messages.body import Body
from fedmq.messages.codec import unpack_body
from fedmq.party.store.transcripts import (
    COMMITMENT,
    MESSAGE,
    STATEMENT,
    files_of,
    records_of,
    session_folder,
)
from fedmq.privacy.registry import ENGINES
from fedmq.protocol.transcript import Commitment, SignedStatement, Statement, message_hash

__all__ = ["AttemptTranscript", "KeptMessage", "TranscriptFile", "export"]

_MAGIC, _VERSION = "fedmq.transcript", 1
_SETTINGS = {
    "engine": str,
    "options": dict,
    "smallest_node": int,
    "smallest_cell": int,
    "signs": dict,
}


@dataclass(frozen=True)
class KeptMessage:
    """A message as it was kept; with ``digest``, the hash of all of it, its payload is left out."""

    sequence: int
    kind: str
    packed: bytes
    digest: bytes

    @cached_property
    def body(self) -> Body:
        """MessageError where it is none."""
        return unpack_body(self.kind, self.packed)

    @property
    def hash(self) -> bytes:
        """As `message_hash` gives it."""
        return self.digest or message_hash(self.body)

    @property
    def tree(self) -> int | None:
        """The tree it is about, if it is about one."""
        return getattr(self.body, "tree", None)


@dataclass
class AttemptTranscript:
    """What a party shows of one attempt: ``questions`` came in, ``answers`` left, in order."""

    number: int
    commitment: Commitment | None = None
    questions: list[KeptMessage] = field(default_factory=list)
    answers: list[KeptMessage] = field(default_factory=list)

    def lots(self) -> Mapping[int, int]:
        """The lots of the trees that were finished."""
        bodies = (question.body for question in self.questions if question.tree is not None)
        return {body.tree: body.lot for body in bodies if isinstance(body, training.TreeFinished)}

    def thin_trees(self) -> frozenset[int]:
        """The trees whose gradients are left out."""
        return frozenset(
            question.tree
            for question in self.questions
            if question.digest and question.tree is not None
        )


@dataclass
class TranscriptFile:
    """What ``party`` shows of ``session``: its own attempts, or what others have signed."""

    party: str
    session: str
    attempts: dict[int, AttemptTranscript]
    statements: list[SignedStatement]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises DataError where ``path`` is no transcript that `export` wrote."""
        try:
            records = records_of(path)
            head = next(records, None)
            if not isinstance(head, list) or len(head) != 4 or head[:2] != [_MAGIC, _VERSION]:
                raise DataError(f"{path}: not a transcript of this fedmq")
            transcript = cls(str(head[2]), str(head[3]), {}, [])
            for record in records:
                transcript._add(record)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, MessageError, msgpack.UnpackException):
            raise DataError(f"{path}: not a transcript of fedmq, or it is damaged") from None
        for attempt in transcript.attempts.values():
            for messages in (attempt.questions, attempt.answers):
                messages.sort(key=lambda message: message.sequence)
        return transcript

    def _add(self, record: Sequence[Any]) -> None:
        kind, number, *rest = record
        attempt = self.attempts.setdefault(number, AttemptTranscript(number))
        if kind == COMMITMENT:
            attempt.commitment = _commitment(rest[0])
        elif kind == STATEMENT:
            self.statements.append(SignedStatement(Statement.from_bytes(rest[0]), rest[1]))
        elif kind == MESSAGE:
            incoming, *fields = rest
            (attempt.questions if incoming else attempt.answers).append(KeptMessage(*fields))
        else:
            raise ValueError(kind)


def export(state: Path, party: str, session: str, path: Path) -> int:
    """Write what ``party`` keeps of ``session`` in its folder ``state`` to ``path``; its bytes.

    Raises:
        ConfigError: nothing is kept of it, or its engine cannot be replayed.
        DataError: what is kept is damaged.
    """
    folder = session_folder(state, session)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: nothing is kept of session {session!r}: transcript_bytes is 0, no tree was "
            "finished, or it was long ago"
        )
    files = files_of(folder)
    _check_engine(session, files)
    part = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(msgpack.packb([_MAGIC, _VERSION, party, session]))
            for file in files:
                for record in records_of(file):
                    out.write(msgpack.packb(record))
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return path.stat().st_size


def _check_engine(session: str, files: Sequence[Path]) -> None:
    for opening in _openings(files):
        engine = ENGINES.get(opening.engine)
        if engine is None or not engine.replays:
            replayed = ", ".join(name for name, known in ENGINES.items() if known.replays)
            raise ConfigError(
                f"session {session!r} trained with engine {opening.engine!r}, whose answers cannot "
                f"be replayed; those of {replayed} can"
            )


def _openings(files: Sequence[Path]) -> Iterator[training.TrainingOpen]:
    for file in files:
        if file.suffix == ".opening":
            for record in records_of(file):
                if record[0] == MESSAGE and record[4] == training.TrainingOpen.kind:
                    body = unpack_body(record[4], record[5])
                    assert isinstance(body, training.TrainingOpen)
                    yield body


def _commitment(fields: Mapping[str, Any]) -> Commitment:
    settings = fields["settings"]
    for name, kind in _SETTINGS.items():
        if not isinstance(settings[name], kind):
            raise TypeError(name)
    values = np.frombuffer(fields["values"], "<f4").reshape(fields["shape"]).astype(np.float32)
    return Commitment(
        values,
        tuple(fields["features"]),
        fields["alignment"],
        fields["digest"],
        int.from_bytes(fields["secret"], "big"),
        settings,
        fields["root"],
    )
