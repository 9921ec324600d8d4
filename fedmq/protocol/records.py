"""What must a session not forget? The records that a party writes to disk.

A checkpoint after each tree, so that a party can go on after a crash; the sums that were answered
about the same rows, over all sessions; and what two parties have said to each other, so that
neither can deny it.
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
from fedmq.messages.codec import pack_body
from fedmq.messages.training import TrainingOpen

__all__ = [
    "ActiveTree",
    "AnswerSettings",
    "AnsweredSums",
    "AnsweredTraining",
    "Checkpoint",
    "Commitment",
    "ConsentUsed",
    "PassiveTree",
    "Record",
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
    "message_hash",
    "most_nodes",
    "most_sums",
]


@dataclass(frozen=True, slots=True, eq=False)
class ActiveTree:
    """The active party's part of tree ``number``.

    ``records`` are those that the tree added to its own lookup table, ``before`` the metrics of
    the model without it, ``margin`` float32 (rows,) what all rows have with it; None where a later
    tree has made it needless. With ``adds_alone`` it is what this tree alone adds, and no later one
    makes it needless: DART weighs trees anew. ``table`` is the digest of the table on which it has
    grown; empty where nobody took one. ``turns``: so many models grow in turns, a tree each, and go
    on from the margins of their own last trees.
    """

    number: int
    tree: Tree
    records: LookupTable
    before: Mapping[str, float]
    margin: NDArray[np.float32] | None
    table: str = ""
    adds_alone: bool = False
    turns: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class PassiveTree:
    """A passive party's part of tree ``number``: the records that it added, and their ``nodes``.

    Checkpoints of earlier versions have no nodes.
    ``table`` is the digest of the table on which it has grown, as in :class:`ActiveTree`.
    ``withheld``: the sums that the party did not show.
    """

    number: int
    records: LookupTable
    table: str = ""
    nodes: tuple[int, ...] = ()
    withheld: Withheld = WITHHELD_NOTHING


Checkpoint = ActiveTree | PassiveTree


def all_records(features: tuple[str, ...], checkpoints: Iterable[Checkpoint]) -> LookupTable:
    """The lookup table that ``checkpoints`` have made, one after the other."""
    table = LookupTable.empty(features)
    for checkpoint in checkpoints:
        table = table.followed_by(checkpoint.records)
    return table


def all_places(steps: Iterable[PassiveTree]) -> list[tuple[int, int]]:
    """Tree and node of all records of ``steps``; fewer than there are where a step lacks nodes."""
    return [(step.number, node) for step in steps for node in step.nodes]


# Sums that were answered. Each is an equation about the rows that were added, as the active party
# knows their gradients. Many trainings on the same rows add up, so they are counted together.

_SKETCH = 4096
_REGROWN = 3
"""Trees of a session that may be grown again after a crash without being counted again."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """``rows`` rows by the lowest of their hashes: ``sketch`` uint64 (<= 4096,), ascending.

    Whether two sets have rows in common is seen by the lowest hashes of both (Beyer et al., SIGMOD
    2007): exactly for up to 4,096 rows, and beyond where 1 in 1,000 of all are common.
    """

    rows: int
    sketch: NDArray[np.uint64]

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """The rows of these ids."""
        digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
        hashed = np.unique(np.frombuffer(b"".join(digests), "<u8").astype(np.uint64))
        return cls(len(digests), hashed[:_SKETCH].copy())

    def meets(self, other: RowSet) -> bool:
        """Whether some rows are in both."""
        return len(np.intersect1d(self.sketch, other.sketch)) > 0


@dataclass(frozen=True, slots=True)
class AnsweredTraining:
    """What was answered in one session; ``sums`` by tree and attempt.

    ``reserved``: what it was foretold to come to, in sums per row, while it is open.
    """

    session: str
    row_set: RowSet
    sums: Mapping[tuple[int, int], int]
    reserved: float = 0.0

    @property
    def per_row(self) -> float:
        """Sums divided by rows.

        A tree that broke off and was grown again has shown the same sums twice. That is believed of
        a few trees, as crashes are rare: who opens attempts only to break them off asks for more.
        """
        by_tree: dict[int, list[int]] = defaultdict(list)
        for (tree, _), sums in self.sums.items():
            by_tree[tree].append(sums)
        again = [sums for of_tree in by_tree.values() for sums in sorted(of_tree)[:-1]]
        counted = sum(self.sums.values()) - sum(nlargest(_REGROWN, again))
        return counted / max(1, self.row_set.rows)

    @property
    def claimed(self) -> float:
        """Sums per row that no other session may be granted: answered already, or yet to come."""
        return max(self.per_row, self.reserved)


@dataclass(frozen=True, slots=True)
class AnsweredSums:
    """What was answered in other sessions, and in this one before this attempt.

    ``most`` sums may be answered per row in all of them together. ``earlier``: sums of this session
    by tree and attempt. ``others``: what other sessions claim per row, by the rows they are about.
    """

    session: str
    attempt: int
    most: float
    earlier: Mapping[tuple[int, int], int] = field(default_factory=dict)
    others: Sequence[tuple[RowSet, float]] = ()

    @classmethod
    def of(
        cls, session: str, attempt: int, most: float, trainings: Iterable[AnsweredTraining]
    ) -> Self:
        """Of all ``trainings`` so far; a session keeps no more of the others than their totals."""
        earlier: dict[tuple[int, int], int] = {}
        others: dict[int, tuple[RowSet, float]] = {}  # of many sessions few sets of rows
        for training in trainings:
            if training.session == session:
                earlier |= training.sums
            else:
                row_set = training.row_set
                _, claimed = others.get(id(row_set), (row_set, 0.0))
                others[id(row_set)] = row_set, claimed + training.claimed
        return cls(session, attempt, most, earlier, tuple(others.values()))

    def by_others(self, row_set: RowSet) -> float:
        """Sums per row of ``row_set`` that other sessions answered, or have reserved.

        A session counts in full if it has rows in common with them: for some of them it does.
        """
        return sum(claimed for other, claimed in self.others if other.meets(row_set))

    def by_this(self, row_set: RowSet, sums: Mapping[int, int] | None = None) -> float:
        """Sums per row that this session answered, with ``sums`` by tree of this attempt."""
        now = {(tree, self.attempt): count for tree, count in (sums or {}).items()}
        return AnsweredTraining(self.session, row_set, {**self.earlier, **now}).per_row


def most_nodes(max_depth: int, rows: int, max_leaves: int = 0) -> int:
    """Nodes that a tree of ``max_depth`` over ``rows`` rows asks about, at most.

    With ``max_leaves`` the children of the last split are not asked about.
    """
    nodes = sum(min(1 << depth, rows) for depth in range(max_depth))
    return min(nodes, max(1, 2 * max_leaves - 3)) if max_leaves else nodes


def most_sums(max_depth: int, rows: int, candidates: int, max_leaves: int = 0) -> int:
    """Sums of a tree of ``max_depth`` over ``rows`` rows, where a node has ``candidates``."""
    return candidates * most_nodes(max_depth, rows, max_leaves)


# Transcripts. Both parties hash the messages of an attempt, each direction by itself, in their
# order. Once a tree is finished the passive party signs both hashes together with what it committed
# to, and the active party signs the same: a `Statement`.

_STATEMENT = b"fedmq statement 1\n"
"""No other text that a party's key signs begins like this."""

