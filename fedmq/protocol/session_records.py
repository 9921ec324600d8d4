"""What must a session not forget? The records that a party writes to disk.

A checkpoint after each tree lets a party continue after a crash. The ledger counts the sums
answered about the same rows over all sessions, and the people answered about are named, to be
compared with those of earlier sessions. The transcript of two parties keeps either from denying its
messages.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import nlargest
from typing import Annotated, Any, Literal, Self

import msgpack
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fedmq.boosting.model.share import WITHHELD_NOTHING, Withheld
from fedmq.boosting.model.tree import LookupTable, Tree
from fedmq.errors import DataError, Refused
from fedmq.messages.body import Body
from fedmq.messages.codec import packed_pieces
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.engine import Winner

__all__ = [
    "NOBODY",
    "ActiveTree",
    "AnswerSettings",
    "AnsweredTraining",
    "Checkpoint",
    "Commitment",
    "ConsentUsed",
    "EarlierSums",
    "NodesWon",
    "PassiveTree",
    "PeopleAnswered",
    "Record",
    "RowPeople",
    "RowSet",
    "RunningHash",
    "SignedStatement",
    "Signing",
    "Statement",
    "SumBudget",
    "SumLedger",
    "SumsAnswered",
    "Transcript",
    "TranscriptMessage",
    "all_places",
    "all_records",
    "hashed_ids",
    "message_hash",
    "most_nodes",
    "most_sums",
]


@dataclass(frozen=True, slots=True, eq=False)
class ActiveTree:
    """The active party's part of tree ``number``.

    ``records``: the records that the tree added to the party's lookup table. ``before``: the
    metrics of the model without the tree. ``margin`` float32 (rows,): the margins of all rows with
    the tree; None once a later tree supersedes it. With ``adds_alone`` the margin holds this tree's
    contribution alone, and no later tree supersedes it: DART weighs trees anew. ``table``: the
    digest of the table on which the tree grew; empty if none was taken. ``folds``: the number of
    models of a cross-validation; each grows a tree in turn, from its own last margin.
    """

    number: int
    tree: Tree
    records: LookupTable
    before: Mapping[str, float]
    margin: NDArray[np.float32] | None
    table: str = ""
    adds_alone: bool = False
    folds: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class PassiveTree:
    """A passive party's part of tree ``number``: the added records and their ``nodes``.

    Checkpoints of earlier versions have no nodes. ``table`` is the digest of the table on which the
    tree grew, as in :class:`ActiveTree`. ``withheld``: the sums that the party did not show.
    """

    number: int
    records: LookupTable
    table: str = ""
    nodes: tuple[int, ...] = ()
    withheld: Withheld = WITHHELD_NOTHING


Checkpoint = ActiveTree | PassiveTree


def all_records(features: tuple[str, ...], checkpoints: Iterable[Checkpoint]) -> LookupTable:
    """The lookup table of all ``checkpoints``, in their order."""
    table = LookupTable.empty(features)
    for checkpoint in checkpoints:
        table = table.followed_by(checkpoint.records)
    return table


def all_places(steps: Iterable[PassiveTree]) -> list[tuple[int, int]]:
    """Tree and node of all records of ``steps``; steps without nodes are left out."""
    return [(step.number, node) for step in steps for node in step.nodes]


# Answered sums. Each is an equation about its rows, as the active party knows their gradients.
# Trainings on the same rows add up, so they are counted together.

_SKETCH = 4096
_REGROWN = 3
"""Trees of a session that may grow again after a crash without counting twice."""


NOBODY = np.uint64(0)
"""In place of the hash of an id: the party lacks this person."""


def hashed_ids(names: Iterable[str]) -> NDArray[np.uint64]:
    """A hash of each id: uint64 (ids,)."""
    digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """A sketch of ``rows`` rows: their lowest hashes, ``sketch`` uint64 (<= 4096,), ascending.

    The lowest hashes of two sets show whether they have rows in common (Beyer et al., SIGMOD 2007):
    exactly for up to 4,096 rows, beyond that if 1 in 1,000 of all are common.
    """

    rows: int
    sketch: NDArray[np.uint64]

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """The rows of these ids."""
        return cls.of_hashes(hashed_ids(names))

    @classmethod
    def of_hashes(cls, hashes: NDArray[np.uint64]) -> Self:
        """The rows whose ids have these ``hashes``."""
        return cls(len(hashes), np.unique(hashes)[:_SKETCH].copy())

    def meets(self, other: RowSet) -> bool:
        """Whether some rows are in both."""
        return len(np.intersect1d(self.sketch, other.sketch)) > 0


@dataclass(frozen=True, slots=True)
class AnsweredTraining:
    """The sums answered in one session: ``sums`` by tree and attempt.

    ``reserved``: the sums per row that the session is expected to reach, while it is open.
    """

    session: str
    row_set: RowSet
    sums: Mapping[tuple[int, int], int]
    reserved: float = 0.0

    @property
    def per_row(self) -> float:
        """Sums divided by rows.

        A tree that grows again after a crash shows the same sums twice. Only ``_REGROWN`` such
        trees count once: crashes are rare, and a peer could break off attempts to ask for more.
        """
        by_tree: dict[int, list[int]] = defaultdict(list)
        for (tree, _), sums in self.sums.items():
            by_tree[tree].append(sums)
        again = [sums for of_tree in by_tree.values() for sums in sorted(of_tree)[:-1]]
        counted = sum(self.sums.values()) - sum(nlargest(_REGROWN, again))
        return counted / max(1, self.row_set.rows)

    @property
    def claimed(self) -> float:
        """Sums per row that are taken from other sessions: already answered, or reserved."""
        return max(self.per_row, self.reserved)


@dataclass(frozen=True, slots=True)
class EarlierSums:
    """The sums answered in other sessions, and in this session before this attempt.

    ``limit``: the most sums per row over all sessions. ``earlier``: sums of this session by tree
    and attempt. ``others``: sums per row that other sessions claim, by their rows.
    """

    session: str
    attempt: int
    limit: float
    earlier: Mapping[tuple[int, int], int] = field(default_factory=dict)
    others: Sequence[tuple[RowSet, float]] = ()

    @classmethod
    def of(
        cls, session: str, attempt: int, limit: float, trainings: Iterable[AnsweredTraining]
    ) -> Self:
        """Count all ``trainings`` so far; of other sessions only the totals are kept."""
        earlier: dict[tuple[int, int], int] = {}
        others: dict[int, tuple[RowSet, float]] = {}  # many sessions, few row sets
        for training in trainings:
            if training.session == session:
                earlier |= training.sums
            else:
                row_set = training.row_set
                _, claimed = others.get(id(row_set), (row_set, 0.0))
                others[id(row_set)] = row_set, claimed + training.claimed
        return cls(session, attempt, limit, earlier, tuple(others.values()))

    def by_others(self, row_set: RowSet) -> float:
        """Sums per row of ``row_set`` that other sessions answered, or have reserved.

        A session that shares any row with ``row_set`` counts in full: it does for the shared rows.
        """
        return sum(claimed for other, claimed in self.others if other.meets(row_set))

    def by_this(self, row_set: RowSet, sums: Mapping[int, int] | None = None) -> float:
        """Sums per row that this session answered, including ``sums`` by tree of this attempt."""
        now = {(tree, self.attempt): count for tree, count in (sums or {}).items()}
        return AnsweredTraining(self.session, row_set, {**self.earlier, **now}).per_row


def most_nodes(max_depth: int, rows: int, max_leaves: int = 0) -> int:
    """The most nodes that a tree of ``max_depth`` over ``rows`` rows asks about.

    With ``max_leaves`` the tree does not ask about the children of its last split.
    """
    nodes = sum(min(1 << depth, rows) for depth in range(max_depth))
    return min(nodes, max(1, 2 * max_leaves - 3)) if max_leaves else nodes


def most_sums(max_depth: int, rows: int, candidates: int, max_leaves: int = 0) -> int:
    """The most sums of a tree of ``max_depth`` over ``rows`` rows, ``candidates`` per node."""
    return candidates * most_nodes(max_depth, rows, max_leaves)


# Transcripts. Both parties hash the messages of an attempt in order, each direction by itself. At
# the end of a tree the passive party signs both hashes and its commitment, and the active party
# signs the same: a `Statement`.

_STATEMENT = b"fedmq statement 1\n"
"""The prefix of statements: no other text that a party's key signs begins with it."""

