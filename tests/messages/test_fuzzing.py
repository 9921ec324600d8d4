"""Whatever bytes come in, a message comes out or a documented error; in bounded time and memory."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fedmq.errors import MessageError
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.codec import KINDS, Parts, decode, encode, frame, unframe
from fedmq.messages.envelope import Envelope
from fedmq.party.identity.sealer import Sealer
from tests.party.sealed_parties import connect, envelope, sealers

PARTIES = connect(sealers(["bank", "telco"]))

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)


def arrays_of(value: Any) -> list[Array | Bitmap]:
    if isinstance(value, Array | Bitmap):
        return [value]
    if isinstance(value, dict):
        return [array for item in value.values() for array in arrays_of(item)]
    return []


def taken(data: bytes) -> Envelope | None:
    """The message in ``data``, with all that it holds unpacked; None if it is refused."""
    try:
        message = decode(data)
    except MessageError as error:
        assert "\n" not in str(error)
        return None
    for _, value in message.body:
        for array in arrays_of(value):
            array.numpy()
    return message


def body(kind: str, fields: Any) -> bytes:
    header = envelope().header.model_copy(update={"kind": kind})
    return frame(Parts(msgpack.packb(header.model_dump()), msgpack.packb(fields)))


@given(st.binary(max_size=400))
@example(b"")
@example(msgpack.packb(["fedmq", b"", b""]))
@example(b"\x91" * 100_000)
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xdf\xff\xff\xff\xff\x00")
@example(b"\xc6\xff\xff\xff\xff")
@example(b"\xd6\xff\x00\x00\x00\x00")
def test_any_bytes(data: bytes) -> None:
    taken(data)


@given(values)
def test_any_value_where_a_message_should_be(value: Any) -> None:
    taken(msgpack.packb(value))


@given(values, values)
def test_any_header_and_body(header: Any, body: Any) -> None:
    taken(frame(Parts(msgpack.packb(header), msgpack.packb(body))))


@given(st.sampled_from(sorted(envelope().header.model_dump())), values)
def test_any_value_in_any_field_of_the_header(field: str, value: Any) -> None:
    header = envelope().header.model_dump() | {field: value}
    taken(frame(Parts(msgpack.packb(header), msgpack.packb({}))))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(sorted(KINDS)))
def test_any_values_in_any_fields_of_any_body(data: st.DataObject, kind: str) -> None:
    fields = {
        name: data.draw(
            values
            | st.just({"dtype": "<u4", "shape": [1], "data": b"1234"})
            | st.just({"count": 8, "data": b"1"})
            | st.integers(0, 9)
        )
        for name in KINDS[kind].model_fields
    }
    taken(body(kind, fields))


@given(
    st.sampled_from(["<u4", "<f4", "|u1", "<i8", "|O", "<U9", "garbage"]),
    st.lists(st.sampled_from([0, 1, 2, 2**20, 2**39, 2**40 - 1]), max_size=4),
    st.binary(max_size=16),
)
@example("<u4", [0, 2**39, 2**39], b"")
def test_any_shape_of_an_array(dtype: str, shape: list[int], data: bytes) -> None:
    array = {"dtype": dtype, "shape": shape, "data": data}
    taken(
        body("gradient broadcast", {"tree": 0, "piece": 0, "rows": array, "payload": {"a": array}})
    )


@given(st.data())
def test_any_bit_of_a_true_message(data: st.DataObject) -> None:
    message = body(
        "node assignment", {"tree": 1, "node": 2, "left": Bitmap.of(np.ones(9, bool)).model_dump()}
    )
    assert taken(message) is not None
    altered = bytearray(message)
    for at in data.draw(st.lists(st.integers(0, 8 * len(message) - 1), min_size=1, max_size=4)):
        altered[at // 8] ^= 1 << at % 8
    taken(bytes(altered))
    taken(message[: data.draw(st.integers(0, len(message) - 1))])


@pytest.mark.parametrize("opener", PARTIES.values(), ids=PARTIES)
@given(data=st.binary(max_size=300), seal=st.binary(max_size=140))
def test_any_bytes_where_a_sealed_message_should_be(
    opener: Sealer, data: bytes, seal: bytes
) -> None:
    true = unframe(PARTIES["bank"].seal(envelope()))
    for parts in (
        Parts(true.header, data, true.seal),
        Parts(data, true.body, true.seal),
        Parts(true.header, true.body, seal),
    ):
        with pytest.raises(MessageError):
            opener.open(frame(parts))
    with pytest.raises(MessageError):
        opener.open(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\x00\x0f\xff\xff" + b"\x90" * (1 << 20),
        b"\xdf\x00\x0f\xff\xff" + b"\xa0\xc0" * (1 << 19),
        msgpack.packb(["fedmq", b"\x91" * (1 << 20), b""]),
        body("sample ids", {"start": 0, "ids": ["x"] * (1 << 19)}),
        body("sample ids", {"start": 0, "ids": [None] * (1 << 20)}),
        body("histogram request", {"tree": 0, "round": 0, "nodes": [{}] * (1 << 20)}),
        body("engine setup", {"piece": 0, "payload": {str(key): None for key in range(150_000)}}),
        body("probe", {str(key): 0 for key in range(150_000)}),
    ],
    ids=["lists", "pairs", "depth", "ids", "no ids", "nodes", "payload", "fields"],
)
def test_a_mebibyte_of_malice_costs_little(data: bytes) -> None:
    begun = time.process_time()
    taken(data)
    assert time.process_time() - begun < 1
    tracemalloc.start()
    taken(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300e6


def test_the_fuzzer_knows_true_messages() -> None:
    """Or all the refusals above would prove nothing."""
    assert decode(encode(envelope())) == envelope()
