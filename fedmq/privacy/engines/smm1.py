"""FedXGBoost-SMM-1: the splitting matrix is sent, less its part in a null space of the gradients.

arXiv 2106.10662, Algorithms 1 and 2. Per node the active party sends r orthonormal vectors Z with
``Z^T [g h] = 0``; the passive party picks r' of them and answers ``W = (I - Z' Z'^T) M``, where M
holds a column per split candidate, one for the rows that go left. Then ``W^T g = M^T g``.

The paper takes M to be hidden in W. It is not: see ``Smm1.known_leak``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import Gradients
from fedmq.errors import Refused
from fedmq.privacy.engine import (
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    Engine,
    Leakage,
    PassiveHalf,
    Query,
    SizeLimit,
    Traits,
)
from fedmq.privacy.masking import (
    RowNumbersPassive,
    ask_hidden,
    broadcast_row_numbers,
    check_vector_counts,
    hide_splits,
    matrix_limit,
)
from fedmq.privacy.plan import Compute, Plan, Reply, Values

__all__ = ["Smm1"]


@dataclass(frozen=True)
class Smm1(Engine):
    """``r``: vectors sent per node; ``r_used`` (the paper's r'): how many of them hide M."""

    r: int = 16
    r_used: int = 8

    name = "smm1"
    traits = Traits(exact=True, replays=True, light=True)
    leakage = Leakage(
        active="each passive party's split candidates row by row: rounding W gives them away",
        passive="who stands in which node; a few directions in which g and h have no part",
    )
    known_leak = (
        "the active party recovers 100 % of the splitting matrix by rounding W "
        "(91 % still with r_used = 1,500 on 3,000 rows, where guessing reaches 77 %)"
    )

    def __post_init__(self) -> None:
        check_vector_counts(self.r, self.r_used)

    def active(self, parallelism: int) -> ActiveHalf:
        return _Active(self.r, self.r_used)

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        r, r_used = public.get("r"), public.get("r_used")
        if set(public) != {"r", "r_used"} or not isinstance(r, int) or not isinstance(r_used, int):
            raise Refused("the active party's numbers of vectors are malformed")
        check_vector_counts(r, r_used)
        return _Passive(bins, r, r_used)


class _Active(ActiveHalf):
    def __init__(self, r: int, r_used: int) -> None:
        self._r = r
        self._r_used = r_used
        self._gradients: Gradients

    def open(self) -> Plan[Values]:
        return {"r": self._r, "r_used": self._r_used}
        yield

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._gradients = gradients
        return broadcast_row_numbers(gradients)

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return matrix_limit(rows, candidates)

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        return (yield from ask_hidden(self._gradients.pairs[asked.rows], self._r))


class _Passive(RowNumbersPassive):
    def __init__(self, bins: BinMatrix, r: int, r_used: int) -> None:
        super().__init__(bins)
        self._r = r
        self._r_used = r_used

    def largest_query(self, rows: int) -> SizeLimit:
        return matrix_limit(rows, self._r)

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        hidden = yield Compute(
            [
                hide_splits.bind(
                    query.pieces,
                    self.bins,
                    self.carrying(query.rows),
                    query.candidates,
                    query.order,
                    self._r,
                    self._r_used,
                    self.seed(query),
                )
                for query in queries
            ]
        )
        for query, pieces in zip(queries, hidden, strict=True):
            yield Reply(query.node, pieces)
