"""The training session's messages, in the order in which they are sent.

Nodes are numbered as in a heap: the root is 1, the children of *i* are 2*i* (left) and 2*i* + 1.
A bitmap over "the rows of a node" has a bit for each row in the node, in ascending row order:
training rows, rows left out by subsampling, and evaluation rows.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, FailFast, Field

from fedmq.errors import MessageError
from fedmq.messages.array import Bitmap, Payload, Uint32s
from fedmq.messages.body import Body
from fedmq.messages.fields import Count, Index, ModelId

__all__ = [
    "BODIES",
    "MOST_FOLDS",
    "MOST_ROWS",
    "NO_CANDIDATE",
    "BestSoFar",
    "CategorySplit",
    "CircuitPiece",
    "DirectionsQuery",
    "EngineSetup",
    "GradientBroadcast",
    "HistogramReply",
    "HistogramRequest",
    "MainTraining",
    "NodeAssignment",
    "NodeDeclined",
    "NodeQuery",
    "QueryPiece",
    "SelectedColumns",
    "SessionAccept",
    "SessionFinished",
    "SplitDecision",
    "SplitOutcome",
    "TrainingOpen",
    "TreeFinished",
    "TreeSaved",
    "TreeStarted",
]

MOST_DEPTH = 52
"""Levels of a tree: a node's number is exact as a floating-point number, too."""

Node = Annotated[int, Field(ge=1, lt=2 ** (MOST_DEPTH + 1))]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Column = Annotated[str, Field(min_length=1, max_length=1000)]
Piece = Annotated[int, Field(ge=0, lt=2**20)]
Pieces = Annotated[int, Field(ge=1, lt=2**20)]
Round = Annotated[int, Field(ge=0, lt=256)]

MOST_HANDED_ON = 2**20
"""Comparisons of a tree."""


def _bytes_or_none(size: int) -> AfterValidator:
    def check(value: bytes) -> bytes:
        if len(value) not in (0, size):
            raise ValueError(f"expected {size} bytes or none, not {len(value)}")
        return value

    return AfterValidator(check)


Signature = Annotated[bytes, _bytes_or_none(64)]
"""Ed25519; empty where parties have no keys, or nothing was signed yet."""


MOST_ROWS = 32_000_000
"""Of a training: a bitmap over all rows has to fit in one message."""

MOST_CANDIDATES = 2**20
"""Of one party in a node."""

MOST_FOLDS = 1000
"""Of a cross-validation."""

MOST_CONSTRAINTS = 63
"""Interaction constraints of a training."""

NO_CANDIDATE = 2**32 - 1
"""What a decoy names, as often as a decision would name a candidate."""


class MainTraining(Body):
    """Of a fallback model's training: the model that it stands in for, and how that was opened."""

    kind: ClassVar[str] = "main training"

    session: Annotated[str, Field(min_length=1, max_length=64)]
    model: ModelId
    chain: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    fallbacks: Annotated[tuple[Name, ...], Field(strict=False)]
    """As in its opening."""
    without: Name
    """The party that takes no part: one of ``fallbacks``."""


class SelectedColumns(Body):
    """Those of the recipient's columns that take part, by the numbers that a screen gave them."""

    kind: ClassVar[str] = "selected columns"

    screen: ModelId
    session: Annotated[str, Field(min_length=1, max_length=64)]
    """In which the recipient showed its columns."""
    numbers: Annotated[
        tuple[Annotated[int, Field(ge=1, le=100_000)], ...],
        Field(strict=False, min_length=1, max_length=100_000),
    ]
    """Ascending, from 1 on."""