_FIELDS = TypeAdapter(
    tuple[str, int, str, str, bytes, int, tuple[int, bytes], tuple[int, bytes]],
    config=ConfigDict(strict=True),
)


def message_hash(body: Body) -> bytes:
    """SHA-256 of kind and fields of ``body``, without its signature: what is signed later."""
    if getattr(body, "signature", b""):
        body = body.model_copy(update={"signature": b""})
    return hashlib.sha256(b"\0" + body.kind.encode() + b"\0" + pack_body(body)).digest()


@dataclass(frozen=True, slots=True)
class RunningHash:
    """Of the first ``count`` messages in one direction: h(n) = SHA-256(1, h(n - 1), message n)."""

    count: int = 0
    digest: bytes = bytes(32)

    def after(self, message: bytes) -> RunningHash:
        """The same with the message that has this hash."""
        digest = hashlib.sha256(b"\1" + self.digest + message).digest()
        return RunningHash(self.count + 1, digest)


@dataclass(frozen=True, slots=True)
class Statement:
    """What ``active`` and ``passive`` have said in an attempt, up to the end of tree ``tree``.

    ``commitment`` is what the passive party committed to when it accepted the session;
    ``questions`` went to it, ``answers`` came from it.
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
        """What is signed."""
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
        """The statement of which ``data`` is the ``to_bytes``; DataError where there is none."""
        try:
            unpacked = msgpack.unpackb(data.removeprefix(_STATEMENT), use_list=False)
            fields = _FIELDS.validate_python(unpacked)
            statement = cls(*fields[:6], RunningHash(*fields[6]), RunningHash(*fields[7]))
        except (ValueError, TypeError, msgpack.exceptions.UnpackException):
            raise DataError("a statement that cannot be read") from None
        if statement.to_bytes() != data:
            raise DataError("a statement that cannot be read")
        return statement


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """``signature`` (Ed25519) is the passive party's; empty where parties have no keys."""

    statement: Statement
    signature: bytes