_SIGNER = b"fedmq signer of copies 1\n"


def signer_statement(session: str, attempt: int, active: str, passive: str, signer: bytes) -> bytes:
    """What ``passive`` signs so that its key ``signer`` of an attempt signs copies of circuits."""
    return _SIGNER + bytes(msgpack.packb([session, attempt, active, passive, signer]))


_FIELDS = TypeAdapter(
    tuple[str, int, str, str, bytes, int, tuple[int, bytes], tuple[int, bytes]],
    config=ConfigDict(strict=True),
)


def message_hash(body: Body) -> bytes:
    """SHA-256 of the kind and fields of ``body`` without its signature; statements sign it."""
    if getattr(body, "signature", b""):
        body = body.model_copy(update={"signature": b""})
    found = hashlib.sha256(b"\0" + body.kind.encode() + b"\0")
    for piece in packed_pieces(body):
        found.update(piece)
    return found.digest()


@dataclass(frozen=True, slots=True)
class RunningHash:
    """The hash of ``count`` messages in one direction: h(n) = SHA-256(1, h(n - 1), message n)."""

    count: int = 0
    digest: bytes = bytes(32)

    def after(self, message: bytes) -> RunningHash:
        """The running hash that includes the message with this hash."""
        digest = hashlib.sha256(b"\1" + self.digest + message).digest()
        return RunningHash(self.count + 1, digest)


