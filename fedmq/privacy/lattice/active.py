"""The active party's half of the lattice engine: it asks about nodes in cipher, and reads sums.

Where sums are hidden it reads shares of them (`LatticeActiveShares`), which circuits compare.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.node_rows import masked
from fedmq.boosting.splits import ROOT, parent
from fedmq.errors import MessageError
from fedmq.privacy.engine import (
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    Directions,
    HiddenSums,
    Question,
    Rows,
    SizeLimit,
    Sums,
)
from fedmq.privacy.hidden_sums.shares import ActiveShares, Field, Shares
from fedmq.privacy.lattice.directions import ChooseRows
from fedmq.privacy.lattice.hint import JoinHints
from fedmq.privacy.lattice.parameters import SUM_BYTES, VERSION, Layout
from fedmq.privacy.lattice.query import (
    DecryptAnswer,
    EncryptNode,
    ReadShares,
    pieces_of_query,
    query_limit,
)
from fedmq.privacy.lattice.ring import PublicElements, shares_of
from fedmq.privacy.oblivious_transfer.base_transfers import (
    ELEMENT_BYTES,
    TRANSFERS,
    MakeOffer,
    OfferedSeeds,
)
from fedmq.privacy.oblivious_transfer.seeds import GrowSeeds
from fedmq.privacy.plan import PIECE_BYTES, Compute, Exchange, Plan, Values, single
from fedmq.privacy.random_stream import fresh_seed

__all__ = ["LatticeActive", "LatticeActiveShares"]

T = TypeVar("T")

_PIECES_AT_ONCE = 5
"""Pieces of a query that a computation makes: each computation costs the event loop some work, and
the other party waits for the first piece."""

_QUESTION_BYTES = 8_000_000
"""Bytes of the queries that are answered together: more of them need fewer messages and
computations, but delay scoring."""


@dataclass(frozen=True, slots=True, eq=False)
class _Peer:
    """A peer's data from before the first tree, ready for use.

    ``hints`` uint32 (candidates, limbs, N); ``transfer_seeds`` uint8 (32, 16, 16), None where
    directions are shown. The ``unsent`` pieces go before the first question about directions.
    """

    hints: NDArray[np.uint32]
    transfer_seeds: NDArray[np.uint8] | None
    unsent: list[Values]


class _NodeResult(ABC):
    """The result for a node's candidates, by the ``numbers`` of their hints, uint32 (C,)."""

    __slots__ = ()

    numbers: NDArray[np.uint32]

    @property
    @abstractmethod
    def answer(self) -> Answer:
        """The answer for the machine."""

    @abstractmethod
    def less(self, sibling: _NodeResult, peer: str) -> _NodeResult:
        """The other child's result: this parent's less that of ``sibling``."""

    def check_same(self, sibling: _NodeResult, peer: str) -> None:
        """Raise `MessageError` if the candidates differ."""
        if not np.array_equal(self.numbers, sibling.numbers):
            raise MessageError(f"{peer} answers for other candidates than in the node above")


@dataclass(frozen=True, slots=True, eq=False)
class _NodeSums(_NodeResult):
    """The left sums of a node: int64 (C, 2)."""

    numbers: NDArray[np.uint32]
    left: NDArray[np.int64]

    @property
    def answer(self) -> Sums:
        return Sums(self.left)

    def less(self, sibling: _NodeResult, peer: str) -> _NodeResult:
        assert isinstance(sibling, _NodeSums)
        self.check_same(sibling, peer)
        return _NodeSums(self.numbers, self.left - sibling.left)


@dataclass(frozen=True, slots=True, eq=False)
class _NodeShares(_NodeResult):
    """The active party's shares of a node's left sums: (C, 2)."""

    numbers: NDArray[np.uint32]
    shares: Shares
    field: Field

    @property
    def answer(self) -> HiddenSums:
        return HiddenSums(len(self.numbers))

    def less(self, sibling: _NodeResult, peer: str) -> _NodeResult:
        assert isinstance(sibling, _NodeShares)
        self.check_same(sibling, peer)
        return _NodeShares(self.numbers, self.field.less(self.shares, sibling.shares), self.field)