@dataclass(frozen=True, slots=True)
class Signing:
    """How a party signs in ``attempt`` at ``session``, and verifies what the others have signed.

    ``verifies(party, data, signature)`` says whether ``party`` has signed ``data``. The active
    party draws the lots of trees from ``seed``, which nobody else knows.
    """

    session: str
    attempt: int
    sign: Callable[[bytes], bytes]
    verifies: Callable[[str, bytes, bytes], bool]
    seed: bytes = field(default=b"", repr=False)

    def lot(self, tree: int) -> int:
        """The lot of ``tree``, 32 bits: trees with the lowest are kept where room is short."""
        digest = hmac.digest(self.seed, tree.to_bytes(8, "big"), "sha256")
        return int.from_bytes(digest[:4], "big")


class AnswerSettings(BaseModel):
    """What of a passive party's files decides its answers beside its table.

    Engine and options by name; ``signs`` by column, under monotone constraints; ``column_groups``:
    columns by the names of groups; ``category_columns``: the features of those
    that may be split by sets of categories.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    engine: str
    options: dict[str, Any]
    smallest_node: Annotated[int, Field(ge=0)]
    smallest_cell: Annotated[int, Field(ge=0)]
    signs: dict[str, Literal[-1, 1]]
    column_groups: dict[str, list[str]] = {}
    category_columns: dict[str, list[str]] = {}

    def packed(self) -> bytes:
        """As it is committed to; without groups as before there were any."""
        return bytes(msgpack.packb(self.model_dump(exclude_defaults=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Commitment:
    """What a passive party commits to: its table, and all that is random in what it answers.

    ``values`` float32 (rows, features) as in the party's table; ``secret`` (128 bits) makes the
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
    """The hashes of one attempt, as either of its two parties keeps them."""

    signing: Signing
    active: str
    passive: str
    commitment: bytes = b""
    questions: RunningHash = field(default_factory=RunningHash)
    answers: RunningHash = field(default_factory=RunningHash)
    last: Statement | None = None
    """What was stated at the end of the last tree."""

    def note(self, sender: str, message: bytes) -> None:
        """The message with this hash was sent by ``sender``."""
        if sender == self.passive:
            self.answers = self.answers.after(message)
        else:
            self.questions = self.questions.after(message)

    def state(self, tree: int) -> Statement:
        """What both have said so far, at the end of ``tree``."""
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
        """This party's signature under what was stated last; empty where nothing was."""
        return b"" if self.last is None else self.signing.sign(self.last.to_bytes())

    def is_countersigned(self, signature: bytes) -> bool:
        """Whether the active party has signed what was stated last."""
        last = self.last
        return last is None or self.signing.verifies(self.active, last.to_bytes(), signature)


@dataclass(frozen=True, slots=True)
class SumBudget:
    """What a training is expected to disclose, reserved before this party accepts it.

    Sums per row: those ``answered`` before, those ``expected`` with them, and the ``limit``. What
    this session alone may come to is ``reserved`` on the rows of ``row_set`` while it is open.
    """

    answered: float
    expected: float
    limit: float
    reserved: float
    row_set: RowSet


