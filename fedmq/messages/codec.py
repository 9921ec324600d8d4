"""Envelopes to bytes and back: msgpack ``[magic, header, body]``, header and body each packed.

Header and body are packed apart, so that a body can be sealed with its header as associated data.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgpack
from pydantic import BaseModel, ValidationError

from fedmq.errors import MessageError
from fedmq.messages import alignment, body, inference, online, training
from fedmq.messages.body import Body
from fedmq.messages.envelope import PROTOCOL_VERSION, Envelope, Header

__all__ = ["KINDS", "decode", "encode"]

_MAGIC = "fedmq"
_LONGEST_LIST = 2**15  # the nodes of the deepest wave
_LONGEST_NAME = 100  # of what an error repeats from a message
_Model = TypeVar("_Model", bound=BaseModel)

KINDS: dict[str, type[Body]] = {
    model.kind: model
    for model in (
        *body.BODIES,
        *alignment.BODIES,
        *training.BODIES,
        *inference.BODIES,
        *online.BODIES,
    )
}
"""Every body by its kind: the discriminated union of all that can be said."""


def encode(envelope: Envelope) -> bytes:
    """The bytes of ``envelope``."""
    header = msgpack.packb(envelope.header.model_dump())
    return bytes(msgpack.packb([_MAGIC, header, msgpack.packb(envelope.body.model_dump())]))


def decode(data: bytes) -> Envelope:
    """The envelope in ``data``.

    Raises:
        MessageError: the bytes are cut short, foreign, of another protocol version, or hold an
            unknown kind or field.
    """
    parts = _unpack(data, "a fedmq message")
    if not isinstance(parts, list) or len(parts) != 3 or parts[0] != _MAGIC:
        raise MessageError(f"{len(data)} bytes are not a fedmq message")
    if not isinstance(parts[1], bytes) or not isinstance(parts[2], bytes):
        raise MessageError(f"{len(data)} bytes are not a fedmq message")
    header = _header(_unpack(parts[1], "a message header"))
    model = KINDS.get(header.kind)
    if model is None:
        raise MessageError(f"message {header.id!r} is of unknown kind {header.kind!r}")
    return Envelope(header, _validate(model, _unpack(parts[2], f"a {header.kind} body")))


def _header(fields: Any) -> Header:
    # The version comes first: a newer header may well have fields that this one lacks.
    version = fields.get("version") if isinstance(fields, dict) else None
    if version != PROTOCOL_VERSION:
        raise MessageError(
            f"a message of protocol version {_shown(version)} arrived, this party speaks "
            f"{PROTOCOL_VERSION}: bring all parties to the same fedmq version"
        )
    return _validate(Header, fields)


def _unpack(data: bytes, what: str) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=True, max_array_len=_LONGEST_LIST)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise MessageError(f"{len(data)} bytes are not {what}: {error or 'cut short'}") from None


def _validate(model: type[_Model], fields: Any) -> _Model:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        # The offending value stays out of the text: it may be another party's data.
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "fields"
        raise MessageError(f"{model.__name__}: {_shown(where)}: {first['msg']}") from None


def _shown(value: Any) -> str:
    return repr(value)[:_LONGEST_NAME]
