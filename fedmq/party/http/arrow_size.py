"""How long does an Arrow stream become when it is unpacked?

Each compressed buffer begins with its length when unpacked, and pyarrow allocates so much without
asking. It shows neither that length nor whether a batch is compressed, so the metadata of the
stream's messages (FlatBuffers, Arrow's Message.fbs) are read here.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["unpacked_bytes"]

_HEADER, _BUFFERS, _COMPRESSION, _DICTIONARY_DATA = 2, 2, 3, 1  # places of fields in their tables
_RECORD_BATCH = "record batch"
_DICTIONARY = "dictionary"


def unpacked_bytes(arrow: Any, body: bytes) -> int:
    """The bytes of all buffers of the stream ``body``; ``arrow`` is the module pyarrow.

    Nothing is unpacked. A length that is a lie makes pyarrow refuse the buffer.

    Raises:
        ValueError: no Arrow stream.
        pyarrow.ArrowException: the same.
    """
    size = 0
    reader = arrow.ipc.MessageReader.open_stream(body)
    try:
        while True:
            message = reader.read_next_message()
            if message.type in (_RECORD_BATCH, _DICTIONARY):
                size += _message_bytes(message)
    except StopIteration:
        return size
    except struct.error:
        raise ValueError("the metadata of a message end early") from None


def _message_bytes(message: Any) -> int:
    metadata, data = memoryview(message.metadata), memoryview(message.body)
    batch = _field(metadata, _uint(metadata, 0), _HEADER)
    if message.type == _DICTIONARY and batch is not None:
        batch = _field(metadata, _follow(metadata, batch), _DICTIONARY_DATA)
    if batch is None:
        raise ValueError("a message without a batch")
    table = _follow(metadata, batch)
    buffers = _field(metadata, table, _BUFFERS)
    if buffers is None:
        return 0
    vector = _follow(metadata, buffers)
    compressed = _field(metadata, table, _COMPRESSION) is not None
    size = 0
    for number in range(_uint(metadata, vector)):
        start, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * number)
        if compressed and length:
            # -1: this buffer was left as it was.
            (unpacked,) = struct.unpack_from("<q", data, start)
            length = length if unpacked == -1 else unpacked
        if length < 0:
            raise ValueError("a buffer of negative length")
        size += length
    return size


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """Where a field of the ``table`` stands; None if it is left out."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    size, entry = struct.unpack_from("<H", metadata, vtable)[0], 4 + 2 * number
    if entry >= size:
        return None
    (offset,) = struct.unpack_from("<H", metadata, vtable + entry)
    return table + offset if offset else None


def _follow(metadata: memoryview, at: int) -> int:
    return at + _uint(metadata, at)


def _uint(metadata: memoryview, at: int) -> int:
    number: int = struct.unpack_from("<I", metadata, at)[0]
    return number
