"""Envelopes as bytes: msgpack ``[magic, header, body]``, with header and body packed on their own.

So a body can be sealed with its header as associated data: a sealed message is ``[magic, header,
sealed body, seal]``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgpack
from pydantic import BaseModel, ValidationError

from fedmq.errors import MessageError, Unreadable
from fedmq.messages import (
    alignment,
    body,
    inference,
    model_request,
    online,
    overlap,
    screen,
    training,
)
from fedmq.messages.body import Body
from fedmq.messages.envelope import PROTOCOL_VERSION, Envelope, Header

__all__ = [
    "KINDS",
    "SEALED_VERSION",
    "Parts",
    "decode",
    "encode",
    "frame",
    "pack",
    "pack_body",
    "packed_pieces",
    "read_body",
    "read_header",
    "unframe",
    "unpack_body",
]

SEALED_VERSION = 3
"""What headers of handshakes say, so that parties that know none refuse them in a clear line."""

_MAGIC = "fedmq"
_LIST = 0x90  # and its length, up to 15: msgpack's first byte of a list
_LONG = 2**12  # bytes that are worth no copy
_LONGEST_LIST = 2**15  # as many as the deepest level has nodes
_LONGEST_NAME = 100  # how much of a message an error repeats
_MOST_KEYS = 256  # more than any model has; to refuse a million would take seconds
_Model = TypeVar("_Model", bound=BaseModel)

KINDS: dict[str, type[Body]] = {
    model.kind: model
    for model in (
        *body.BODIES,
        *alignment.BODIES,
        *overlap.BODIES,
        *screen.BODIES,
        *training.BODIES,
        *inference.BODIES,
        *online.BODIES,
        *model_request.BODIES,
    )
}
"""Every body by its kind: a discriminated union of all messages.

A worker reads bodies and imports no machine, so the list stands here, below the kinds of session; a
test compares it with theirs.
"""


class Parts(NamedTuple):
    """A message as it travels: packed header, packed body, and a seal if the body is sealed."""

    header: bytes
    body: bytes
    seal: bytes | None = None


def encode(envelope: Envelope) -> bytes:
    """The bytes of ``envelope``, in the clear."""
    header = msgpack.packb(envelope.header.model_dump())
    return _joined([header], packed_pieces(envelope.body))


def decode(data: bytes) -> Envelope:
    """The envelope in ``data``.

    Raises:
        MessageError: the bytes are cut short, foreign, sealed, of another protocol version, or
            hold an unknown kind or field.
    """
    parts = unframe(data)
    if parts.seal is not None:
        raise MessageError("a sealed message arrived, but this party has no keys to open it")
    header = read_header(parts.header)
    return Envelope(header, read_body(header, parts.body))


def pack(envelope: Envelope) -> Parts:
    """Header and body of ``envelope`` as bytes.

    A field that has its default stays out of a body, so that parties of the version before it
    understand whoever makes no use of it.
    """
    return Parts(msgpack.packb(envelope.header.model_dump()), pack_body(envelope.body))


def pack_body(body: Body) -> bytes:
    """``body`` as bytes, the same for all who have it."""
    return b"".join(packed_pieces(body))


def packed_pieces(body: Body) -> list[bytes]:
    """The bytes of `pack_body` in pieces: the long bytes of ``body`` are pieces, not copied."""
    packer = msgpack.Packer(autoreset=False)
    pieces: list[bytes] = []
    _pack_fields(body.model_dump(exclude_defaults=True), packer, pieces)
    pieces.append(packer.bytes())
    return pieces


def _pack_fields(fields: dict[str, Any], packer: msgpack.Packer, pieces: list[bytes]) -> None:
    packer.pack_map_header(len(fields))
    for key, value in fields.items():
        packer.pack(key)
        if isinstance(value, dict):
            _pack_fields(value, packer, pieces)
        elif isinstance(value, bytes) and len(value) >= _LONG:
            pieces += (packer.bytes(), _head_of_bytes(len(value)), value)
            packer.reset()
        else:
            packer.pack(value)


def _head_of_bytes(size: int) -> bytes:
    """What msgpack writes before so many bytes."""
    if size < 2**8:
        return struct.pack(">BB", 0xC4, size)
    if size < 2**16:
        return struct.pack(">BH", 0xC5, size)
    return struct.pack(">BI", 0xC6, size)


def frame(parts: Parts) -> bytes:
    """The parts as one message: what `msgpack.packb` makes of a list of them."""
    return _joined(*([part] for part in parts if part is not None))


def _joined(*parts: Sequence[bytes]) -> bytes:
    """The parts, each in pieces, as one message.

    They are joined here, for a packer holds a megabyte two more times while it grows.
    """
    pieces = [bytes([_LIST + len(parts) + 1]), msgpack.packb(_MAGIC)]
    for part in parts:
        pieces += (_head_of_bytes(sum(map(len, part))), *part)
    return b"".join(pieces)


def unframe(data: bytes) -> Parts:
    """The parts of a message; MessageError if ``data`` is no fedmq message."""
    parts = _unpack(data, "a fedmq message")
    if (
        not isinstance(parts, list)
        or len(parts) not in (3, 4)
        or parts[0] != _MAGIC
        or not all(isinstance(part, bytes) for part in parts[1:])
    ):
        raise MessageError(f"{len(data)} bytes are not a fedmq message")
    return Parts(*parts[1:])


def read_header(data: bytes, *, sealed: bool = False) -> Header:
    """A packed header; MessageError if it is none, or of another protocol version.

    With ``sealed`` it may also be the header of a handshake.
    """
    fields = _unpack(data, "a message header")
    # The version is checked first: a newer header may have other fields.
    version = fields.get("version") if isinstance(fields, dict) else None
    if version != PROTOCOL_VERSION and not (sealed and version == SEALED_VERSION):
        raise MessageError(
            f"a message of protocol version {_shown(version)} arrived, but this party speaks "
            f"{PROTOCOL_VERSION}: bring all parties to the same fedmq version"
        )
    return _validate(Header, fields)


def read_body(header: Header, data: bytes | memoryview) -> Body:
    """The body packed in ``data``; Unreadable if it is not of the kind that ``header`` names."""
    model = KINDS.get(header.kind)
    if model is None:
        raise Unreadable(header, f"message {header.id!r} is of unknown kind {header.kind!r}")
    try:
        return _validate(model, _unpack(data, f"a {header.kind} body"))
    except MessageError as error:
        raise Unreadable(header, str(error)) from None


def unpack_body(kind: str, data: bytes | memoryview) -> Body:
    """The body that `pack_body` packed; MessageError if it is not of ``kind``."""
    model = KINDS.get(kind)
    if model is None:
        raise MessageError(f"a body of unknown kind {kind!r}")
    return _validate(model, _unpack(data, f"a {kind} body"))


def _unpack(data: bytes | memoryview, what: str) -> Any:
    try:
        return msgpack.unpackb(
            data, strict_map_key=True, max_array_len=_LONGEST_LIST, max_map_len=_MOST_KEYS
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise MessageError(f"{len(data)} bytes are not {what}: {error or 'cut short'}") from None


def _validate(model: type[_Model], fields: Any) -> _Model:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        # The wrong value stays out of the text: it may be another party's data.
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "fields"
        raise MessageError(f"{model.__name__}: {_shown(where)}: {first['msg']}") from None


def _shown(value: Any) -> str:
    return repr(value)[:_LONGEST_NAME]
