"""What have two parties said to each other, so that neither can deny it?

Both hash the messages of an attempt, each direction by itself, in their order. Once a tree is
finished the passive party signs both hashes together with what it committed to, and the active
party signs the same: a :class:`Statement`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

import msgpack
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fedmq.errors import DataError
from fedmq.messages.body import Body
from fedmq.messages.codec import pack_body

__all__ = [
    "AnswerSettings",
    "Commitment",
    "RunningHash",
    "SignedStatement",
    "Signing",
    "Statement",
    "Transcript",
    "message_hash",
]

_STATEMENT = b"fedmq statement 1\n"
"""No other text that a party's key signs begins like this."""

_FIELDS = TypeAdapter(
    tuple[str, int, str, str, bytes, int, tuple[int, bytes], tuple[int, bytes]],
    config=ConfigDict(strict=True),
)


def message_hash(body: Body) -> bytes:
    """SHA-256 of kind and fields of ``body``, without its signature: what is signed later."""
    if getattr(body, "signature", b""):
        body = body.model_copy(update={"signature": b""})
    return hashlib.sha256(b"\0" + body.kind.encode() + b"\0" + pack_body(body)).digest()


@dataclass(frozen=True, slots=True)
class RunningHash:
    """Of the first ``count`` messages in one direction: h(n) = SHA-256(1, h(n - 1), message n)."""

    count: int = 0
    digest: bytes = bytes(32)

    def after(self, message: bytes) -> RunningHash:
        """The same with the message that has this hash."""
        digest = hashlib.sha256(b"\1" + self.digest + message).digest()
        return RunningHash(self.count + 1, digest)


@dataclass(frozen=True, slots=True)
class Statement:
    """What ``active`` and ``passive`` have said in an attempt, up to the end of tree ``tree``.

    ``commitment`` is what the passive party committed to when it accepted the session;
    ``questions`` went to it, ``answers`` came from it.
    """

    session: str
    attempt: int
    active: str
    passive: str
    commitment: bytes
    tree: int
    questions: RunningHash
    answers: RunningHash

    def to_bytes(self) -> bytes:
        """What is signed."""
        hashes = (self.questions, self.answers)
        return _STATEMENT + bytes(
            msgpack.packb(
                [
                    self.session,
                    self.attempt,
                    self.active,
                    self.passive,
                    self.commitment,
                    self.tree,
                    *([running.count, running.digest] for running in hashes),
                ]
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The statement of which ``data`` is the ``to_bytes``; DataError where there is none."""
        try:
            unpacked = msgpack.unpackb(data.removeprefix(_STATEMENT), use_list=False)
            fields = _FIELDS.validate_python(unpacked)
            statement = cls(*fields[:6], RunningHash(*fields[6]), RunningHash(*fields[7]))
        except (ValueError, TypeError, msgpack.exceptions.UnpackException):
            raise DataError("a statement that cannot be read") from None
        if statement.to_bytes() != data:
            raise DataError("a statement that cannot be read")
        return statement


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """``signature`` (Ed25519) is the passive party's; empty where parties have no keys."""

    statement: Statement
    signature: bytes


@dataclass(frozen=True, slots=True)
class Signing:
    """How a party signs in ``attempt`` at ``session``, and verifies what the others have signed.

    ``verifies(party, data, signature)`` says whether ``party`` has signed ``data``. The active
    party draws the lots of trees from ``seed``, which nobody else knows.
    """

    session: str
    attempt: int
    sign: Callable[[bytes], bytes]
    verifies: Callable[[str, bytes, bytes], bool]
    seed: bytes = field(default=b"", repr=False)

    def lot(self, tree: int) -> int:
        """The lot of ``tree``, 32 bits: trees with the lowest are kept where room is short."""
        digest = hmac.digest(self.seed, tree.to_bytes(8, "big"), "sha256")
        return int.from_bytes(digest[:4], "big")


class AnswerSettings(BaseModel):
    """What of a passive party's files decides its answers beside its table.

    Engine and options by name; ``signs`` by column, under monotone constraints; ``column_groups``:
    columns by the names of groups; ``category_columns``: the features of those
    that may be split by sets of categories.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    engine: str
    options: dict[str, Any]
    smallest_node: Annotated[int, Field(ge=0)]
    smallest_cell: Annotated[int, Field(ge=0)]
    signs: dict[str, Literal[-1, 1]]
    column_groups: dict[str, list[str]] = {}
    category_columns: dict[str, list[str]] = {}

    def packed(self) -> bytes:
        """As it is committed to; without groups as before there were any."""
        return bytes(msgpack.packb(self.model_dump(exclude_defaults=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Commitment:
    """What a passive party commits to: its table, and all that is random in what it answers.

    ``values`` float32 (rows, features) as in the party's table; ``secret`` (128 bits) makes the
    order of candidates, the noise and the salts of the ``root``.
    """

    values: NDArray[np.float32]
    features: tuple[str, ...]
    alignment: str
    digest: str
    secret: int
    settings: AnswerSettings
    root: bytes


@dataclass(slots=True)
class Transcript:
    """The hashes of one attempt, as either of its two parties keeps them."""

    signing: Signing
    active: str
    passive: str
    commitment: bytes = b""
    questions: RunningHash = field(default_factory=RunningHash)
    answers: RunningHash = field(default_factory=RunningHash)
    last: Statement | None = None
    """What was stated at the end of the last tree."""

    def note(self, sender: str, message: bytes) -> None:
        """The message with this hash was sent by ``sender``."""
        if sender == self.passive:
            self.answers = self.answers.after(message)
        else:
            self.questions = self.questions.after(message)

    def state(self, tree: int) -> Statement:
        """What both have said so far, at the end of ``tree``."""
        signing = self.signing
        self.last = Statement(
            signing.session,
            signing.attempt,
            self.active,
            self.passive,
            self.commitment,
            tree,
            self.questions,
            self.answers,
        )
        return self.last

    def countersignature(self) -> bytes:
        """This party's signature under what was stated last; empty where nothing was."""
        return b"" if self.last is None else self.signing.sign(self.last.to_bytes())

    def is_countersigned(self, signature: bytes) -> bool:
        """Whether the active party has signed what was stated last."""
        last = self.last
        return last is None or self.signing.verifies(self.active, last.to_bytes(), signature)