class TrainingOpen(Body):
    """Active to each passive: train with me, on these terms."""

    kind: ClassVar[str] = "training open"

    model: ModelId
    rows: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    alignment: Annotated[str, Field(max_length=128)]
    """The stored alignment's session, or a digest of all ids in ascending order.

    Empty where rows are matched by position.
    """
    alignment_name: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")]
    """The name of the stored alignment that selects the rows; empty where the tables alone do."""
    evaluation: Bitmap
    """Rows that are only scored: neither trees nor cuts are learned from them."""
    engine: Name
    public: Payload
    """The engine's public parameters."""
    trees: Annotated[int, Field(ge=0, lt=2**32)]
    """0: none grows, but the leaves of ``earlier_model`` are weighed anew by the active party."""
    active_only_trees: Count
    """So many first trees are the active party's alone; those of all classes of its rounds."""
    max_depth: Annotated[int, Field(ge=1, le=MOST_DEPTH)]
    max_bin: Annotated[int, Field(ge=2, le=65535)]
    colsample_bytree: Annotated[float, Field(gt=0, le=1)]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    value_bits: Annotated[int, Field(ge=0, le=62)] = 40
    """No g or h of a row exceeds 2**``value_bits`` in its fixed point; ``gradient_bits`` less 1.

    Where the active party has several rows of a person, no sum of a person's exceeds it.
    """
    colsample_bylevel: Annotated[float, Field(gt=0, le=1)] = 1.0
    colsample_bynode: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_leaves: Count = 0
    """Leaves of a tree at most; 0 is no limit."""
    signs: dict[Column, Literal[-1, 1]] = Field(default_factory=dict)
    """Of the recipient's columns that the active party names: whether they may only raise the
    prediction (1), or only lower it (-1)."""
    outputs: Annotated[int, Field(ge=1, le=1000)] = 1
    """So many g and h has a row, for trees whose leaves are vectors; all are summed together."""
    together: Annotated[
        tuple[Annotated[tuple[Column, ...], Field(strict=False, max_length=100_000)], ...],
        Field(strict=False, max_length=MOST_CONSTRAINTS),
    ] = ()
    """Interaction constraints: the recipient's columns in each of them, as the active party names
    them; ``*`` is all. Empty where there are none."""
    earlier_model: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")] = ""
    """The model whose trees these continue: directions of them are asked for first. Empty where a
    model begins."""
    earlier_trees: Count = 0
    """How many trees it has."""
    earlier_places: Annotated[bytes, _bytes_or_none(32)] = b""
    """Digest of where the recipient's records stand in them; it holds the same ones, or refuses."""
    decoys: bool = False
    """Whether decisions come that are decoys, and assignments of the recipient's own splits."""
    folds: Annotated[int, Field(ge=1, le=MOST_FOLDS)] = 1
    """From 2 on a cross-validation: ``trees`` are those of so many models, which grow in turns, and
    of which nothing is kept."""
    sums: Literal["shown", "hidden"] = "shown"
    """Whether the engine shows the active party sums; hidden, it learns who won a node."""
    chain: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Where sums are hidden, all passive parties in the order of their columns, unless there is one
    only: each hands on to the next."""
    max_cat_to_onehot: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """From so many categories on, the recipient's columns are split by sets of them if it agrees;
    0: none is."""
    sampled: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of the training rows that is drawn for a tree, about."""
    signed_circuits: bool = False
    """Whether what both sides sign covers the circuits of hidden sums, so that an auditor can
    replay them; versions before it sign all else."""
    fallbacks: Annotated[tuple[Name, ...], Field(strict=False, max_length=1000)] = ()
    """The parties without which the recipient trains once more on the same terms, after this."""
    fallback_of: MainTraining | None = None
    """Of such a training: that of the model itself, which the recipient has agreed to."""
    selected: SelectedColumns | None = None
    """Which of the recipient's columns take part; None: all that its policy lets take part."""
    narrow: bool = False
    """Whether gradients come as float32, which holds them exactly, and rows that follow one another
    as the first and the last; a version before it refuses to begin."""


class SessionAccept(Body):
    """Passive to active: agreed."""

    kind: ClassVar[str] = "session accept"

    setup_pieces: Annotated[int, Field(ge=0, lt=2**20)]
    """How many :class:`EngineSetup` messages follow."""
    trees: Count
    """How many trees this party has on disk from earlier attempts at the session."""
    candidates: Annotated[int, Field(ge=0, le=MOST_CANDIDATES)] = MOST_CANDIDATES
    """No node has more of this party's candidates; the most there can be, if it does not say."""
    signed: bool = False
    """Whether some of its columns are under a monotone constraint: signs come with its sums."""
    smallest_node: Count = 0
    """Nodes with fewer rows get no candidates of this party."""
    smallest_cell: Count = 0
    """Cells with fewer rows of a node were or are merged; 0: none."""
    by_sets: bool = False
    """Whether some of its columns are split by sets of categories: which candidates are categories
    of one column comes with its sums."""
    commitment: Annotated[bytes, _bytes_or_none(32)] = b""
    """Root of a hash tree over the binned table and all that is random in the answers."""


class EngineSetup(Body):
    """Passive to active: what an engine exchanges once, before the first tree."""

    kind: ClassVar[str] = "engine setup"

    piece: Piece
    payload: Payload
    signature: Signature = b""
    """Of the passive party, under the key in the payload by which it signs copies of circuits."""


