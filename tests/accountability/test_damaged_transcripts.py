"""Whatever file an auditor is given: it is read, or refused in one line."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.accountability.transcript_file import TranscriptFile
from fedmq.accountability.verification import _Verification
from fedmq.errors import DataError, Inconsistent
from fedmq.messages import training
from fedmq.messages.array import Array
from fedmq.messages.codec import pack_body
from fedmq.party.configuration.federation import Federation
from fedmq.protocol.session_records import RunningHash, Statement, message_hash
from tests.how_often import examples

HEAD = ["fedmq.transcript", 1, "telco", "0123"]
HASH = bytes(range(32))
STATEMENT = Statement("0123", 1, "bank", "telco", HASH, 0, RunningHash(1, HASH), RunningHash())
FINISHED = training.TreeFinished(tree=0, lot=3)
BROADCAST = training.GradientBroadcast(
    tree=0, piece=0, rows=Array.of(np.zeros(1, np.uint32)), payload={}
)
SETTINGS = {
    "engine": "plain",
    "options": {},
    "smallest_node": 1,
    "smallest_cell": 1,
    "signs": {"x0": 1},
    "column_groups": {"usage": ["x0", "x1"]},
}
COMMITMENT = {
    "values": np.arange(4, dtype="<f4").tobytes(),
    "shape": [2, 2],
    "features": ["x0", "x1"],
    "alignment": "",
    "digest": "",
    "secret": bytes(16),
    "settings": SETTINGS,
    "root": HASH,
}
RECORDS: list[list[Any]] = [
    ["commitment", 1, COMMITMENT],
    ["statement", 1, STATEMENT.to_bytes(), bytes(64)],
    ["message", 1, True, 2, FINISHED.kind, pack_body(FINISHED), b""],
    ["message", 1, True, 1, BROADCAST.kind, pack_body(BROADCAST), message_hash(BROADCAST)],
]


def read(content: bytes) -> TranscriptFile:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "telco.transcript"
        path.write_bytes(content)
        return TranscriptFile.read(path)


def packed(*records: object) -> bytes:
    return b"".join(map(msgpack.packb, (HEAD, *records)))


def refused(content: bytes) -> str:
    with pytest.raises(DataError) as refusal:
        read(content)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_transcript_is_read_in_the_order_of_its_messages() -> None:
    attempt = read(packed(*RECORDS)).attempts[1]
    assert [question.sequence for question in attempt.questions] == [1, 2]
    assert attempt.thin_trees() == {0}
    assert attempt.commitment is not None
    assert attempt.commitment.features == ("x0", "x1")


def _changed(record: list[Any], place: int, value: object) -> list[Any]:
    return [*record[:place], value, *record[place + 1 :]]


@pytest.mark.parametrize(
    "record",
    [
        ["statement", 1, 5, b""],
        ["statement", 1],
        ["statement", "one", STATEMENT.to_bytes(), b""],
        ["commitment", 1],
        ["unheard of", 1, b"", b""],
        [],
        7,
        {"statement": 1},
        ["message", 1, True],
        _changed(RECORDS[2], 3, "first"),
        _changed(RECORDS[2], 3, None),
        _changed(RECORDS[2], 4, "abort"),
        _changed(RECORDS[2], 5, b"\xc1"),
        *(
            ["commitment", 1, COMMITMENT | {name: value}]
            for name, value in {
                "secret": bytes(17),
                "shape": [2**63, 0],
                "features": ["x0"],
                "values": bytes(3),
                "settings": {},
                "root": "root",
            }.items()
        ),
        *(
            ["statement", 1, b"fedmq statement 1\n" + msgpack.packb(fields), b""]
            for fields in (
                ["0123", "1", "bank", "telco", HASH, 0, [1, HASH], [0, HASH]],
                ["0123", 1, "bank", "telco", HASH, [0], [1, HASH], [0, HASH]],
                ["0123", 1, "bank", "telco", HASH, 0, [[], HASH], [0, HASH]],
            )
        ),
    ],
)
def test_a_record_of_another_form_is_refused(record: object) -> None:
    assert "it is damaged: 1 records can be read" in refused(packed(RECORDS[2], record))


def test_the_hash_of_a_message_is_taken_on_trust_only_in_place_of_a_payload() -> None:
    refused(packed(_changed(RECORDS[2], 6, message_hash(FINISHED))))
    full = BROADCAST.model_copy(update={"payload": {"g": 1}})
    refused(packed(_changed(RECORDS[3], 5, pack_body(full))))


def test_a_tree_without_gradients_left_none_out_and_needs_no_lower_lot() -> None:
    empty = training.TreeFinished(tree=1, lot=9)
    records = [*RECORDS, ["message", 1, True, 3, empty.kind, pack_body(empty), b""]]
    attempt = read(packed(*records)).attempts[1]
    assert attempt.lots() == {0: 3, 1: 9}
    assert (attempt.thin_trees(), attempt.whole_trees()) == ({0}, frozenset())
    federation = Federation(name="demo", active="bank", passive=("telco",))
    _Verification(read(packed(*records)), federation, None)._check_lots()
    whole = BROADCAST.model_copy(update={"tree": 1})
    records.append(["message", 1, True, 4, whole.kind, pack_body(whole), b""])
    with pytest.raises(Inconsistent, match="it left out gradients of a tree with a lower lot"):
        _Verification(read(packed(*records)), federation, None)._check_lots()


def test_a_list_that_is_announced_and_not_there_takes_no_memory() -> None:
    refused(packed() + b"\xdd\x7f\xff\xff\xff")


def test_a_head_that_is_cut_within_its_version_is_damage() -> None:
    refused(packed()[:25] + b"\x00")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(record=st.sampled_from(RECORDS), data=st.data(), junk=JUNK)
@examples(300)
def test_a_record_with_anything_else_in_one_place_is_read_or_refused(
    record: list[Any], data: st.DataObject, junk: object
) -> None:
    place = data.draw(st.integers(0, len(record) - 1))
    changed = _changed(record, place, junk)
    if isinstance(record[2], dict) and place == 2:
        fields: dict[str, Any] = dict(COMMITMENT)
        name = data.draw(st.sampled_from(sorted(fields)))
        if name == "settings" and data.draw(st.booleans()):
            junk = SETTINGS | {data.draw(st.sampled_from(sorted(SETTINGS))): junk}
        changed[2] = fields | {name: junk}
    try:
        read(packed(*RECORDS, changed))
    except DataError as error:
        assert "it is damaged" in str(error)


@given(content=st.binary(max_size=200), cut=st.integers(0, 600))
@examples(300)
def test_any_bytes_are_read_or_refused(content: bytes, cut: int) -> None:
    for begun in (b"", packed(), packed(*RECORDS)[:cut]):
        try:
            read(begun + content)
        except DataError as error:
            assert "it is damaged" in str(error) or "use the fedmq that wrote" in str(error)
