"""What a party keeps may be damaged: its export then says so in one line, and writes nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.accountability.transcript_file import export
from fedmq.errors import ConfigError, DataError
from fedmq.messages import training
from fedmq.messages.array import Bitmap
from fedmq.messages.codec import pack_body
from fedmq.party.store.transcripts import session_folder
from tests.accountability.test_damaged_transcripts import RECORDS
from tests.how_often import examples

OPENING = training.TrainingOpen(
    model="m",
    rows=4,
    alignment="",
    alignment_name="",
    evaluation=Bitmap.of(np.zeros(4, np.bool_)),
    engine="plain",
    public={},
    trees=1,
    active_only_trees=0,
    max_depth=2,
    max_bin=8,
    colsample_bytree=1.0,
    seed=0,
)
OPENED = ["message", 1, True, 1, OPENING.kind, pack_body(OPENING), b""]


def kept(state: Path, content: bytes, name: str = "1.opening") -> Path:
    folder = session_folder(state, "0123")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    return path


def exported(state: Path) -> int:
    """The bytes of an export, or nothing at all."""
    path = state / "out"
    try:
        return export(state, "telco", "0123", path)
    except (DataError, ConfigError) as error:
        assert "\n" not in str(error)
        assert not path.exists()
        assert not path.with_name("out.part").exists()
        raise


def test_a_folder_that_is_whole_is_exported(tmp_path: Path) -> None:
    kept(tmp_path, msgpack.packb(OPENED))
    kept(tmp_path, b"".join(map(msgpack.packb, RECORDS[1:])), "1-0-7.tree")
    assert exported(tmp_path) > 100


DAMAGED: dict[str, bytes] = {
    "no msgpack": b"\xc1\xc1",
    "a number": msgpack.packb(7),
    "an empty list": msgpack.packb([]),
    "a list of numbers": msgpack.packb([1, 2, 3, 4, 5, 6, 7]),
    "text that is none": b"\xa4\xff\xff\xff\xff",
    "a list without an end": b"\xdd\x7f\xff\xff\xff",
    "a map": msgpack.packb({"message": 1}),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("name", ["1.opening", "1-0-7.tree"])
def test_a_damaged_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    whole = msgpack.packb(OPENED)
    kept(tmp_path, whole)
    path = kept(tmp_path, whole + content, name)
    with pytest.raises(DataError) as raised:
        exported(tmp_path)
    assert str(raised.value).startswith(f"{path}: damaged: 1 records can be read")


def test_an_opening_that_is_none_is_named(tmp_path: Path) -> None:
    path = kept(
        tmp_path, msgpack.packb([*OPENED[:5], pack_body(training.TreeFinished(tree=0)), b""])
    )
    with pytest.raises(DataError, match="it does not say how the session began") as raised:
        exported(tmp_path)
    assert str(path) in str(raised.value)


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    kept(tmp_path, msgpack.packb(OPENED)).with_name("1-0-7.tree").mkdir()
    with pytest.raises(DataError, match=r"1-0-7\.tree: cannot be read: Is a directory"):
        exported(tmp_path)


@given(data=st.data())
@examples(200)
def test_any_byte_may_be_another(data: Any) -> None:
    content = bytearray(b"".join(map(msgpack.packb, (OPENED, *RECORDS))))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        kept(Path(folder), bytes(content))
        try:
            exported(Path(folder))
        except (DataError, ConfigError):
            return
