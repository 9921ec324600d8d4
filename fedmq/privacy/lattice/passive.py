"""The passive party's half of the lattice engine: it adds up numbers it cannot read.

Where sums are hidden it keeps a share of each (`LatticePassiveShares`), which circuits compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS
from fedmq.boosting.splits import ROOT, CandidateTable, parent, sibling
from fedmq.errors import MessageError, Refused
from fedmq.privacy.engine import BroadcastPiece, Directions, PassiveHalf, Query, SizeLimit
from fedmq.privacy.hidden_sums.shares import Field, PassiveShares, Shares
from fedmq.privacy.lattice.answer import (
    AnswerQueries,
    AnswerQuery,
    JointBins,
    MaskSums,
    PartSums,
    SumPieces,
)
from fedmq.privacy.lattice.directions import HideDirections, choice_limit
from fedmq.privacy.lattice.hint import MakeHints, TurnMasks
from fedmq.privacy.lattice.parameters import SUM_BYTES, Layout
from fedmq.privacy.lattice.query import pieces_of_query, query_limit
from fedmq.privacy.lattice.ring import PublicElements, shares_of
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS, ChooseSeeds
from fedmq.privacy.oblivious_transfer.seeds import SUMS_BYTES, PunctureSeeds
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan, Reply, Values
from fedmq.privacy.random_stream import Stream, fresh_seed

__all__ = ["LatticePassive", "LatticePassiveShares"]

_PIECES_AT_ONCE = 3
_WORTH_SHARING = 1 << 15  # rows: sums of fewer take less time than another worker's answer


@dataclass(slots=True)
class _BegunQuery:
    """A query that still misses pieces.

    ``taken`` pieces are summed or under way; ``sums`` by the first piece of each part.
    """

    taken: int = 0
    waiting: list[Values] = field(default_factory=list)
    sums: list[tuple[int, PartSums]] = field(default_factory=list)


class LatticePassive(PassiveHalf):
    """See `fedmq.privacy.engines.lattice.Lattice` for the settings.

    ``offer`` uint8 (2, 256) begins oblivious transfers; None where directions are shown.
    """

    hidden: ClassVar[bool] = False
    """Whether sums stay shares."""

    def __init__(
        self,
        public_seed: bytes,
        offer: NDArray[np.uint8] | None,
        bins: BinMatrix,
        hint_bytes: int,
        parallelism: int,
    ) -> None:
        self._public_seed = public_seed
        self._offer = offer
        self._bins = bins
        self._hint_bytes = hint_bytes
        self._parallelism = parallelism
        self._seed: bytes
        self._candidates = CandidateTable.of(bins.cuts)
        self._numbers: NDArray[np.intp]
        self._choices: NDArray[np.bool_]
        self._choice_seeds: NDArray[np.uint8]
        self._sums: object = None
        self._transfer_seeds: NDArray[np.uint8] | None = None
        self._layout: Layout
        self._features: NDArray[np.integer]
        """The features of the growing tree."""
        self._joint: JointBins | None = None
        self._begun: dict[tuple[int, int, int], _BegunQuery] = {}
        """Unfinished queries by tree, node and round."""
        self._all_rows = 0
        self._masks: NDArray[np.int8]
        self._answered = 0

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        self._seed = secret or fresh_seed()
        # The numbers of candidates are random, and disclose nothing about them.
        words = Stream(self._seed, "fedmq lattice numbers").words(len(self._candidates))
        self._numbers = np.argsort(words)
        choices = Stream(self._seed, "fedmq lattice transfer choices").words(TRANSFERS)
        self._choices = (choices & np.uint64(1)).astype(np.bool_)
        self._all_rows = len(training)
        self._layout = Layout(
            int(np.count_nonzero(training)), value_bits=value_bits, hidden=self.hidden
        )
        self.nodes_per_query = self._layout.nodes
        self._bins = replace(self._bins, codes=self._bins.codes[training].copy(order="F"))
        self._features = np.unique(self._candidates.feature)
        self._joint = None
        length = len(self._candidates) * self._layout.hint_bytes
        if length > self._hint_bytes:
            raise Refused(
                f"engine 'lattice': {len(self._candidates):,} candidates need a hint of "
                f"{length:,} bytes, and hint_bytes = {self._hint_bytes:,}; use engine 'ou', "
                "or fewer bins or columns"
            )

    def setup(self) -> Plan[Sequence[Values]]:
        layout, table = self._layout, self._candidates
        first: Values = {"candidates": len(table)}
        if self._offer is not None:
            step = ChooseSeeds(self._offer, self._choices, self._seed)
            [(first["chosen"], self._choice_seeds)] = yield Compute([step])
        parts = yield Compute(shares_of(self._public_seed, layout, self._parallelism))
        public = PublicElements.joined(parts)
        ends = np.searchsorted(table.feature, np.arange(self._bins.cuts.n_features + 1))
        own = [np.arange(*ends[feature : feature + 2]) for feature in range(len(ends) - 1)]
        made = yield Compute(
            [self._hints_of(feature, places, public) for feature, places in enumerate(own)]
        )
        [self._masks] = yield Compute([TurnMasks(tuple(map(len, own)), layout.degree, self._seed)])
        hints = [hint for of_feature in made for hint in of_feature]
        by_number = [hints[place] for place in np.argsort(self._numbers)]
        step_size = max(1, PIECE_BYTES // layout.hint_bytes)
        return [
            first,
            *(
                {"hint": np.stack(by_number[start : start + step_size])}
                for start in range(0, len(by_number), step_size)
            ),
        ]

    def _hints_of(
        self, feature: int, places: NDArray[np.intp], public: PublicElements
    ) -> MakeHints:
        return MakeHints(
            self._bins.codes[:, feature],
            int(self._bins.cuts.n_bins[feature]) + 1,
            self._candidates.bin[places],
            self._candidates.default_left[places],
            public,
            self._layout,
            feature,
            self._seed,
        )

    def start_tree(self, tree: int, candidates: CandidateTable) -> None:
        features = np.unique(candidates.feature)
        if not np.array_equal(features, self._features):
            self._features, self._joint = features, None

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        raise MessageError("engine 'lattice' broadcasts no gradients")
        yield

    def largest_query(self, rows: int) -> SizeLimit:
        return query_limit(self._layout)

    def largest_directions_query(self) -> SizeLimit:
        if self._offer is None:
            return SizeLimit(0, 0)
        choice = choice_limit(self._all_rows)
        return SizeLimit(1 + choice.pieces, SUMS_BYTES + choice.bytes)

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        self._answered += sum(len(query.order) for query in queries)
        if not self.hidden and self._answered > self._layout.most_answers:
            raise Refused(
                f"engine 'lattice': {self._answered:,} sums have been asked for, and more than "
                f"{self._layout.most_answers:,} would tell of single rows; train anew with fewer "
                "trees"
            )
        places = [self._places(query.candidates) for query in queries]
        steps = [self._answering(query, own) for query, own in zip(queries, places, strict=True)]
        nodes = [query.node for query in queries]
        answers = yield from self.answered(list(zip(nodes, steps, strict=True)))
        step = PIECE_BYTES // SUM_BYTES
        for query, own, sums in zip(queries, places, answers, strict=True):
            numbers = self._numbers[own[query.order]].astype(np.uint32)
            yield Reply(
                query.node,
                [
                    {
                        "numbers": numbers[start : start + step],
                        "sums": sums[start : start + step],
                    }
                    for start in range(0, max(1, len(sums)), step)
                ],
            )

    def answered(self, steps: Sequence[tuple[int, AnswerQuery]]) -> Plan[list[NDArray[np.uint32]]]:
        """The limbs of answers about nodes."""
        queries = [step for _, step in steps]
        cores = self._parallelism if self._layout.rows >= _WORTH_SHARING else 1
        size = max(1, -(-len(queries) // cores))
        parts = range(0, len(queries), size)
        found = yield Compute([AnswerQueries(queries[start : start + size]) for start in parts])
        return [answer for answers in found for answer in answers]

    def take_piece(
        self, tree: int, node: int, number: int, piece: Values, *, alone: bool = True
    ) -> Plan[None] | None:
        begun = self._begun.setdefault((tree, node, number), _BegunQuery())
        begun.waiting.append(piece)
        if begun.taken + len(begun.waiting) == pieces_of_query(self._layout):
            waits = alone  # the last pieces are summed with the query
        else:
            waits = len(begun.waiting) < _PIECES_AT_ONCE
        if waits:
            return None
        pieces, begun.waiting = begun.waiting, []
        step = self._sum_pieces(pieces, begun.taken)
        begun.taken += len(pieces)
        return self._sum_part(begun, step)

    def _sum_part(self, begun: _BegunQuery, step: SumPieces) -> Plan[None]:
        [sums] = yield Compute([step])
        begun.sums.append((step.first, sums))

    def _sum_pieces(self, pieces: Sequence[Values], first: int) -> SumPieces:
        if self._joint is None:
            self._joint = JointBins.of(self._bins, self._features)
        return SumPieces(pieces, first, self._joint, self._masks, self._layout, self._seed)

    def _answering(self, query: Query, places: NDArray[np.intp]) -> AnswerQuery:
        begun = self._begun.pop((query.tree, query.node, query.round), _BegunQuery())
        rest = query.pieces[begun.taken :]
        return AnswerQuery(
            self._sum_pieces(rest, begun.taken) if rest else None,
            [sums for _, sums in sorted(begun.sums, key=itemgetter(0))],
            query.candidates,
            query.order,
            places,
            self._layout,
            f"{query.tree} {query.node} {query.round}",
            self._seed,
        )

    def _places(self, candidates: CandidateTable) -> NDArray[np.intp]:
        """Where a tree's candidates stand among all."""
        if len(candidates) == len(self._candidates):
            return np.arange(len(candidates))
        return np.flatnonzero(np.isin(self._candidates.feature, candidates.feature))

    def show_directions(
        self, tree: int, node: int, left: Directions, pieces: Sequence[Values]
    ) -> Plan[Directions]:
        if node == ROOT and pieces:
            raise MessageError("a choice of rows at the root, where all of them stand")
        if self._offer is None or node == ROOT:
            return left
        if self._sums is None and pieces:
            first, *pieces = pieces
            self._sums = first.get("sums")
        if self._transfer_seeds is None:
            puncture = PunctureSeeds(self._sums, self._choice_seeds, self._choices)
            [self._transfer_seeds] = yield Compute([puncture])
        step = HideDirections(
            pieces,
            f"{tree} {node}",
            self._public_seed,
            left,
            self._transfer_seeds,
            ~self._choices,
        )
        [hidden] = yield Compute([step])
        shown: Directions = hidden
        return shown

    def forget_tree(self) -> None:
        self._begun.clear()


