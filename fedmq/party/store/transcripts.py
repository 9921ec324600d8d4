"""The transcripts of a party's trainings, from which an auditor can replay its answers.

Each session has a folder: a file for each attempt's beginning and end, and one for each tree, as
consecutive msgpack records. Answers are kept as hashes, because a replay makes them again; answers
that another machine may round otherwise are kept whole. When room is short, broadcasts, queries and
circuits of the trees with the highest lots become hashes, too. A transcript holds what the party's
machine hashed, message by message, and what another passive party handed on to it: no message that
only arrived.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import msgpack
import numpy as np

from fedmq.boosting.splits import CategorySet
from fedmq.errors import Refused
from fedmq.messages import training
from fedmq.messages.body import Body
from fedmq.messages.codec import pack_body
from fedmq.party.atomic_file import write_atomically
from fedmq.party.store.database import until_taken
from fedmq.privacy.engine import Winner
from fedmq.privacy.registry import ENGINES
from fedmq.protocol.session_records import (
    Commitment,
    NodesWon,
    SignedStatement,
    TranscriptMessage,
    message_hash,
)

__all__ = [
    "COMMITMENT",
    "MESSAGE",
    "STATEMENT",
    "WON",
    "TranscriptWriter",
    "files_of",
    "forget_older",
    "records_of",
    "replays",
    "session_folder",
]

log = logging.getLogger(__name__)

MESSAGE, COMMITMENT, STATEMENT, WON = "message", "commitment", "statement", "won"
"""Kinds of records; the attempt follows the kind.

