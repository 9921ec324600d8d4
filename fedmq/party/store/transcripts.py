"""What a party keeps of its trainings, so that an auditor can replay what it answered.

A folder for each session holds a file for each attempt's beginning and end, and one for each tree:
msgpack records, one after the other. Answers are kept as hashes, for a replay makes them again.
Where room is short, broadcasts of the trees with the highest lots are kept as hashes, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack

from fedmq.messages import training
from fedmq.messages.body import Body
from fedmq.messages.codec import pack_body
from fedmq.messages.envelope import Envelope
from fedmq.party.atomic_file import write_atomically
from fedmq.privacy.registry import ENGINES
from fedmq.protocol.transcript import Commitment, SignedStatement, message_hash

__all__ = ["COMMITMENT", "MESSAGE", "STATEMENT", "TranscriptWriter", "records_of", "session_folder"]

log = logging.getLogger(__name__)

MESSAGE, COMMITMENT, STATEMENT = "message", "commitment", "statement"
"""Kinds of records; the attempt stands behind the kind.

A message: whether it came in, its sequence, its kind, its body, and its hash where the payload is
left out.
"""

_KEPT_SESSIONS = 10
_TRANSCRIBED = frozenset(training.BODIES)
_ANSWERS = (
    training.SessionAccept,
    training.EngineSetup,
    training.HistogramReply,
    training.NodeDeclined,
    training.SplitOutcome,
    training.TreeSaved,
)
_NO_LOT = 2**32  # of a tree that was not finished: it gives way first
_LONGEST_RECORD = 2**31 - 1


def session_folder(state: Path, session: str) -> Path:
    """Where the transcript of ``session`` lies in a state folder."""
    return state / "transcripts" / session


def records_of(path: Path) -> Iterator[list[Any]]:
    """The records in a file; a broken end, as after a crash, is left out."""
    with path.open("rb") as file:
        yield from msgpack.Unpacker(file, max_buffer_size=_LONGEST_RECORD)


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


class TranscriptWriter:
    """Keeps one attempt at ``session`` below the folder ``state``; one thread does all writing.

    ``most_bytes`` are for all attempts of the session together; None for the active party, which
    keeps only what others have signed. A disk that refuses, or is full, ends the transcript, not
    the session: the party can then not prove what it answered.
    """

    def __init__(
        self, state: Path, session: str, attempt: int, most_bytes: int | None = None
    ) -> None:
        self.folder = session_folder(state, session)
        self._attempt = attempt
        self._most_bytes = most_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fedmq-transcript")
        self._unsynced: set[Path] = set()
        self._noted: set[tuple[bool, int]] = set()
        self._replays = True
        self._held: list[list[Any]] = []
        self._growing: dict[int, _TreeFile] = {}
        self._lots: dict[int, int] = {}
        self._ended = False

    def note(self, envelope: Envelope) -> None:
        """A message was sent or received, perhaps not for the first time."""
        header, body = envelope.header, envelope.body
        if self._ended or self._most_bytes is None or type(body) not in _TRANSCRIBED:
            return
        incoming = not isinstance(body, _ANSWERS)
        if header.sequence == 0 or (incoming, header.sequence) in self._noted:
            return
        self._noted.add((incoming, header.sequence))
        self._thread.submit(self._guarded, lambda: self._write(incoming, header.sequence, body))

    async def commit(self, commitment: Commitment) -> None:
        """Keep what this party commits to; it is on disk when this returns."""
        fields = {
            "values": commitment.values.astype("<f4").tobytes(),
            "shape": list(commitment.values.shape),
            "features": list(commitment.features),
            "alignment": commitment.alignment,
            "digest": commitment.digest,
            "secret": commitment.secret.to_bytes(16, "big"),
            "settings": dict(commitment.settings),
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
            while self._held:
                self._append(self._opening, self._held.pop(0))
            self._append(self._opening, record)
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

    def _write(self, incoming: bool, sequence: int, body: Body) -> None:
        if isinstance(body, training.TrainingOpen):
            self._replays = body.engine in ENGINES and ENGINES[body.engine].replays
            # What is refused leaves nothing behind: no file is made before something is promised.
            self._held = [self._record(incoming, sequence, body)]
            return
        if not self._replays:
            return  # nobody can replay it, and what was signed lies with the active party
        tree = getattr(body, "tree", None)
        if tree is None:
            self._append(self._opening, self._record(incoming, sequence, body))
            return
        for older in [number for number in self._growing if number < tree]:
            self._finish_tree(older)
        growing = self._growing.setdefault(tree, _TreeFile(_NO_LOT, tree, self._attempt, False))
        path = self.folder / growing.name
        self._append(path, self._record(incoming, sequence, body, path))
        if isinstance(body, training.TreeFinished):
            self._lots[tree] = body.lot

    def _record(
        self, incoming: bool, sequence: int, body: Body, tree: Path | None = None
    ) -> list[Any]:
        if isinstance(body, training.HistogramReply):
            return _lean(self._attempt, incoming, sequence, body, message_hash(body))
        if isinstance(body, training.GradientBroadcast) and tree is not None and tree.exists():
            assert self._most_bytes is not None
            if tree.stat().st_size > self._most_bytes:  # it will not stay whole
                return _lean(self._attempt, incoming, sequence, body, message_hash(body))
        return [MESSAGE, self._attempt, incoming, sequence, body.kind, pack_body(body), b""]

    def _append(self, path: Path, record: list[Any]) -> None:
        if path not in self._unsynced and not path.exists():
            self._make_folder()
            path.touch(mode=0o600)
        self._unsynced.add(path)
        with path.open("ab", buffering=0) as file:
            file.write(msgpack.packb(record))

    def _make_folder(self) -> None:
        if self.folder.exists():
            return
        self.folder.mkdir(parents=True, mode=0o700)
        others = sorted(self.folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for folder in others[:-_KEPT_SESSIONS]:
            shutil.rmtree(folder, ignore_errors=True)

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

    def _make_room(self) -> None:
        """Leave out the broadcasts of the trees with the highest lots, until all fits.

        A tree does not stay whole where one with a lower lot did not: which trees are kept is up
        to the lots alone.
        """
        assert self._most_bytes is not None
        sizes = {path: path.stat().st_size for path in self.folder.iterdir()}
        trees = {path: file for path in sizes if (file := _TreeFile.of(path)) is not None}
        thinned = min((file.lot for file in trees.values() if file.thin), default=_NO_LOT + 1)
        whole = sorted((file, path) for path, file in trees.items() if not file.thin)
        while whole and (sum(sizes.values()) > self._most_bytes or whole[-1][0].lot > thinned):
            file, path = whole.pop()
            sizes[path] = _thin(path, path.with_name(replace(file, thin=True).name))
        if sum(sizes.values()) > self._most_bytes:
            self._break_off("transcript_bytes are full")


def _thin(path: Path, thin: Path) -> int:
    """Leave the gradients out of a tree's file; how many bytes are left of it."""
    kept = []
    for record in records_of(path):
        _, attempt, incoming, sequence, kind, body, _ = record
        if kind == training.GradientBroadcast.kind:
            broadcast = training.GradientBroadcast.model_validate(msgpack.unpackb(body))
            lean = _lean(attempt, incoming, sequence, broadcast, message_hash(broadcast))
            kept.append(msgpack.packb(lean))
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
    body: training.HistogramReply | training.GradientBroadcast,
    digest: bytes,
) -> list[Any]:
    """A record of ``body`` without its payload, and with the hash of all of it."""
    lean = pack_body(body.model_copy(update={"payload": {}}))
    return [MESSAGE, attempt, incoming, sequence, body.kind, lean, digest]