class LatticeActive(ActiveHalf):
    """See `fedmq.privacy.engines.lattice.Lattice` for the settings."""

    hidden: ClassVar[bool] = False
    """Whether sums stay shares."""

    def __init__(self, hint_bytes: int, oblivious: bool, parallelism: int) -> None:
        self._hint_bytes = hint_bytes
        self._oblivious = oblivious
        self._parallelism = parallelism
        self._public_seed = fresh_seed()
        self._transfer_seed = fresh_seed()
        self._person: NDArray[np.int32] | None = None
        self._all_rows: int
        self._training: NDArray[np.bool_]
        self._places: NDArray[np.int32] | None
        """Of rows among training rows; None where all are."""
        self._people: NDArray[np.int32] | None = None
        self._layout: Layout
        self._public: PublicElements
        self._peers: dict[str, _Peer] = {}
        self._pairs: NDArray[np.int64]
        self._subtracts = True
        self._known: dict[tuple[str, int], _NodeResult] = {}

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        outputs: int = 1,
    ) -> None:
        self._training = training
        self._places = None
        if not training.all():
            self._places = np.cumsum(training, dtype=np.int32) - np.int32(1)
        if self._person is None:
            self._all_rows, asked = len(training), int(np.count_nonzero(training))
        else:
            self._all_rows = int(self._person.max()) + 1
            learning, people = np.unique(self._person[training], return_inverse=True)
            self._people, asked = people.astype(np.int32), len(learning)
        self._layout = Layout(asked, value_bits=value_bits, hidden=self.hidden)

    def gather(self, person: NDArray[np.int32]) -> None:
        self._person = person

    def open(self) -> Plan[Values]:
        parts = yield Compute(shares_of(self._public_seed, self._layout, self._parallelism))
        self._public = PublicElements.joined(parts)
        public: Values = {
            "seed": np.frombuffer(self._public_seed, np.uint8),
            "hint_bytes": self._hint_bytes,
            "version": VERSION,
        }
        if self._oblivious:
            [public["offer"]] = yield Compute([MakeOffer(self._transfer_seed)])
        return public

    def setup(self, peer: str, pieces: Sequence[Values]) -> Plan[None]:
        [first, *hint_pieces] = pieces or [{}]
        candidates = first.get("candidates")
        if not isinstance(candidates, int):
            raise MessageError(f"{peer} does not say how many candidates it has")
        [hints] = yield Compute([JoinHints(hint_pieces, self._layout)])
        if len(hints) != candidates:
            raise MessageError(f"{peer} sent hints for {len(hints)} of {candidates} candidates")
        seeds, unsent = None, []
        if self._oblivious:
            [pairs] = yield Compute([OfferedSeeds(first.get("chosen"), self._transfer_seed)])
            [(seeds, sums)] = yield Compute([GrowSeeds(pairs, fresh_seed())])
            unsent.append({"sums": sums})
        self._peers[peer] = _Peer(hints, seeds, unsent)

    def largest_setup(self, candidates: int) -> SizeLimit:
        hint = self._layout.hint_bytes
        if candidates * hint > self._hint_bytes:
            raise MessageError(
                f"{candidates:,} candidates, whose hint of {candidates * hint:,} bytes is longer "
                f"than hint_bytes = {self._hint_bytes:,}"
            )
        hints = SizeLimit.of(candidates, hint, max(1, PIECE_BYTES // hint))
        transfers = TRANSFERS * ELEMENT_BYTES if self._oblivious else 0
        return SizeLimit(1 + hints.pieces, transfers + hints.bytes)

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return SizeLimit.of(candidates, SUM_BYTES, PIECE_BYTES // SUM_BYTES)

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        params = gradients.params
        self._subtracts = params.colsample_bylevel == params.colsample_bynode == 1
        self._pairs = masked(gradients.pairs, self._training)
        self._known.clear()
        return ()

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        raise AssertionError("nodes are asked about by the questions of `ask_level`")
        yield

    def ask_level(self, level: Sequence[AskedNode]) -> Sequence[Question]:
        """The questions ask about left siblings; a right one is the parent less its sibling.

        A query takes as many nodes as fit, and a question as many queries as 8 MB hold. If nodes
        draw their columns, each has its own query.
        """
        if not self._subtracts:
            return [_LatticeQuestion(self, [_Query([asked])]) for asked in level]
        by_node = {asked.node: asked for asked in level}
        rest = [node for node in by_node if node % 2 and node - 1 in by_node]
        asked = [asked for node, asked in by_node.items() if node not in rest]
        queries = [_Query(nodes) for nodes in _in_groups(asked, self._layout.nodes)]
        questions = []
        for together in _in_groups(queries, self._queries_together):
            left = [asked for query in together for asked in query.nodes]
            siblings = [by_node[asked.node + 1] for asked in left if asked.node + 1 in rest]
            questions.append(_LatticeQuestion(self, together, siblings))
        return questions

    @property
    def _queries_together(self) -> int:
        return max(1, _QUESTION_BYTES // query_limit(self._layout).bytes)

    @property
    def pieces_of_query(self) -> int:
        """The number of pieces of a query."""
        return pieces_of_query(self._layout)

    def encrypt(self, asked: Sequence[AskedNode], seed: bytes) -> list[Plan[Sequence[Values]]]:
        """The pieces of the query about nodes, under the secrets of ``seed``.

        Some pieces leave while the next ones are made.
        """
        # Arrays of a million rows that are the same need not be copied, nor shared with workers.
        places, pieces = self._places, range(self.pieces_of_query)
        rows = [node.rows if places is None else places[node.rows] for node in asked]
        return [
            single(
                EncryptNode(
                    self._pairs,
                    rows,
                    self._public,
                    self._layout,
                    seed,
                    pieces[first : first + _PIECES_AT_ONCE],
                    self._people,
                )
            )
            for first in pieces[::_PIECES_AT_ONCE]
        ]

    def decrypt(
        self, peer: str, answers: Sequence[Sequence[Values]], seeds: Sequence[bytes]
    ) -> Plan[list[list[_NodeResult]]]:
        """Read the answers of ``peer`` to the queries of ``seeds``, node by node for each."""
        step = DecryptAnswer(answers, self._peers[peer].hints, self._layout, seeds)
        [decrypted] = yield Compute([step])
        return [[_NodeSums(numbers, left) for left in sums] for numbers, sums in decrypted]

    def keep(self, peer: str, node: int, known: _NodeResult) -> Answer:
        """Keep the result of a node for its children."""
        self._known[peer, node] = known
        return known.answer

    def kept(self, peer: str, node: int) -> _NodeResult:
        """The kept result of a node."""
        return self._known[peer, node]

    def read_directions(self, peer: str, tree: int, node: int, rows: Rows) -> Plan[Directions]:
        seeds, unsent = self._peers[peer].transfer_seeds, self._peers[peer].unsent
        if seeds is None or node == ROOT:  # all rows stand at the root
            shown: Directions = yield Exchange()
            return shown
        # Questions start here in the order of nodes, and leave in the same order.
        before = unsent.copy()
        unsent.clear()
        if self._person is not None:
            rows = np.unique(self._person[rows])
        step = ChooseRows(self._all_rows, f"{tree} {node}", self._public_seed, rows, seeds)
        [(pieces, pads)] = yield Compute([step])
        hidden = yield Exchange([*before, *pieces])
        left: Directions = hidden ^ pads
        return left


@dataclass(frozen=True, slots=True, eq=False)
class _Query:
    """A query about ``nodes``, encrypted together; ``seed`` encrypts nothing else."""

    nodes: Sequence[AskedNode]
    seed: bytes = field(default_factory=fresh_seed, repr=False)

    @property
    def node(self) -> int:
        """The node under which the query travels."""
        return self.nodes[0].node


class _LatticeQuestion(Question):
    """``queries``, encrypted once for all peers; the results of ``siblings`` derive from them."""

    def __init__(
        self,
        half: LatticeActive,
        queries: Sequence[_Query],
        siblings: Sequence[AskedNode] = (),
    ) -> None:
        asked = [asked for query in queries for asked in query.nodes]
        super().__init__(half, [*asked, *siblings])
        self._lattice = half
        self._queries = queries
        self._siblings = siblings

    def parts(self) -> Mapping[int, Sequence[Plan[Sequence[Values]]]]:
        return {
            query.node: self._lattice.encrypt(query.nodes, query.seed) for query in self._queries
        }

    def ask(self, peer: str) -> Plan[Sequence[Answer]]:
        half = self._lattice
        pieces = {query.node: half.pieces_of_query for query in self._queries}
        replies = yield Exchange(later=pieces)
        decrypted = yield from half.decrypt(
            peer,
            [replies[query.node] for query in self._queries],
            [query.seed for query in self._queries],
        )
        answers: list[Answer] = [
            half.keep(peer, asked.node, own)
            for query, sums in zip(self._queries, decrypted, strict=True)
            for asked, own in zip(query.nodes, sums, strict=False)  # nodes may not fill a query
        ]
        for sibling in self._siblings:
            above, beside = parent(sibling.node), sibling.node - 1
            rest = half.kept(peer, above).less(half.kept(peer, beside), peer)
            answers.append(half.keep(peer, sibling.node, rest))
        return answers


class LatticeActiveShares(LatticeActive, ActiveShares):
    """The half that reads its shares of sums."""

    hidden = True

    @property
    def public_seed(self) -> bytes:
        return self._public_seed

    @property
    def field(self) -> Field:
        return Field(self._layout.field_bits)

    def decrypt(
        self, peer: str, answers: Sequence[Sequence[Values]], seeds: Sequence[bytes]
    ) -> Plan[list[list[_NodeResult]]]:
        step = DecryptAnswer(answers, self._peers[peer].hints, self._layout, seeds)
        [read] = yield Compute([ReadShares(step)])
        return [[_NodeShares(numbers, shares, self.field)] for numbers, shares in read]

    def shares(self, peer: str, node: int) -> Shares:
        known = self.kept(peer, node)
        assert isinstance(known, _NodeShares)
        return known.shares


def _in_groups(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """``items`` in their order, in groups of at ``most`` this size."""
    return [items[start : start + most] for start in range(0, len(items), most)]
