"""Every message survives its way through bytes."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.messages.array import Array, Bitmap, pack_payload, unpack_payload
from fedmq.messages.body import Body
from fedmq.messages.codec import KINDS, Parts, decode, encode, frame, pack_body, packed_pieces
from fedmq.messages.training import HistogramReply, SplitDecision
from tests.how_often import examples
from tests.messages.bodies import DTYPES, STRATEGIES, arrays, bitmaps, envelopes
from tests.messages.envelopes import envelope

kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def test_a_strategy_exists_for_everything_that_can_be_said() -> None:
    assert STRATEGIES.keys() == set(KINDS.values())


def test_kinds_have_distinct_names() -> None:
    assert all(kind == model.kind for kind, model in KINDS.items())
    assert len(KINDS) == len(set(KINDS.values())) > 20


@kinds
@examples(40)
@given(data=st.data())
def test_every_body_comes_back_equal(kind: type[Body], data: st.DataObject) -> None:
    sent = data.draw(envelopes(STRATEGIES[kind]))
    received = decode(encode(sent))
    assert received == sent
    assert type(received.body) is kind
    assert encode(received) == encode(sent)


@kinds
@examples(10)
@given(data=st.data())
def test_a_body_is_packed_as_msgpack_packs_it(kind: type[Body], data: st.DataObject) -> None:
    body = data.draw(STRATEGIES[kind])
    assert pack_body(body) == msgpack.packb(body.model_dump(exclude_defaults=True))


@pytest.mark.parametrize("size", [2**12 - 1, 2**12, 2**16 - 1, 2**16, 10**6])
def test_long_bytes_are_packed_without_a_copy(size: int) -> None:
    values = np.arange(size, dtype=np.uint8)
    body = HistogramReply(
        tree=1,
        node=2,
        round=0,
        piece=0,
        pieces=1,
        payload=pack_payload({"a": values, "b": values[:9]}),
    )
    pieces = packed_pieces(body)
    assert b"".join(pieces) == msgpack.packb(body.model_dump(exclude_defaults=True))
    long = body.payload["a"]
    assert isinstance(long, Array)
    assert any(piece is long.data for piece in pieces) == (size >= 2**12)


@given(arrays())
def test_arrays_come_back_with_their_dtype_shape_and_bytes(array: Array) -> None:
    values = array.numpy()
    assert values.dtype.str == array.dtype
    assert values.shape == array.shape
    assert values.tobytes() == array.data
    assert Array.of(values) == array


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_the_other_byte_order_or_with_gaps_are_made_plain(dtype: str) -> None:
    values = np.arange(24).reshape(4, 6).astype(dtype)
    for array in (values[:, ::2], values.T, values.astype(values.dtype.newbyteorder(">"))):
        np.testing.assert_array_equal(Array.of(array).numpy(), array)
        assert Array.of(array).dtype == dtype


def test_floats_that_are_no_numbers_travel_bit_for_bit() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    assert Array.of(odd).numpy().tobytes() == odd.tobytes()


@given(bitmaps)
def test_bitmaps_come_back_bit_by_bit(bitmap: Bitmap) -> None:
    assert Bitmap.of(bitmap.numpy()) == bitmap
    assert len(bitmap.numpy()) == bitmap.count


def test_payloads_come_back_as_the_engine_gave_them() -> None:
    payload = {"vector": np.arange(3), "matrix": np.eye(2), "count": 3, "share": 0.5, "name": "x"}
    body = HistogramReply(tree=0, node=1, round=0, piece=0, pieces=1, payload=pack_payload(payload))
    received = decode(encode(envelope(body))).body
    assert isinstance(received, HistogramReply)
    values = unpack_payload(received.payload)
    assert values.keys() == payload.keys()
    for name, value in payload.items():
        np.testing.assert_array_equal(values[name], value)
        assert type(values[name]) is type(value)


def test_what_arrives_cannot_be_written_to() -> None:
    received = decode(encode(envelope(SplitDecision(tree=0, node=1, candidates=Array.of(
        np.arange(3, dtype=np.uint32))))))  # fmt: skip
    assert isinstance(received.body, SplitDecision)
    with pytest.raises(ValueError, match="read-only"):
        received.body.candidates.numpy()[0] = 1


@pytest.mark.parametrize("size", [0, 1, 2**8 - 1, 2**8, 2**16 - 1, 2**16, 2**20])
def test_a_message_is_what_msgpack_makes_of_its_parts(size: int) -> None:
    header, content, seal = b"header", bytes(size), b"seal"

    assert frame(Parts(header, content)) == msgpack.packb(["fedmq", header, content])
    assert frame(Parts(header, content, seal)) == msgpack.packb(["fedmq", header, content, seal])
