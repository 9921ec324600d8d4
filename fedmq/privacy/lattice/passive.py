"""The feature holder's half of the lattice engine: it adds up what it cannot read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.candidates import CandidateTable
from fedmq.errors import MessageError, Refused
from fedmq.privacy.engine import BroadcastPiece, PassiveHalf, Query
from fedmq.privacy.lattice.answer import AnswerQuery
from fedmq.privacy.lattice.hint import MakeHints, TurnMasks
from fedmq.privacy.lattice.layout import LIMBS, Layout
from fedmq.privacy.lattice.public_elements import PublicElements, shares_of
from fedmq.privacy.lattice.sampling import Stream, fresh_seed
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan, Reply, Values

__all__ = ["LatticePassive"]

_SUM_BYTES = 4 * LIMBS + 4


class LatticePassive(PassiveHalf):
    """See `fedmq.privacy.engines.lattice.Lattice` for the settings.

    Raises:
        Refused: the hint would take more than ``hint_bytes``.
        DataError: there are more rows than are summed exactly.
    """

    def __init__(
        self, public_seed: bytes, bins: BinMatrix, hint_bytes: int, parallelism: int
    ) -> None:
        self._layout = Layout(bins.n_rows)
        self._bins = bins
        self._candidates = CandidateTable.of(bins.cuts)
        count = len(self._candidates)
        if count * self._layout.hint_bytes > hint_bytes:
            raise Refused(
                f"engine 'lattice': {count:,} candidates need a hint of "
                f"{count * self._layout.hint_bytes:,} bytes, and hint_bytes = {hint_bytes:,}; "
                "use engine 'ou', or fewer bins or columns"
            )
        self._public_seed = public_seed
        self._parallelism = parallelism
        self._seed = fresh_seed()
        # The numbers under which candidates are known say nothing about them.
        self._numbers = np.argsort(Stream(self._seed, "fedmq lattice numbers").words(count))
        self._masks: NDArray[np.int8]
        self._answered = 0

    def setup(self) -> Plan[Sequence[Values]]:
        layout, cuts, table = self._layout, self._bins.cuts, self._candidates
        parts = yield Compute(shares_of(self._public_seed, layout, self._parallelism))
        public = PublicElements.joined(parts)
        held = [np.flatnonzero(table.feature == feature) for feature in range(cuts.n_features)]
        made = yield Compute(
            [
                MakeHints(
                    self._bins.codes[:, feature],
                    int(cuts.n_bins[feature]) + 1,
                    table.bin[own],
                    table.default_left[own],
                    public,
                    layout,
                    feature,
                    self._seed,
                )
                for feature, own in enumerate(held)
            ]
        )
        counts = tuple(map(len, held))
        [self._masks] = yield Compute([TurnMasks(counts, layout.degree, self._seed)])
        pieces: list[Values] = [{"rows": layout.rows, "candidates": len(table)}]
        hints = [hint for of_feature in made for hint in of_feature]
        in_numbers = np.argsort(self._numbers)
        step = max(1, PIECE_BYTES // layout.hint_bytes)
        for start in range(0, len(hints), step):
            shown = in_numbers[start : start + step].tolist()
            pieces.append({"hint": np.stack([hints[place] for place in shown])})
        return pieces

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        raise MessageError("engine 'lattice' broadcasts no gradients")
        yield

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        self._answered += sum(len(query.order) for query in queries)
        if self._answered > self._layout.most_answers:
            raise Refused(
                f"engine 'lattice': {self._answered:,} sums have been asked for, and more than "
                f"{self._layout.most_answers:,} would tell of single rows; train anew with fewer "
                "trees"
            )
        places = [self._places(query.candidates) for query in queries]
        answers = yield Compute(
            [
                AnswerQuery(
                    query.pieces,
                    self._bins,
                    query.candidates,
                    query.order,
                    own,
                    self._masks,
                    self._layout,
                    fresh_seed(),
                )
                for query, own in zip(queries, places, strict=True)
            ]
        )
        step = PIECE_BYTES // _SUM_BYTES
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

    def _places(self, candidates: CandidateTable) -> NDArray[np.intp]:
        """Where a tree's candidates stand among all."""
        return np.flatnonzero(np.isin(self._candidates.feature, candidates.feature))

    def forget_tree(self) -> None:
        pass