A message: whether it came in, its number in that direction, its kind, its body, and its hash if
the payload is left out. Nodes won: the tree, and pairs of a node and a candidate.
"""

_KEPT_SESSIONS = 10
_THIN = (
    training.HistogramReply
    | training.GradientBroadcast
    | training.QueryPiece
    | training.CircuitPiece
)
"""Messages of a thin tree that are kept as hashes, but for pieces that open circuits."""
_LEAN_KINDS = {lean.kind: lean for lean in get_args(_THIN)}
_NO_LOT = 2**32  # of an unfinished tree: it gives way before all others
_LONGEST_RECORD = 2**31 - 1
_NO_BYTES, _BYTES_FOLLOW = b"\xc4\x00", b"\xc6"
"""In msgpack: no bytes, and bytes whose number follows in four."""

_Part = bytes | memoryview


def session_folder(state: Path, session: str) -> Path:
    """The folder of the transcript of ``session`` in a state folder."""
    return state / "transcripts" / session


def replays(opening: training.TrainingOpen) -> bool:
    """Whether an auditor can replay a training of these terms."""
    engine = ENGINES.get(opening.engine)
    signed = opening.sums == "shown" or opening.signed_circuits
    return signed and engine is not None and engine.traits.replays


def files_of(folder: Path) -> list[Path]:
    """The files of a transcript, by name; a tree whose thin file exists is left out."""
    files = {path for path in folder.iterdir() if not path.name.startswith(".")}
    return sorted(file for file in files if not _is_thinned(file, files))


def _is_thinned(path: Path, files: Collection[Path]) -> bool:
    """Whether the tree has a thin file: a crash came before the whole file was removed."""
    return path.suffix == ".tree" and path.with_suffix(".thin") in files


def records_of(path: Path) -> Iterator[list[Any]]:
    """Read the records in a file; a broken end, as after a crash, is left out."""
    with path.open("rb") as file:
        most = os.fstat(file.fileno()).st_size  # a list that announces more members is false
        yield from msgpack.Unpacker(
            file, max_buffer_size=_LONGEST_RECORD, max_array_len=most, max_map_len=most
        )


@dataclass(frozen=True, slots=True, order=True)
class _TreeFile:
    """One tree of an attempt, by its lot; ``thin`` if its broadcast is left out."""

    lot: int
    tree: int
    attempt: int
    thin: bool

    @classmethod
    def of(cls, path: Path) -> _TreeFile | None:
        """Parse the name of a file; None for a file of another kind."""
        if path.suffix not in (".tree", ".thin"):
            return None
        attempt, tree, *lot = map(int, path.stem.split("-"))
        return cls(lot[0] if lot else _NO_LOT, tree, attempt, path.suffix == ".thin")

    @property
    def name(self) -> str:
        """``ATTEMPT-TREE-LOT.tree``; without a lot while the tree grows."""
        lot = "" if self.lot == _NO_LOT else f"-{self.lot}"
        return f"{self.attempt}-{self.tree}{lot}.{'thin' if self.thin else 'tree'}"


async def forget_older(state: Path, running: Collection[str]) -> None:
    """Remove all transcripts except those of ``running`` sessions and the ten last others."""
    await asyncio.to_thread(_forget_older, state / "transcripts", running)


class TranscriptWriter:
    """Keeps one attempt at ``session`` below the folder ``state``; one thread does all writing.

    ``most_bytes`` limits all attempts of the session together; None for the active party, which
    keeps only what others have signed. A full or failing disk ends the transcript, not the
    session: the party can then not prove its answers. If the transcript is ``required``, the
    session waits for the disk instead, as for its store; ``on_trouble`` as in `until_taken`.
    """

    def __init__(
        self,
        state: Path,
        session: str,
        attempt: int,
        most_bytes: int | None = None,
        *,
        required: bool = False,
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.state = state
        self.folder = session_folder(state, session)
        self._attempt = attempt
        self._most_bytes = most_bytes
        self._required = required
        self._on_trouble = on_trouble
        self._noted: deque[TranscriptMessage | NodesWon] = deque()
        """Not written yet."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fedmq-transcript")
        self._unsynced: set[Path] = set()
        self._bytes: int | None = None
        """Bytes in the folder; None until counted."""
        self._replays = True
        self._rounded: Set[str] = frozenset()
        """Messages that the session's engine may round otherwise on another machine."""
        self._held: list[tuple[_Part, ...]] = []
        self._growing: dict[int, _TreeFile] = {}
        self._lots: dict[int, int] = {}
        self._ended = False
        self._broken = ""
        """Why it breaks off."""

    def note(self, noted: TranscriptMessage | NodesWon) -> None:
        """Note a message that was taken, or is sent, or the nodes that this party has won."""
        if not self._ended:
            self._thread.submit(self._take, noted)

    async def commit(self, commitment: Commitment) -> None:
        """Keep a commitment of this party; it is on disk when this returns.

        Raises:
            Refused: a required transcript breaks off, because its bytes are full.
        """
        # A table may be most of the memory: it is written as it lies there, without a copy.
        values = np.ascontiguousarray(commitment.values, "<f4").reshape(-1).view(np.uint8).data
        fields = {
            "shape": list(commitment.values.shape),
            "features": list(commitment.features),
            "alignment": commitment.alignment,
            "digest": commitment.digest,
            "secret": commitment.secret.to_bytes(16, "big"),
            "settings": commitment.settings.model_dump(),
            "root": commitment.root,
            "values": b"",
        }
        if self._most_bytes is not None and len(values) > self._most_bytes:
            self._break_off("the table alone has more than transcript_bytes")
        elif len(values) >= _LONGEST_RECORD:
            self._break_off(f"the table has {len(values):,} bytes, more than a transcript keeps")
        if self._ended:
            self._check_kept()
            return
        packed = bytes(msgpack.packb([COMMITMENT, self._attempt, fields]))
        head = packed.removesuffix(_NO_BYTES) + _BYTES_FOLLOW + len(values).to_bytes(4, "big")
        await self._append_synced(head, values)

    async def attest(self, signed: SignedStatement) -> None:
        """Keep a statement that a peer has signed; it is on disk when this returns.

        Raises:
            Refused: a required transcript breaks off, because its bytes are full.
        """
        statement = signed.statement.to_bytes()
        record = [STATEMENT, self._attempt, statement, signed.signature]
        await self._append_synced(bytes(msgpack.packb(record)))

    async def flush(self) -> None:
        """Put all noted messages on disk.

        Raises:
            Refused: a required transcript breaks off, because its bytes are full.
        """
        await self._in_thread(self._sync)
        self._check_kept()

    async def close(self) -> None:
        """End the attempt: put all on disk, and note nothing more."""
        await self._in_thread(self._close)
        self._ended = True
        self._thread.shutdown(wait=False)

    async def _append_synced(self, *record: _Part) -> None:
        """Append a record, given in parts, and all that is held before it."""
        own: list[tuple[_Part, ...]] = [record]

        def write() -> None:
            for waiting in (self._held, own):
                while waiting:  # after a refusal of the disk it goes on with the first
                    self._append(self._opening, *waiting[0])
                    del waiting[0]
            self._sync()

        await self._in_thread(write)
        self._check_kept()

    def _check_kept(self) -> None:
        if self._required and self._broken:
            raise Refused(
                f"{self._broken}, and the policy requires a transcript (transcripts, "
                "transcript_bytes)"
            )

    async def _in_thread(self, work: Callable[[], None]) -> None:
        if self._ended:
            return
        loop = asyncio.get_running_loop()
        await until_taken(
            lambda: loop.run_in_executor(self._thread, self._guarded, work),
            OSError,
            named="the transcript cannot be written: ",
            on_trouble=self._on_trouble,
        )

    # In the thread

    def _take(self, noted: TranscriptMessage | NodesWon) -> None:
        self._noted.append(noted)
        with suppress(OSError):  # the next write that somebody awaits tries again
            self._guarded(lambda: None)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Write what was noted, and do ``work``; OSError from the disk if it is required."""
        try:
            while self._noted and not self._ended:
                self._write(self._noted[0])
                self._noted.popleft()
            if not self._ended:
                work()
        except OSError as error:
            if self._required:
                raise
            self._break_off(error.strerror or "the disk refuses")

    def _break_off(self, why: str) -> None:
        self._ended, self._broken = True, why
        self._noted.clear()
        log.error("%s: the transcript breaks off: %s", self.folder, why)

    @property
    def _opening(self) -> Path:
        return self.folder / f"{self._attempt}.opening"

    def _write(self, noted: TranscriptMessage | NodesWon) -> None:
        if isinstance(noted, TranscriptMessage) and isinstance(noted.body, training.TrainingOpen):
            self._replays = replays(noted.body)
            engine = ENGINES.get(noted.body.engine)
            self._rounded = frozenset() if engine is None else engine.traits.rounded
            # A refused opening leaves nothing behind: no file is made before a promise.
            self._held = [(self._record(noted),)]
            return
        if not self._replays:
            return  # no auditor can replay it, and the active party holds the signed statements
        tree = noted.tree
        if tree is None:
            self._append(self._opening, self._record(noted))
            return
        for older in [number for number in self._growing if number < tree]:
            self._finish_tree(older)
        growing = self._growing.setdefault(tree, _TreeFile(_NO_LOT, tree, self._attempt, False))
        record = self._record(noted, growing.thin)
        self._fits(len(record))
        if self._growing[tree] != growing:  # the tree has given way
            growing = self._growing[tree]
            record = self._record(noted, growing.thin)
        self._append(self.folder / growing.name, record)
        if isinstance(noted, TranscriptMessage) and isinstance(noted.body, training.TreeFinished):
            self._lots[tree] = noted.body.lot

    def _record(self, noted: TranscriptMessage | NodesWon, thin: bool = False) -> bytes:
        if isinstance(noted, NodesWon):
            won = [[node, *_winner_as_data(winner)] for node, winner in noted.won.items()]
            return bytes(msgpack.packb([WON, self._attempt, noted.tree, won]))
        incoming, number, body = noted.incoming, noted.number, noted.body
        if self._is_lean(noted, thin=thin):
            return bytes(msgpack.packb(_lean(self._attempt, incoming, number, body, noted.digest)))
        packed = pack_body(body)
        record = [MESSAGE, self._attempt, incoming, number, body.kind, packed, b""]
        return bytes(msgpack.packb(record))

    def _is_lean(self, message: TranscriptMessage, *, thin: bool) -> bool:
        """Whether the hash of a message is kept in place of its payload."""
        body = message.body
        if isinstance(body, training.CircuitPiece):
            return not message.incoming or (thin and not body.level)
        lean = _THIN if thin else training.HistogramReply | training.EngineSetup
        return isinstance(body, lean) and (thin or self._rounded.isdisjoint(body.payload))

    def _append(self, path: Path, *record: _Part) -> None:
        if self._ended:
            return
        size = sum(map(len, record))
        if not self._fits(size):
            self._break_off("transcript_bytes are full")
            return
        if path not in self._unsynced and not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
        self._unsynced.add(path)
        with path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                for part in record:
                    if file.write(part) != len(part):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            except OSError:
                file.truncate(before)
                raise
        if self._bytes is not None:
            self._bytes += size

    def _sync(self) -> None:
        for path in list(self._unsynced):
            with path.open("ab") as file:
                os.fsync(file.fileno())
            self._unsynced.discard(path)

    def _close(self) -> None:
        self._sync()
        for tree in list(self._growing):
            self._finish_tree(tree)

    def _finish_tree(self, tree: int) -> None:
        """Name a tree by its lot, and stay within the bytes that the policy allows."""
        self._sync()
        growing = self._growing[tree]
        if tree in self._lots:
            path = self.folder / growing.name
            path.rename(self.folder / replace(growing, lot=self._lots[tree]).name)
        del self._growing[tree]
        self._lots.pop(tree, None)
        self._make_room()

    def _fits(self, size: int) -> bool:
        """Whether there is room for ``size`` bytes more, after trees have given way if need be."""
        if self._most_bytes is None:
            return True
        if self._bytes is None or self._bytes + size > self._most_bytes:
            self._make_room(size)
        return self._bytes is not None and self._bytes + size <= self._most_bytes

    def _make_room(self, size: int = 0) -> None:
        """Thin the trees with the highest lots, until ``size`` more bytes fit.

        A tree does not stay whole if one with a lower lot did not: the lots alone decide which
        trees are kept. A growing tree gives way last, because its lot may be the lowest.
        """
        assert self._most_bytes is not None
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        sizes = {path: path.stat().st_size for path in self.folder.iterdir()}
        for path in [path for path in sizes if _is_thinned(path, sizes)]:
            path.unlink()
            del sizes[path]
        trees = {path: file for path in sizes if (file := _TreeFile.of(path)) is not None}
        growing = set(self._growing.values())
        thinned = min((file.lot for file in trees.values() if file.thin), default=_NO_LOT)
        whole = [(file not in growing, file, path) for path, file in trees.items() if not file.thin]
        for finished, file, path in sorted(whole, reverse=True):
            full = sum(sizes.values()) + size > self._most_bytes
            if full or (finished and file.lot > thinned):
                sizes[path] = self._give_way(file, path)
        self._bytes = sum(sizes.values())

    def _give_way(self, file: _TreeFile, path: Path) -> int:
        """Leave out broadcasts and queries of a tree; returns its remaining bytes."""
        thin = replace(file, thin=True)
        size = _thin(path, self.folder / thin.name)
        self._unsynced.discard(path)
        if file in self._growing.values():
            self._growing[file.tree] = thin
        return size


def _forget_older(folder: Path, running: Collection[str]) -> None:
    ended: list[tuple[float, Path]] = []
    try:
        for session in folder.iterdir():
            # Another session that ends may remove the same folder.
            with suppress(FileNotFoundError):
                if session.name not in running:
                    ended.append((session.stat().st_mtime, session))
    except FileNotFoundError:
        return  # no transcript was ever kept
    except OSError as error:
        log.warning("%s: no transcript is removed: %s", folder, error.strerror)
        return
    for _, session in sorted(ended)[:-_KEPT_SESSIONS]:
        shutil.rmtree(session, ignore_errors=True)


def _thin(path: Path, thin: Path) -> int:
    """Leave gradients, queries and circuits out of a tree's file; returns its remaining bytes."""
    kept = []
    for record in records_of(path):
        if record[0] != MESSAGE:
            kept.append(msgpack.packb(record))
            continue
        _, attempt, incoming, sequence, kind, packed, digest = record
        if kind in _LEAN_KINDS and not digest:
            body = _LEAN_KINDS[kind].model_validate(msgpack.unpackb(packed))
            if isinstance(body, training.CircuitPiece) and body.level:
                kept.append(msgpack.packb(record))
                continue
            kept.append(msgpack.packb(_lean(attempt, incoming, sequence, body)))
        else:
            kept.append(msgpack.packb(record))
    content = b"".join(kept)
    write_atomically(thin, content, mode=0o600)
    path.unlink()
    return len(content)


def _lean(
    attempt: int,
    incoming: bool,
    sequence: int,
    body: Body,
    digest: bytes = b"",
) -> list[Any]:
    """A record of ``body`` without its payload, but with the hash of the whole body.

    ``digest``: that hash, if it is known.
    """
    lean = pack_body(body.model_copy(update={"payload": {}}))
    return [MESSAGE, attempt, incoming, sequence, body.kind, lean, digest or message_hash(body)]


def _winner_as_data(winner: Winner) -> list[Any]:
    """A candidate; of a set those that go right, and whether missing values go left."""
    if isinstance(winner, CategorySet):
        return [winner.right.tolist(), winner.default_left]
    return [winner]