@dataclass(frozen=True, slots=True)
class SumsAnswered:
    """So many ``sums`` of ``tree`` about the rows of ``row_set``, counted before they are answered.

    Those of the tree that were answered before are among them.
    """

    tree: int
    sums: int
    row_set: RowSet


class SumLedger:
    """Counts what ``party`` answers about ``row_set``, after all that it has ``answered`` before.

    Its methods return the records that must be on disk before anything that is sent later leaves.
    Without ``answered`` nothing is counted, and all may be answered. So many of the rows are
    ``learning``, all where that is left out: sums are about these alone, and count as many times
    more.
    """

    def __init__(
        self,
        party: str,
        answered: AnsweredSums | None,
        row_set: RowSet | None,
        learning: int | None = None,
    ) -> None:
        self._party = party
        self._answered = answered
        self._row_set = row_set or RowSet.of(())
        rows = self._row_set.rows
        self._dilution = Fraction(max(1, rows), max(1, rows if learning is None else learning))
        self._sums: dict[int, int] = {}
        """By tree."""
        self._nodes: dict[int, int] = {}
        """Sums by node of the tree that grows."""
        self._by_others = 0.0 if answered is None else answered.by_others(self._row_set)

    def agree(
        self, terms: TrainingOpen, trees: int, candidates: int, nodes_per_query: int = 1
    ) -> Sequence[SumBudget]:
        """``trees`` of ``terms`` are on disk; Refused where the others may tell too much.

        A candidate has as many sums as the terms have outputs.
        A query that is about fewer than ``nodes_per_query`` nodes counts as if about so many.
        """
        if self._answered is None:
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
        return (SumBudget(before, expected, self._answered.most, reserved, self._row_set),)

    def answer(self, tree: int, nodes: Iterable[int], candidates: int) -> Sequence[SumsAnswered]:
        """As many sums of each node are asked for; Refused where they are too many.

        A node that is asked about in several rounds is counted once.
        """
        new = [node for node in nodes if node not in self._nodes]
        if self._answered is None or not new:
            return ()
        self._nodes |= dict.fromkeys(new, candidates)
        self._sums[tree] = self._concentrated(sum(self._nodes.values()))
        self._check(self._per_row(self._sums), f"tree {tree} would make")
        return (SumsAnswered(tree, self._sums[tree], self._row_set),)

    def end_tree(self, tree: int, shown: Iterable[int]) -> Sequence[SumsAnswered]:
        """The tree is complete, and so many sums of each of its nodes were ``shown``."""
        asked, self._nodes = self._sums.get(tree, 0), {}
        self._sums[tree] = self._concentrated(sum(shown))
        if self._answered is None or self._sums[tree] == asked:
            return ()
        return (SumsAnswered(tree, self._sums[tree], self._row_set),)

    def _concentrated(self, sums: int) -> int:
        """As many sums about all rows as tell of each what these tell of one that learns."""
        return math.ceil(sums * self._dilution)

    def _per_row(self, sums: Mapping[int, int] | None = None) -> float:
        """What was answered about each row, with ``sums`` by tree of this attempt."""
        assert self._answered is not None
        return self._by_others + self._answered.by_this(self._row_set, sums)

    def _check(self, per_row: float, what: str) -> None:
        assert self._answered is not None
        most = self._answered.most
        if per_row > most:
            before = self._per_row()
            raise Refused(
                f"{self._party} answers {most:,g} sums per row at most (most_equations_per_row): "
                f"{before:,.1f} were answered before about these {self._row_set.rows:,} rows, and "
                f"{what} {per_row:,.1f}"
            )


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """A ``body`` as it was hashed: number ``number`` of its direction, from 1."""

    incoming: bool
    number: int
    body: Body


@dataclass(frozen=True, slots=True)
class ConsentUsed:
    """The owner's consent is used up: no other session may begin by it."""


Record = (
    Checkpoint
    | SumBudget
    | SumsAnswered
    | Commitment
    | SignedStatement
    | TranscriptMessage
    | ConsentUsed
)
"""Everything that a session must not forget."""