class TreeStarted(Body):
    """Active to each passive: a tree begins; ``pieces`` gradient broadcasts follow.

    The first one of an attempt may name a tree that the recipient has saved and another party has
    not: the recipient discards it.
    """

    kind: ClassVar[str] = "tree started"

    tree: Index
    pieces: Annotated[int, Field(ge=0, lt=2**20)]
    signature: Signature = b""
    """Of the active party, under what the recipient signed at the end of the tree before."""


class GradientBroadcast(Body):
    """Active to each passive: the engine's form of the gradients of a range of rows."""

    kind: ClassVar[str] = "gradient broadcast"
    in_bulk: ClassVar[bool] = True

    tree: Index
    piece: Piece
    rows: Uint32s
    """Their numbers, ascending."""
    payload: Payload
    in_sequence: bool = False
    """Whether ``rows`` are the first and the last alone: none between them is left out."""

    def numbers(self) -> NDArray[np.uint32]:
        """The numbers of all its rows: uint32, ascending.

        Raises:
            MessageError: it is to name a first row and a last one, and does not.
        """
        rows: NDArray[np.uint32] = self.rows.values
        if not self.in_sequence:
            return rows
        if len(rows) != 2 or rows[0] > rows[1]:
            raise MessageError("rows in sequence have a first one and a last one")
        return np.arange(rows[0], rows[1] + 1, dtype=np.uint32)


class NodeQuery(Body):
    """One node of a request; ``pieces`` query pieces follow it."""

    kind: ClassVar[str] = "node query"

    node: Node
    pieces: Annotated[int, Field(ge=0, lt=2**20)]


class HistogramRequest(Body):
    """Active to each passive: sum the gradients of a level's nodes per split candidate."""

    kind: ClassVar[str] = "histogram request"

    tree: Index
    round: Round
    nodes: Annotated[tuple[NodeQuery, ...], Field(min_length=1, strict=False), FailFast()]


class QueryPiece(Body):
    """Active to passive: a piece of what the engine asks for one node."""

    kind: ClassVar[str] = "query piece"
    in_bulk: ClassVar[bool] = True

    tree: Index
    node: Node
    round: Round
    piece: Piece
    payload: Payload


class HistogramReply(Body):
    """Passive to active: a piece of the engine's answer for one node."""

    kind: ClassVar[str] = "histogram reply"

    tree: Index
    node: Node
    round: Round
    piece: Piece
    pieces: Pieces
    payload: Payload
    rising: Bitmap | None = None
    """In the first piece, of the candidates as they are shown: whose columns may only raise the
    prediction. Only from a party that announced signs."""
    falling: Bitmap | None = None
    """Whose columns may only lower it."""
    constraints: Annotated[
        tuple[Bitmap, ...], Field(strict=False, max_length=MOST_CONSTRAINTS + 1)
    ] = ()
    """In the first piece, under interaction constraints: of the candidates as they are shown, whose
    columns each holds; at last, whose column has split the root and stands in none."""
    categories: Annotated[tuple[Uint32s, ...], Field(strict=False, max_length=MOST_CANDIDATES)] = ()
    """In the first piece, of each column that is split by sets: its categories' candidates as they
    are shown, in the order that decides ties. Only from a party that announced them."""


class NodeDeclined(Body):
    """Passive to active: this node has so few rows that their sums are not disclosed."""

    kind: ClassVar[str] = "node declined"

    tree: Index
    node: Node


class DirectionsQuery(Body):
    """Active to the owner of the winning candidate: a piece of what its engine needs to show
    directions of a node's rows without learning which they are. All come before the decision.
    """

    kind: ClassVar[str] = "directions query"

    tree: Index
    node: Node
    piece: Piece
    payload: Payload


class CircuitPiece(Body):
    """Either way: a piece of a parcel by which the halves of an engine find the winners of nodes
    whose sums nobody sees. It is not recorded. A passive party stores what the active party sends,
    and hashes of its own, in its transcript.
    """

    kind: ClassVar[str] = "circuit piece"
    in_bulk: ClassVar[bool] = True

    tree: Index
    node: Node
    """The first of ``level``."""
    parcel: Piece
    """Those of each side are counted from 0."""
    piece: Piece
    pieces: Pieces
    payload: Payload
    level: Annotated[tuple[Node, ...], Field(strict=False)] = ()
    """All of the nodes, in the active party's first parcel, which holds nothing else but the rule
    of gains, unless that is the oldest."""
    chain: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """There as well: the passive parties that have candidates, unless it is one only."""