class LatticePassiveShares(LatticePassive, PassiveShares):
    """The half that keeps a share of each sum, of the nodes of the growing tree."""

    hidden = True

    def __init__(
        self,
        public_seed: bytes,
        offer: NDArray[np.uint8] | None,
        bins: BinMatrix,
        hint_bytes: int,
        parallelism: int,
    ) -> None:
        super().__init__(public_seed, offer, bins, hint_bytes, parallelism)
        self._shares: dict[int, Shares] = {}

    @property
    def public_seed(self) -> bytes:
        return self._public_seed

    @property
    def field(self) -> Field:
        return Field(self._layout.field_bits)

    def start_tree(self, tree: int, candidates: CandidateTable) -> None:
        super().start_tree(tree, candidates)
        self._shares.clear()

    def answered(self, steps: Sequence[tuple[int, AnswerQuery]]) -> Plan[list[NDArray[np.uint32]]]:
        found = yield Compute([MaskSums(step) for _, step in steps])
        for (node, _), (_, kept) in zip(steps, found, strict=True):
            self._shares[node] = kept
        return [sums for sums, _ in found]

    def shares(self, node: int) -> Shares:
        """The shares in a node that was asked about, or whose sibling was."""
        if node not in self._shares and node > ROOT:
            above, beside = self._shares.get(parent(node)), self._shares.get(sibling(node))
            if above is None or beside is None or len(above) != len(beside):
                raise MessageError(f"node {node}, about which nothing was asked")
            self._shares[node] = self.field.less(above, beside)
        if node not in self._shares:
            raise MessageError(f"node {node}, about which nothing was asked")
        return self._shares[node]

    def forget_tree(self) -> None:
        super().forget_tree()
        self._shares.clear()