@dataclass(frozen=True, slots=True)
class Statement:
    """The messages of ``active`` and ``passive`` in an attempt, up to the end of tree ``tree``.

    ``commitment``: the passive party's commitment when it accepted the session. ``questions`` went
    to the passive party, ``answers`` came from it.
    """

    session: str
    attempt: int
    active: str
    passive: str
    commitment: bytes
    tree: int
    questions: RunningHash
    answers: RunningHash

    def to_bytes(self) -> bytes:
        """The signed bytes."""
        hashes = (self.questions, self.answers)
        return _STATEMENT + bytes(
            msgpack.packb(
                [
                    self.session,
                    self.attempt,
                    self.active,
                    self.passive,
                    self.commitment,
                    self.tree,
                    *([running.count, running.digest] for running in hashes),
                ]
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse the result of ``to_bytes``; DataError if ``data`` is no statement."""
        try:
            unpacked = msgpack.unpackb(data.removeprefix(_STATEMENT), use_list=False)
            fields = _FIELDS.validate_python(unpacked)
            statement = cls(*fields[:6], RunningHash(*fields[6]), RunningHash(*fields[7]))
        except (ValueError, TypeError, msgpack.exceptions.UnpackException):
            raise DataError("the statement cannot be read") from None
        if statement.to_bytes() != data:
            raise DataError("the statement cannot be read")
        return statement


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """A statement with the passive party's ``signature`` (Ed25519), empty without party keys."""

    statement: Statement
    signature: bytes


@dataclass(frozen=True, slots=True)
class Signing:
    """How a party signs in ``attempt`` at ``session``, and verifies the signatures of others.

    ``verifies(party, data, signature)``: whether ``party`` has signed ``data``. The active party
    draws the lots of trees from ``seed``, its secret.
    """

    session: str
    attempt: int
    sign: Callable[[bytes], bytes]
    verifies: Callable[[str, bytes, bytes], bool]
    seed: bytes = field(default=b"", repr=False)

    def lot(self, tree: int) -> int:
        """The lot of ``tree``, 32 bits: if room is short, the trees with the lowest are kept."""
        digest = hmac.digest(self.seed, tree.to_bytes(8, "big"), "sha256")
        return int.from_bytes(digest[:4], "big")


class AnswerSettings(BaseModel):
    """The settings that decide a passive party's answers, besides its table.

    Engine and options by name. ``signs``: monotone constraints by column. ``column_groups``:
    columns by group. ``category_columns``: features of the columns that sets of categories may
    split. ``bins``: by column, its given cuts or the most bins.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    engine: str
    options: dict[str, Any]
    smallest_node: Annotated[int, Field(ge=0)]
    smallest_cell: Annotated[int, Field(ge=0)]
    signs: dict[str, Literal[-1, 1]]
    column_groups: dict[str, list[str]] = {}
    category_columns: dict[str, list[str]] = {}
    bins: dict[str, list[float] | int] = {}

    def packed(self) -> bytes:
        """The committed bytes; what is left out is that of versions before these settings."""
        return bytes(msgpack.packb(self.model_dump(exclude_defaults=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Commitment:
    """What a passive party commits to: its table, and all randomness of its answers.

    ``values`` float32 (rows, features), as in the party's table. ``secret`` (128 bits) derives the
    order of candidates, the noise and the salts of the ``root``.
    """

    values: NDArray[np.float32]
    features: tuple[str, ...]
    alignment: str
    digest: str
    secret: int
    settings: AnswerSettings
    root: bytes


@dataclass(slots=True)
class Transcript:
    """The hashes of one attempt; each of the two parties keeps one."""

    signing: Signing
    active: str
    passive: str
    commitment: bytes = b""
    questions: RunningHash = field(default_factory=RunningHash)
    answers: RunningHash = field(default_factory=RunningHash)
    last: Statement | None = None
    """The statement at the end of the last tree."""

    def note(self, sender: str, message: bytes) -> None:
        """Add the hash of a message that ``sender`` sent."""
        if sender == self.passive:
            self.answers = self.answers.after(message)
        else:
            self.questions = self.questions.after(message)

    def state(self, tree: int) -> Statement:
        """State the messages of both parties so far, at the end of ``tree``."""
        signing = self.signing
        self.last = Statement(
            signing.session,
            signing.attempt,
            self.active,
            self.passive,
            self.commitment,
            tree,
            self.questions,
            self.answers,
        )
        return self.last

    def countersignature(self) -> bytes:
        """This party's signature under the last statement; empty before the first."""
        return b"" if self.last is None else self.signing.sign(self.last.to_bytes())

    def is_countersigned(self, signature: bytes) -> bool:
        """Whether the active party has signed the last statement."""
        last = self.last
        return last is None or self.signing.verifies(self.active, last.to_bytes(), signature)


@dataclass(frozen=True, slots=True)
class SumBudget:
    """What a training is expected to disclose, reserved before this party accepts it.

    Sums per row: those ``answered`` before, those ``expected`` in total, and the ``limit``. While
    the session is open, its own share is ``reserved`` on the rows of ``row_set``.
    """

    answered: float
    expected: float
    limit: float
    reserved: float
    row_set: RowSet


@dataclass(frozen=True, slots=True)
class SumsAnswered:
    """The ``sums`` of ``tree`` about the rows of ``row_set``, counted before they are answered.

    They include the tree's earlier sums.
    """

    tree: int
    sums: int
    row_set: RowSet


class SumLedger:
    """Counts the sums that ``party`` answers about ``row_set``, added to the ``earlier`` sums.

    Its methods return records that must be on disk before any later message leaves. Without
    ``earlier`` it counts nothing and allows all sums. ``learning``: the number of rows that learn,
    by default all. Sums are about learning rows alone, so each counts rows / learning times.
    """

    def __init__(
        self,
        party: str,
        earlier: EarlierSums | None,
        row_set: RowSet | None,
        learning: int | None = None,
    ) -> None:
        self._party = party
        self._earlier = earlier
        self._row_set = row_set or RowSet.of(())
        rows = self._row_set.rows
        self._dilution = Fraction(max(1, rows), max(1, rows if learning is None else learning))
        self._sums: dict[int, int] = {}
        """By tree."""
        self._nodes: dict[int, int] = {}
        """Sums by node of the tree that grows."""
        self._by_others = 0.0 if earlier is None else earlier.by_others(self._row_set)

    def agree(
        self, terms: TrainingOpen, trees: int, candidates: int, nodes_per_query: int = 1
    ) -> Sequence[SumBudget]:
        """Reserve the trees of ``terms`` after the first ``trees``, which are on disk.

        Refused if they may disclose too much. A candidate has one sum per output of the terms. A
        query about fewer than ``nodes_per_query`` nodes counts as if about that many.
        """
        if self._earlier is None:
            return ()
        left = max(0, terms.trees - max(trees, terms.active_only_trees))
        columns = terms.colsample_bytree * terms.colsample_bylevel * terms.colsample_bynode
        shown = math.ceil(candidates * columns) * terms.outputs
        per_tree = most_sums(terms.max_depth, terms.rows, shown, terms.max_leaves)
        # A tree of few leaves may grow by one split at a time.
        questions = max(terms.max_depth, terms.max_leaves)
        per_tree += (nodes_per_query - 1) * questions * shown
        before, per_tree = self._per_row(), self._concentrated(per_tree)
        expected = before + left * per_tree / max(1, self._row_set.rows)
        self._check(expected, f"{left} trees of up to {per_tree:,} sums would make")
        reserved = expected - self._by_others
        return (SumBudget(before, expected, self._earlier.limit, reserved, self._row_set),)

    def answer(self, tree: int, nodes: Iterable[int], candidates: int) -> Sequence[SumsAnswered]:
        """Count ``candidates`` sums for each of the ``nodes``; Refused beyond the limit.

        A node that several rounds ask about is counted once.
        """
        new = [node for node in nodes if node not in self._nodes]
        if self._earlier is None or not new:
            return ()
        self._nodes |= dict.fromkeys(new, candidates)
        self._sums[tree] = self._concentrated(sum(self._nodes.values()))
        self._check(self._per_row(self._sums), f"tree {tree} would make")
        return (SumsAnswered(tree, self._sums[tree], self._row_set),)

    def end_tree(self, tree: int, shown: Iterable[int]) -> Sequence[SumsAnswered]:
        """Complete ``tree``, of whose nodes ``shown`` counts the sums that were shown."""
        asked, self._nodes = self._sums.get(tree, 0), {}
        self._sums[tree] = self._concentrated(sum(shown))
        if self._earlier is None or self._sums[tree] == asked:
            return ()
        return (SumsAnswered(tree, self._sums[tree], self._row_set),)

    def _concentrated(self, sums: int) -> int:
        """The sums about all rows that disclose as much per row as ``sums`` do per learning row."""
        return math.ceil(sums * self._dilution)

    def _per_row(self, sums: Mapping[int, int] | None = None) -> float:
        """The sums answered per row, including ``sums`` by tree of this attempt."""
        assert self._earlier is not None
        return self._by_others + self._earlier.by_this(self._row_set, sums)

    def _check(self, per_row: float, what: str) -> None:
        assert self._earlier is not None
        limit = self._earlier.limit
        if per_row > limit:
            before = self._per_row()
            raise Refused(
                f"{self._party} answers {limit:,g} sums per row at most (most_equations_per_row): "
                f"{before:,.1f} were answered before about these {self._row_set.rows:,} rows, and "
                f"{what} {per_row:,.1f}"
            )


_SPREAD = 0x9E3779B97F4A7C15  # an odd number of 64 bits: 2^64 by the golden ratio


@dataclass(frozen=True, slots=True, eq=False)
class PeopleAnswered:
    """``party`` is about to answer about ``people``: the hashes of their ids, uint64 (people,).

    ``part``: what they are in the session. ``combines``: whether combinations of such sets are
    compared, not only pairs: not for the rows that trees draw, since they are as many as trees.
    """

    party: str
    part: str
    people: NDArray[np.uint64]
    combines: bool = True


class RowPeople:
    """The ``people`` of all rows, uint64 (rows,), of whom those ``learning``, bool (rows,), learn.

    ``NOBODY`` stands for a person whom the party lacks: nothing about that person can be told. A
    person with several rows counts once, and is another one with each number of rows that learn:
    what two such sets tell differs by all of that person's rows.

    Its methods return records that must be on disk before any later message leaves.
    """

    def __init__(
        self, party: str, people: NDArray[np.uint64], learning: NDArray[np.bool_], folds: int
    ) -> None:
        self._party = party
        self._people = people
        self._learning = learning & (people != NOBODY)
        self._folds = folds
        self._named = {self._digest(self._learning)}

    def of_session(self) -> PeopleAnswered:
        """All who learn."""
        return PeopleAnswered(self._party, "rows", self._counted(self._learning))

    def of_tree(self, tree: int, carrying: NDArray[np.bool_]) -> Sequence[PeopleAnswered]:
        """Who learns in ``tree``, whose gradients the rows ``carrying``, bool (rows,), have.

        Nothing if the same have learned before: folds recur in each round.
        """
        rows = self._learning & carrying
        digest = self._digest(rows)
        if digest in self._named:
            return ()
        self._named.add(digest)
        first_round = 1 < self._folds > tree
        people = self._counted(rows)
        return (PeopleAnswered(self._party, f"tree {tree}", people, combines=first_round),)

    def _counted(self, rows: NDArray[np.bool_]) -> NDArray[np.uint64]:
        all_rows = self._people[rows]
        people, counts = np.unique(all_rows, return_counts=True)
        if len(people) == len(all_rows):
            return all_rows
        more: NDArray[np.uint64] = (counts - 1).astype(np.uint64)
        return people ^ (more * np.uint64(_SPREAD))

    @staticmethod
    def _digest(rows: NDArray[np.bool_]) -> bytes:
        return hashlib.blake2b(np.packbits(rows).tobytes(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """A hashed ``body``: message ``number`` of its direction, from 1.

    What another passive party hands on has the number of the question before it. ``digest``: its
    `message_hash`, if it was made.
    """

    incoming: bool
    number: int
    body: Body
    digest: bytes = b""

    @property
    def tree(self) -> int | None:
        """The number of the message's tree, if it has one."""
        return getattr(self.body, "tree", None)


@dataclass(frozen=True, slots=True)
class NodesWon:
    """The nodes of ``tree`` that this party has won, where sums are hidden: ``won`` has the
    winner of each, by the places of candidates in the order of the answers.

    A replay takes it on trust where the circuits that say so are left out of the transcript.
    """

    tree: int
    won: Mapping[int, Winner]


@dataclass(frozen=True, slots=True)
class ConsentUsed:
    """The owner's consent is used up: no other session may begin under it."""


Record = (
    Checkpoint
    | SumBudget
    | SumsAnswered
    | PeopleAnswered
    | Commitment
    | SignedStatement
    | TranscriptMessage
    | NodesWon
    | ConsentUsed
)
"""Everything that a session must keep."""
