"""What a party keeps of its trainings, so that an auditor can replay what it answered.

A folder for each session holds a file for each attempt's beginning and end, and one for each tree:
msgpack records, one after the other. Answers are kept as hashes, for a replay makes them again; but
those whole that another machine may round otherwise. Where room is short, broadcasts and queries of
the trees with the highest lots are kept as hashes, too. What is kept is what the party's machine
hashed, message by message: nothing that only arrived.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import msgpack

from fedmq.messages import training
from fedmq.messages.codec import pack_body
from fedmq.party.atomic_file import write_atomically
from fedmq.privacy.registry import ENGINES
from fedmq.protocol.records import Commitment, SignedStatement, TranscriptMessage, message_hash

__all__ = [
    "COMMITMENT",
    "MESSAGE",
    "STATEMENT",
    "TranscriptWriter",
    "files_of",
    "forget_older",
    "records_of",
    "session_folder",
]

log = logging.getLogger(__name__)

MESSAGE, COMMITMENT, STATEMENT = "message", "commitment", "statement"
"""Kinds of records; the attempt stands behind the kind.

A message: whether it came in, its number in that direction, its kind, its body, and its hash where
the payload is left out.
"""

_KEPT_SESSIONS = 10
_THIN = training.HistogramReply | training.GradientBroadcast | training.QueryPiece
"""What of a thin tree is kept as hashes."""
_LEAN_KINDS = {lean.kind: lean for lean in get_args(_THIN)}
_NO_LOT = 2**32  # of a tree that was not finished: it gives way before all others
_LONGEST_RECORD = 2**31 - 1


def session_folder(state: Path, session: str) -> Path:
    """Where the transcript of ``session`` lies in a state folder."""
    return state / "transcripts" / session


def files_of(folder: Path) -> list[Path]:
    """The files of a transcript, by name; a tree whose thin file is written is left out."""
    files = {path for path in folder.iterdir() if not path.name.startswith(".")}
    return sorted(file for file in files if not _is_thinned(file, files))


def _is_thinned(path: Path, files: Collection[Path]) -> bool:
    """Whether a crash kept the whole tree from being removed after its thin file was written."""
    return path.suffix == ".tree" and path.with_suffix(".thin") in files


def records_of(path: Path) -> Iterator[list[Any]]:
    """The records in a file; a broken end, as after a crash, is left out."""
    with path.open("rb") as file:
        most = os.fstat(file.fileno()).st_size  # a list of more members is announced by a lie
        yield from msgpack.Unpacker(
            file, max_buffer_size=_LONGEST_RECORD, max_array_len=most, max_map_len=most
        )


@dataclass(frozen=True, slots=True, order=True)
class _TreeFile:
    """One tree of an attempt, by its lot; ``thin`` where its broadcast is left out."""

    lot: int
    tree: int
    attempt: int
    thin: bool

    @classmethod
    def of(cls, path: Path) -> _TreeFile | None:
        """What the name of a file says; None for one of another kind."""
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
    """Remove all transcripts but those of ``running`` sessions, and of the ten last others."""
    await asyncio.to_thread(_forget_older, state / "transcripts", running)


class TranscriptWriter:
    """Keeps one attempt at ``session`` below the folder ``state``; one thread does all writing.

    ``most_bytes`` are for all attempts of the session together; None for the active party, which
    keeps only what others have signed. A disk that refuses, or is full, ends the transcript, not
    the session: the party can then not prove what it answered.
    """

    def __init__(
        self, state: Path, session: str, attempt: int, most_bytes: int | None = None
    ) -> None:
        self.state = state
        self.folder = session_folder(state, session)
        self._attempt = attempt
        self._most_bytes = most_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fedmq-transcript")
        self._unsynced: set[Path] = set()
        self._bytes: int | None = None
        """What lies in the folder; None until it is counted."""
        self._replays = True
        self._rounded: Set[str] = frozenset()
        """What the session's engine rounds otherwise on another machine."""
        self._held: list[bytes] = []
        self._growing: dict[int, _TreeFile] = {}
        self._lots: dict[int, int] = {}
        self._ended = False

    def note(self, message: TranscriptMessage) -> None:
        """A message was taken, or is sent."""
        if not self._ended:
            self._thread.submit(self._guarded, lambda: self._write(message))

    async def commit(self, commitment: Commitment) -> None:
        """Keep what this party commits to; it is on disk when this returns."""
        fields = {
            "values": commitment.values.astype("<f4").tobytes(),
            "shape": list(commitment.values.shape),
            "features": list(commitment.features),
            "alignment": commitment.alignment,
            "digest": commitment.digest,
            "secret": commitment.secret.to_bytes(16, "big"),
            "settings": commitment.settings.model_dump(),
            "root": commitment.root,
        }
        if self._most_bytes is not None and len(fields["values"]) > self._most_bytes:
            self._break_off("the table alone has more than transcript_bytes")
        await self._append_synced([COMMITMENT, self._attempt, fields])

    async def attest(self, signed: SignedStatement) -> None:
        """Keep what a peer has signed; it is on disk when this returns."""
        statement = signed.statement.to_bytes()
        await self._append_synced([STATEMENT, self._attempt, statement, signed.signature])

    async def flush(self) -> None:
        """Have all that was noted on disk."""
        await self._in_thread(self._sync)

    async def close(self) -> None:
        """The attempt has ended: have all on disk, and note nothing more."""
        await self._in_thread(self._close)
        self._ended = True
        self._thread.shutdown(wait=False)

    async def _append_synced(self, record: list[Any]) -> None:
        def write() -> None:
            for held in [*self._held, msgpack.packb(record)]:
                self._append(self._opening, held)
            self._held.clear()
            self._sync()

        await self._in_thread(write)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        if not self._ended:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._guarded, work)

    # In the thread

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._ended:
            return
        try:
            work()
        except OSError as error:
            self._break_off(error.strerror or "the disk refuses")

    def _break_off(self, why: str) -> None:
        self._ended = True
        log.error("%s: the transcript breaks off: %s", self.folder, why)

    @property
    def _opening(self) -> Path:
        return self.folder / f"{self._attempt}.opening"

    def _write(self, message: TranscriptMessage) -> None:
        body = message.body
        if isinstance(body, training.TrainingOpen):
            engine = ENGINES.get(body.engine)
            self._replays = body.sums == "shown" and engine is not None and engine.traits.replays
            self._rounded = frozenset() if engine is None else engine.traits.rounded
            # What is refused leaves nothing behind: no file is made before something is promised.
            self._held = [self._record(message)]
            return
        if not self._replays:
            return  # nobody can replay it, and what was signed lies with the active party
        tree = getattr(body, "tree", None)
        if tree is None:
            self._append(self._opening, self._record(message))
            return
        for older in [number for number in self._growing if number < tree]:
            self._finish_tree(older)
        growing = self._growing.setdefault(tree, _TreeFile(_NO_LOT, tree, self._attempt, False))
        record = self._record(message, growing.thin)
        self._fits(len(record))
        if self._growing[tree] != growing:  # it has given way
            growing = self._growing[tree]
            record = self._record(message, growing.thin)
        self._append(self.folder / growing.name, record)
        if isinstance(body, training.TreeFinished):
            self._lots[tree] = body.lot

    def _record(self, message: TranscriptMessage, thin: bool = False) -> bytes:
        incoming, number, body = message.incoming, message.number, message.body
        lean = _THIN if thin else training.HistogramReply | training.EngineSetup
        if isinstance(body, lean) and (thin or self._rounded.isdisjoint(body.payload)):
            return bytes(msgpack.packb(_lean(self._attempt, incoming, number, body)))
        packed = pack_body(body)
        record = [MESSAGE, self._attempt, incoming, number, body.kind, packed, b""]
        return bytes(msgpack.packb(record))

    def _append(self, path: Path, record: bytes) -> None:
        if self._ended:
            return
        if not self._fits(len(record)):
            self._break_off("transcript_bytes are full")
            return
        if path not in self._unsynced and not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
        self._unsynced.add(path)
        with path.open("ab", buffering=0) as file:
            file.write(record)
        if self._bytes is not None:
            self._bytes += len(record)

    def _sync(self) -> None:
        while self._unsynced:
            with self._unsynced.pop().open("ab") as file:
                os.fsync(file.fileno())

    def _close(self) -> None:
        self._sync()
        for tree in list(self._growing):
            self._finish_tree(tree)

    def _finish_tree(self, tree: int) -> None:
        """Name a tree by its lot, and keep within the bytes that the policy allows."""
        growing = self._growing.pop(tree)
        self._sync()
        if tree in self._lots:
            path = self.folder / growing.name
            path.rename(self.folder / replace(growing, lot=self._lots.pop(tree)).name)
        self._make_room()

    def _fits(self, size: int) -> bool:
        """Whether there is room for ``size`` bytes more, if need be once trees have given way."""
        if self._most_bytes is None:
            return True
        if self._bytes is None or self._bytes + size > self._most_bytes:
            self._make_room(size)
        return self._bytes is not None and self._bytes + size <= self._most_bytes

    def _make_room(self, size: int = 0) -> None:
        """Leave out what the trees with the highest lots were asked, until ``size`` more fit.

        A tree does not stay whole where one with a lower lot did not: which trees are kept is up
        to the lots alone. A tree that grows gives way last, since its lot may be the lowest.
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
        """Leave broadcasts and queries of a tree out; how many bytes are left of it."""
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
            # Another session that ends may remove the same.
            with suppress(FileNotFoundError):
                if session.name not in running:
                    ended.append((session.stat().st_mtime, session))
    except FileNotFoundError:
        return  # nothing was ever kept
    except OSError as error:
        log.warning("%s: no transcript is removed: %s", folder, error.strerror)
        return
    for _, session in sorted(ended)[:-_KEPT_SESSIONS]:
        shutil.rmtree(session, ignore_errors=True)


def _thin(path: Path, thin: Path) -> int:
    """Leave gradients and queries out of a tree's file; how many bytes are left of it."""
    kept = []
    for record in records_of(path):
        _, attempt, incoming, sequence, kind, packed, digest = record
        if kind in _LEAN_KINDS and not digest:
            body = _LEAN_KINDS[kind].model_validate(msgpack.unpackb(packed))
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
    body: training.HistogramReply
    | training.GradientBroadcast
    | training.QueryPiece
    | training.EngineSetup,
) -> list[Any]:
    """A record of ``body`` without its payload, and with the hash of all of it."""
    lean = pack_body(body.model_copy(update={"payload": {}}))
    return [MESSAGE, attempt, incoming, sequence, body.kind, lean, message_hash(body)]