class BestSoFar(Body):
    """Passive to the next passive: its shares of the best gain of each node so far, and of whose
    it is. They are random bits to whoever has not the active party's. Not recorded; the recipient
    stores them in its transcript.
    """

    kind: ClassVar[str] = "best so far"

    tree: Index
    node: Node
    """The first of the level's."""
    payload: Payload
    salt: Annotated[bytes, _bytes_or_none(16)] = b""
    """Random, where circuits are signed: the active party, which reads a hash of this message,
    cannot find the shares by trying them."""


HandedOnHash = Annotated[
    tuple[Node, Annotated[bytes, Field(min_length=32, max_length=32)]], Field(strict=False)
]
"""The first node of a level, and the hash of its `BestSoFar`."""


class CategorySplit(Body):
    """A split by a set of categories: those of the candidates ``right`` go right."""

    kind: ClassVar[str] = "category split"

    right: Uint32s
    """Positions in the owner's reply, as those of a decision."""
    default_left: bool
    """Whether missing values go left."""


class SplitDecision(Body):
    """Active to the owner of the winning candidate; several when they tie to the last bit."""

    kind: ClassVar[str] = "split decision"

    tree: Index
    node: Node
    candidates: Uint32s
    """Positions in the owner's reply for this node; what they stand for only the owner knows.

    None where sums are hidden: the owner knows which one won.
    In a decoy each is 2**32 - 1: nothing is split, and nobody goes left in the answer.
    """
    sets: Annotated[tuple[CategorySplit, ...], Field(strict=False, max_length=MOST_CANDIDATES)] = ()
    """Sets of categories that win as well, of one column each."""

    @property
    def is_decoy(self) -> bool:
        """Whether nothing is split, and the message hides who gets decisions."""
        named = np.concatenate(
            [self.candidates.numpy(), *(split.right.numpy() for split in self.sets)]
        )
        return len(named) > 0 and bool((named == NO_CANDIDATE).all())


class SplitOutcome(Body):
    """Owner to active: which record holds the threshold, and which rows go left."""

    kind: ClassVar[str] = "split outcome"

    tree: Index
    node: Node
    record: Annotated[int, Field(ge=0, lt=2**31)]
    left: Bitmap
    """Over the rows of the node, or over all rows if the engine hides which rows a node has.

    After a :class:`DirectionsQuery` it takes the engine to read them.
    """
    sign: Annotated[int, Field(ge=-1, le=1)] = 0
    """Where no sums are shown, or a set of categories was named that may part rows as a column of
    numbers does: the monotone constraint on the column that splits."""
    held_by: Annotated[int, Field(ge=0, le=2**63)] = 0
    """There as well: the interaction constraints that hold it, as bits."""


class NodeAssignment(Body):
    """Active to the parties that do not own the split: which rows go left."""

    kind: ClassVar[str] = "node assignment"

    tree: Index
    node: Node
    left: Bitmap


class TreeFinished(Body):
    """Active to each passive: this tree is complete, drop its ciphertexts."""

    kind: ClassVar[str] = "tree finished"

    tree: Index
    lot: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Trees with the lowest lots stay in a transcript that has no room for all."""


class TreeSaved(Body):
    """Passive to active: this party's part of the tree is on disk."""

    kind: ClassVar[str] = "tree saved"

    tree: Index
    signature: Signature = b""
    """Under the hashes of all messages so far, either way, and the commitment."""
    given: Annotated[
        tuple[HandedOnHash, ...], Field(strict=False, max_length=MOST_HANDED_ON), FailFast()
    ] = ()
    """Where circuits are signed, hashes of what this party handed on in the tree, by node."""
    taken: Annotated[
        tuple[HandedOnHash, ...], Field(strict=False, max_length=MOST_HANDED_ON), FailFast()
    ] = ()
    """Hashes of what it was handed. All that was given was taken, or somebody lies."""


class SessionFinished(Body):
    """Active to each passive: keep your share of the first ``trees`` trees."""

    kind: ClassVar[str] = "session finished"

    trees: Count
    signature: Signature = b""
    """As in :class:`TreeStarted`."""


BODIES: tuple[type[Body], ...] = (
    TrainingOpen,
    SessionAccept,
    EngineSetup,
    TreeStarted,
    GradientBroadcast,
    HistogramRequest,
    QueryPiece,
    HistogramReply,
    NodeDeclined,
    CircuitPiece,
    BestSoFar,
    DirectionsQuery,
    SplitDecision,
    SplitOutcome,
    NodeAssignment,
    TreeFinished,
    TreeSaved,
    SessionFinished,
)
