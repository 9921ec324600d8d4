"""Bytes that are no message are refused, in one clear line that repeats nothing of a body."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.errors import MessageError
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.codec import KINDS, decode, encode
from fedmq.messages.envelope import PROTOCOL_VERSION, Envelope
from fedmq.messages.training import (
    GradientBroadcast,
    HistogramReply,
    HistogramRequest,
    NodeAssignment,
    SplitDecision,
)
from tests.how_often import examples
from tests.messages.bodies import bodies, envelopes, example
from tests.messages.envelopes import bytes_of, envelope, headed, tampered

kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@kinds
def test_bytes_cut_anywhere_are_refused(kind: type[Body]) -> None:
    data = encode(envelope(example(kind)))
    for length in range(len(data)):
        with pytest.raises(MessageError):
            decode(data[:length])
    with pytest.raises(MessageError):
        decode(data + b"\x00")


@examples(300)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode(data)


@examples(300)
@given(envelopes(bodies), st.data())
def test_flipped_bytes_are_refused_or_are_another_message(sent: Envelope, data: Any) -> None:
    changed = bytearray(encode(sent))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        received = decode(bytes(changed))
    except MessageError:
        return
    assert decode(encode(received)).header == received.header


objects = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=4))
    | st.builds(msgpack.Timestamp, st.integers(0, 2**32)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | inner.filter(
            lambda key: isinstance(key, int)), inner, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip


@examples(300)
@given(objects)
def test_foreign_msgpack_is_refused(foreign: Any) -> None:
    with pytest.raises(MessageError):
        decode(msgpack.packb(foreign))


@examples(300)
@given(objects, objects)
def test_foreign_headers_and_bodies_are_refused(header: Any, body: Any) -> None:
    with pytest.raises(MessageError):
        decode(bytes_of(header, body))
    with pytest.raises(MessageError):
        decode(bytes_of(envelope(example(NodeAssignment)).header.model_dump(), body))


@pytest.mark.parametrize("magic", ["fedmx", b"fedmq", 1, None])
def test_another_magic_word_is_refused(magic: Any) -> None:
    right = envelope(KINDS["probe"]())
    with pytest.raises(MessageError, match="not a fedmq message"):
        decode(bytes_of(right.header.model_dump(), {}, magic))


@pytest.mark.parametrize("version", [PROTOCOL_VERSION + 1, 0, None, "1", 2**40])
def test_another_version_is_told_before_anything_else(version: Any) -> None:
    data = headed(version=version, priority=7, kind="a kind of tomorrow")
    with pytest.raises(MessageError, match=r"protocol version .* same fedmq version"):
        decode(data)


@pytest.mark.parametrize("version", [True, 1.0])
def test_a_version_that_only_looks_right_is_refused(version: Any) -> None:
    with pytest.raises(MessageError, match="version"):
        decode(headed(version=version))


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(MessageError, match="unknown kind 'gossip'"):
        decode(headed(kind="gossip"))


@kinds
def test_an_unknown_field_is_named(kind: type[Body]) -> None:
    with pytest.raises(MessageError, match=f"{kind.__name__}: 'colour': "):
        decode(tampered(example(kind), colour=1))
    with pytest.raises(MessageError, match="Header: 'colour': "):
        decode(headed(colour=1))


@kinds
def test_a_missing_field_is_named(kind: type[Body]) -> None:
    body = example(kind)
    for name, field in kind.model_fields.items():
        fields = body.model_dump()
        del fields[name]
        data = bytes_of(envelope(body).header.model_dump(), fields)
        if field.is_required():
            with pytest.raises(MessageError, match=f"{kind.__name__}: '{name}"):
                decode(data)
        else:  # a field that recordings from before it lack
            default = field.get_default(call_default_factory=True)
            assert getattr(decode(data).body, name) == default


_LISTS = (
    "category_names",
    "codes_right",
    "described",
    "ids",
    "normalise",
    "known_to",
    "together",
    "constraints",
    "categories",
    "sets",
    "level",
    "chain",
    "told_columns",
    "told_changes",
    "fallbacks",
    "early",
    "given",
    "taken",
)
"""Fields that may be empty."""
_NONE = (
    "rising",
    "falling",
    "columns",
    "known_to",
    "keeps",
    "sealed",
    "fallback_of",
    "people",
    "selected",
    "offered",
)
"""Fields that may be left out."""
_FLAGS = (
    *("partial", "signed", "decoys", "explain", "by_sets", "drifts", "signed_circuits"),
    *("narrow", "in_sequence"),
    "exact",
    "reasons",
    "asks_changes",
    "only_asks",
    "label",
    "correlates",
    "among",
)
"""Fields that are true or false."""


@kinds
def test_fields_of_another_type_are_refused(kind: type[Body]) -> None:
    body = example(kind)
    for field in kind.model_fields:
        for wrong in (None, True, -1, [], [None], {"a": None}, b"\xff", 2**64 - 1, float("nan")):
            if field in _LISTS and wrong == []:
                continue
            if field in _FLAGS and wrong is True:
                continue
            if field == "sign" and wrong == -1:
                continue
            if field in _NONE and wrong is None:
                continue
            with pytest.raises(MessageError, match=field):
                decode(tampered(body, **{field: wrong}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sender": "Bank"},
        {"recipient": "telco/../bank"},
        {"recipient": "telco\n"},
        {"federation": ""},
        {"session": "s" * 65},
        {"session": "../../esc/evil"},
        {"session": "s1\n"},
        {"id": ""},
        {"id": "s1/1\x1b[2J"},
        {"kind": "probe\x1b[2J"},
        {"attempt": 0},
        {"sequence": -1},
        {"acknowledged": 2**62},
        {"kind": "k" * 65},
    ],
    ids=str,
)
def test_a_header_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match=f"Header: '{next(iter(wrong))}'"):
        decode(headed(**wrong))


VECTOR = {"dtype": "<u4", "shape": [2], "data": b"12345678"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "<i4"},
        {"dtype": "<f4"},
        {"dtype": ">u4"},
        {"dtype": "|O"},
        {"dtype": "<u4,<u4"},
        {"shape": [1, 2]},
        {"shape": [3]},
        {"shape": [2, 0]},
        {"shape": []},
        {"shape": [-2]},
        {"shape": [2.0]},
        {"shape": [1, 1, 1, 2]},
        {"shape": [2**39, 2**39, 2**39]},
        {"data": b"1234567"},
        {"data": "12345678"},
        {"data": [1, 2]},
        {"strides": [4]},
    ],
    ids=str,
)
def test_a_vector_of_another_dtype_shape_or_length_is_refused(wrong: dict[str, Any]) -> None:
    body = example(SplitDecision)
    assert decode(tampered(body, candidates=VECTOR))
    with pytest.raises(MessageError, match="SplitDecision: 'candidates"):
        decode(tampered(body, candidates={**VECTOR, **wrong}))


@pytest.mark.parametrize(("count", "size"), [(8, 0), (8, 2), (9, 1), (0, 1), (-1, 0), (2**39, 1)])
def test_a_bitmap_whose_count_does_not_fit_its_bytes_is_refused(count: int, size: int) -> None:
    bitmap = {"count": count, "data": b"\xff" * size}
    with pytest.raises(MessageError, match="NodeAssignment: 'left"):
        decode(tampered(example(NodeAssignment), left=bitmap))


@pytest.mark.parametrize(
    ("counts", "rows"), [([2], [1]), ([2**32 - 1, 1], []), ([], [1]), ([1, 1], [1])]
)
def test_a_hop_whose_counts_do_not_cover_its_rows_is_refused(
    counts: list[int], rows: list[int]
) -> None:
    numbers = {"counts": counts, "rows": rows}
    fields = {name: Array.of(np.array(values, np.uint32)).model_dump()
              for name, values in numbers.items()}  # fmt: skip
    with pytest.raises(MessageError, match=r"InferenceHop: 'fields': .*count"):
        decode(tampered(example(KINDS["inference hop"]), **fields))


@pytest.mark.parametrize("ends", [[], [3], [7, 3], [3, 4, 5]])
def test_a_sequence_of_rows_without_a_first_and_a_last_one_is_refused(ends: list[int]) -> None:
    rows = Array.of(np.array(ends, np.uint32))
    body = GradientBroadcast(tree=0, piece=0, rows=rows, payload={}, in_sequence=True)
    assert body.model_copy(update={"in_sequence": False}).numbers().tolist() == ends
    with pytest.raises(MessageError, match="a first one and a last one"):
        body.numbers()


# Sizes


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"\xdd\xff\xff\xff\xff", id="array of 4 G"),
        pytest.param(b"\xdd\x00\x10\x00\x00", id="array of 1 M"),
        pytest.param(b"\xdc\xff\xff", id="array of 64 K"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="map of 4 G"),
        pytest.param(b"\xdf\x00\x10\x00\x00\xa1a", id="map of 1 M"),
        pytest.param(b"\xc6\xff\xff\xff\xff", id="bytes of 4 G"),
        pytest.param(b"\xdb\xff\xff\xff\xff", id="text of 4 G"),
        pytest.param(b"\xc9\xff\xff\xff\xff\x01", id="extension of 4 G"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True], ids=["message", "body"])
def test_however_huge_the_declared_sizes_little_memory_is_taken(head: bytes, wrapped: bool) -> None:
    data = head * (200_000 // len(head))
    if wrapped:
        header = msgpack.packb(envelope(example(NodeAssignment)).header.model_dump())
        data = bytes(msgpack.packb(["fedmq", header, data]))
    tracemalloc.start()
    try:
        with pytest.raises(MessageError):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


# What an error says


SECRETS = ["4711815", "hunter2", "0.8675309"]


@pytest.mark.parametrize(
    "message",
    [
        tampered(example(HistogramReply), node=-4711815),
        tampered(example(HistogramReply), payload={"g": [4711815, "hunter2", 0.8675309]}),
        tampered(example(HistogramReply), payload="hunter2"),
        tampered(example(SplitDecision), candidates={**VECTOR, "dtype": "hunter2"}),
        tampered(example(SplitDecision), candidates={**VECTOR, "shape": ["hunter2"]}),
        tampered(example(SplitDecision), candidates={**VECTOR, "data": b"hunter2"}),
        tampered(example(KINDS["sample ids"]), ids=[4711815, 0.8675309]),
        tampered(example(KINDS["abort"]), reason=["hunter2"]),
        tampered(example(KINDS["training open"]), model="hunter2/" * 20),
        tampered(example(KINDS["training open"]), colsample_bytree="0.8675309"),
        bytes_of(envelope(example(SplitDecision)).header.model_dump(), "hunter2"),
        bytes_of(envelope(example(SplitDecision)).header.model_dump(), {1: "hunter2"}),
        encode(envelope(KINDS["abort"](reason="hunter2 4711815"))) + b"\x00",
        encode(envelope(KINDS["abort"](reason="hunter2 4711815")))[:-1],
    ],
)
def test_errors_never_repeat_what_a_body_holds(message: bytes) -> None:
    with pytest.raises(MessageError) as caught:
        decode(message)
    assert not any(secret in str(caught.value) for secret in SECRETS)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "message",
    [
        tampered(example(HistogramReply), **{"x" * 100_000: 1}),
        tampered(example(HistogramReply), payload={"x" * 100_000: None}),
        headed(version="x" * 100_000),
        headed(**{"x" * 100_000: 1}),
        headed(**{"two\nlines": 1}),
    ],
    ids=["field", "payload", "version", "header", "lines"],
)
def test_an_error_is_one_line_of_reasonable_length(message: bytes) -> None:
    with pytest.raises(MessageError) as caught:
        decode(message)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def test_no_list_is_longer_than_the_deepest_level_has_nodes() -> None:
    level = [{"node": node, "pieces": 0} for node in range(2**15, 2**16 + 1)]
    body = example(HistogramRequest)
    assert decode(tampered(body, nodes=level[:-1]))
    with pytest.raises(MessageError, match="32769"):
        decode(tampered(body, nodes=level))
