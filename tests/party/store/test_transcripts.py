"""What lies on disk of a transcript, while a training runs and after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgpack
import numpy as np
import pytest

from fedmq.accountability.transcript_file import TranscriptFile, export
from fedmq.errors import Refused
from fedmq.messages import training
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.body import Body
from fedmq.party.store import transcripts
from fedmq.party.store.transcripts import TranscriptWriter, forget_older, records_of
from fedmq.protocol.session_records import (
    AnswerSettings,
    Commitment,
    TranscriptMessage,
    message_hash,
)
from tests.full_disk import room_for

SESSION = "0123"


class Conversation:
    """What telco is asked, and writes down."""

    def __init__(self, state: Path, most_bytes: int, attempt: int = 1) -> None:
        self.writer = TranscriptWriter(state, SESSION, attempt, most_bytes)
        self.asked: list[Body] = []

    async def ask(self, *bodies: Body) -> None:
        for body in bodies:
            self.asked.append(body)
            self.writer.note(TranscriptMessage(True, len(self.asked), body))
        await self.writer.flush()

    async def grow(self, tree: int, lot: int, size: int = 1000) -> None:
        finished = training.TreeFinished(tree=tree, lot=lot)
        await self.ask(training.TreeStarted(tree=tree, pieces=1), gradients(tree, size), finished)

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.writer.folder.iterdir())

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.writer.folder.iterdir())


def gradients(tree: int, size: int, piece: int = 0) -> training.GradientBroadcast:
    payload = {"g": Array.of(np.zeros(size, np.uint8))}
    rows = Array.of(np.zeros(0, np.uint32))
    return training.GradientBroadcast(tree=tree, piece=piece, rows=rows, payload=payload)


def assignment(node: int, size: int) -> training.NodeAssignment:
    return training.NodeAssignment(tree=0, node=node, left=Bitmap.of(np.zeros(8 * size, np.bool_)))


async def test_a_tree_that_never_ends_stays_within_the_bytes_that_are_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = Conversation(tmp_path, 10_000)
    await conversation.ask(training.TreeStarted(tree=0, pieces=1))
    for node in range(1, 100):
        await conversation.ask(assignment(node, 1000))
        assert conversation.bytes <= 10_000
    assert conversation.bytes > 8_000
    assert "transcript_bytes are full" in caplog.text
    await conversation.writer.close()


def required_writer(folder: Path) -> tuple[TranscriptWriter, asyncio.Queue[str]]:
    """A writer that waits for room, and the troubles that it tells."""
    troubles: asyncio.Queue[str] = asyncio.Queue()
    writer = TranscriptWriter(
        folder, SESSION, 1, 10**9, required=True, on_trouble=troubles.put_nowait
    )
    return writer, troubles


async def test_a_required_transcript_waits_for_a_full_disk_and_loses_nothing(
    tmp_path: Path,
) -> None:
    writer, troubles = required_writer(tmp_path)
    conversation = Conversation(tmp_path, 10**9)
    conversation.writer = writer
    await conversation.grow(0, lot=5)
    with room_for(2500):
        asked = asyncio.create_task(conversation.grow(1, lot=4, size=4000))
        assert "the transcript cannot be written" in await troubles.get()
        assert not asked.done()
    await asked
    assert await troubles.get() == ""
    await writer.close()
    records = [record for name in conversation.names for record in whole(writer.folder / name)]
    assert sorted(record[3] for record in records) == [1, 2, 3, 4, 5, 6]
    assert conversation.names == ["1-0-5.tree", "1-1-4.tree"]


async def test_a_transcript_that_is_not_required_breaks_off_on_a_full_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = Conversation(tmp_path, 10**9)
    await conversation.grow(0, lot=5)
    with room_for(2500):
        await conversation.grow(1, lot=4, size=4000)
    assert "the transcript breaks off" in caplog.text
    await conversation.grow(2, lot=3)
    await conversation.writer.close()
    assert [len(whole(conversation.writer.folder / name)) for name in conversation.names] == [3, 1]


def whole(path: Path) -> list[list[object]]:
    """The records of a file, which ends with the last of them."""
    records = list(records_of(path))
    assert sum(len(msgpack.packb(record)) for record in records) == path.stat().st_size
    return records


def commitment(rows: int) -> Commitment:
    values = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    settings = AnswerSettings(
        engine="plain", options={}, smallest_node=1, smallest_cell=1, signs={}, column_groups={}
    )
    return Commitment(values, ("age", "income"), "", "d", 7, settings, b"root")


async def test_a_table_is_kept_as_it_is(tmp_path: Path) -> None:
    writer = TranscriptWriter(tmp_path, SESSION, 1, 10**9)
    for given in (commitment(300), commitment(0)):
        await writer.commit(given)
    await writer.close()
    kept, empty = (record[2] for record in records_of(writer.folder / "1.opening"))
    assert kept["values"] == commitment(300).values.tobytes()
    assert (kept["shape"], kept["features"]) == ([300, 2], ["age", "income"])
    assert empty["values"] == b""


async def test_a_table_that_fills_the_disk_is_written_whole_once_there_is_room(
    tmp_path: Path,
) -> None:
    writer, troubles = required_writer(tmp_path)
    with room_for(1000):
        writing = asyncio.create_task(writer.commit(commitment(300)))
        assert "the transcript cannot be written" in await troubles.get()
        assert (writer.folder / "1.opening").stat().st_size == 0
    await writing
    await writer.close()
    [record] = records_of(writer.folder / "1.opening")
    assert record[2]["values"] == commitment(300).values.tobytes()


@pytest.mark.parametrize("most_bytes", [1000, None])
async def test_a_table_that_a_required_transcript_cannot_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int | None
) -> None:
    monkeypatch.setattr(transcripts, "_LONGEST_RECORD", 2000)
    writer = TranscriptWriter(tmp_path, SESSION, 1, most_bytes, required=True)
    with pytest.raises(Refused, match=r"the table (alone has more|has 2,400 bytes, more) than"):
        await writer.commit(commitment(300))
    assert not writer.folder.exists()


async def test_a_required_transcript_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    writer = TranscriptWriter(tmp_path, SESSION, 1, 10_000, required=True)
    conversation = Conversation(tmp_path, 10_000)
    conversation.writer = writer
    with pytest.raises(Refused, match="transcript_bytes are full"):
        for node in range(1, 100):
            await conversation.ask(assignment(node, 1000))
    await writer.close()


async def test_gradients_of_a_tree_that_grows_are_left_out_where_they_do_not_fit(
    tmp_path: Path,
) -> None:
    conversation = Conversation(tmp_path, 10_000)
    await conversation.ask(training.TreeStarted(tree=0, pieces=20))
    for piece in range(20):
        await conversation.ask(gradients(0, 1000, piece))
        assert conversation.bytes <= 10_000
    await conversation.ask(assignment(1, 1000), training.TreeFinished(tree=0, lot=7))
    await conversation.writer.close()
    assert conversation.names == ["1-0-7.thin"]
    records = list(records_of(conversation.writer.folder / "1-0-7.thin"))
    assert [record[6] or None for record in records] == [
        message_hash(body) if isinstance(body, training.GradientBroadcast) else None
        for body in conversation.asked
    ]


async def test_a_tree_whose_lot_is_not_known_yet_gives_way_last(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path, 4_000)
    for tree, lot in enumerate((5, 9, 7)):
        await conversation.grow(tree, lot)
    await conversation.grow(3, 1)
    await conversation.writer.close()
    assert conversation.names == ["1-0-5.tree", "1-1-9.thin", "1-2-7.tree", "1-3-1.tree"]


async def test_a_tree_stays_out_where_one_with_a_lower_lot_made_room_for_it(
    tmp_path: Path,
) -> None:
    conversation = Conversation(tmp_path, 4_000)
    for tree, lot in enumerate((5, 9, 7)):
        await conversation.grow(tree, lot)
    await conversation.grow(3, 11)
    await conversation.writer.close()
    assert conversation.names == ["1-0-5.tree", "1-1-9.thin", "1-2-7.tree", "1-3-11.thin"]


async def test_a_tree_that_a_crash_left_whole_and_thin_is_exported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = Conversation(tmp_path, 4_000)

    def crash(_: Path, missing_ok: bool = False) -> None:
        raise OSError("the power fails")

    with monkeypatch.context() as crashing:
        crashing.setattr(Path, "unlink", crash)
        for tree, lot in enumerate((5, 9, 7, 1)):
            await conversation.grow(tree, lot)
    assert {"1-1-9.tree", "1-1-9.thin"} <= set(conversation.names)
    path = tmp_path / "telco.transcript"
    export(tmp_path, "telco", SESSION, path)
    numbers = [question.sequence for question in TranscriptFile.read(path).attempts[1].questions]
    assert numbers == sorted(set(numbers))
    later = Conversation(tmp_path, 4_000, attempt=2)
    await later.grow(3, 1)
    await later.writer.close()
    assert "1-1-9.tree" not in later.names


def _ended(state: Path, number: int) -> Path:
    folder = state / "transcripts" / f"s{number:02}"
    folder.mkdir(parents=True)
    os.utime(folder, (number, number))
    return folder


async def test_the_transcripts_of_sessions_that_run_are_not_removed(tmp_path: Path) -> None:
    folders = [_ended(tmp_path, number) for number in range(14)]
    await forget_older(tmp_path, {"s00", "s13"})
    left = [folder.name for folder in folders if folder.exists()]
    assert left == ["s00", *(f"s{number:02}" for number in range(3, 14))]


async def test_a_new_session_removes_no_transcript(tmp_path: Path) -> None:
    folders = [_ended(tmp_path, number) for number in range(14)]
    conversation = Conversation(tmp_path, 10_000)
    await conversation.grow(0, 1)
    assert all(folder.exists() for folder in folders)


async def test_a_transcript_that_vanishes_while_old_ones_are_removed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [_ended(tmp_path, number) for number in range(12)]
    stat: Callable[..., os.stat_result] = Path.stat

    def vanished(path: Path, **options: bool) -> os.stat_result:
        if path.name == "s05":
            raise FileNotFoundError
        return stat(path, **options)

    with monkeypatch.context() as other:
        other.setattr(Path, "stat", vanished)
        await forget_older(tmp_path, ())
    assert [folder.name for folder in folders if not folder.exists()] == ["s00"]
