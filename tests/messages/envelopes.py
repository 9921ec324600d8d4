"""Envelopes as they should be, and bytes that are none."""

from __future__ import annotations

from typing import Any

import msgpack

from fedmq.messages.body import Body
from fedmq.messages.codec import KINDS
from fedmq.messages.envelope import Envelope, Header


def envelope(body: Body) -> Envelope:
    header = Header(
        id="session/1/bank/telco/1",
        federation="demo",
        session="session",
        attempt=1,
        sender="bank",
        recipient="telco",
        sequence=1,
        acknowledged=0,
        kind=body.kind,
    )
    return Envelope(header, body)


def bytes_of(header: Any, body: Any, magic: Any = "fedmq") -> bytes:
    return bytes(msgpack.packb([magic, msgpack.packb(header), msgpack.packb(body)]))


def tampered(body: Body, **fields: Any) -> bytes:
    """The bytes of ``body`` with other or further fields in its body."""
    right = envelope(body)
    return bytes_of(right.header.model_dump(), {**body.model_dump(), **fields})


def headed(**fields: Any) -> bytes:
    """The bytes of a probe with other or further fields in its header."""
    right = envelope(KINDS["probe"]())
    return bytes_of({**right.header.model_dump(), **fields}, {})
