"""FedXGBoost-SMM-2: gradients are sent, less their part in a null space of the splitting matrix.

arXiv 2106.10662, Algorithms 3, 4 and 2. Per node the passive party hides its splitting matrix M
among random binary columns M' and numeric columns Y (Remark 6), and sends r orthonormal vectors Z
with ``Z^T [M M' Y] = 0``. The active party picks r' of them and answers
``W = (I - Z' Z'^T) [g h]`` with the node's G and H. Then ``M^T W = M^T [g h]``: the passive party
scores its own candidates, and returns the best score only.

The paper takes g to be hidden in W. It is not: see ``Smm2.known_leak``.

A node whose rows are too few for r such vectors, or whose null space leaves a row of g bare, is
refused by the active party. It then asks as SMM-1 does, or gives up (``when_exposed``).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, histograms
from fedmq.boosting.gradients import FixedPoint, Gradients
from fedmq.boosting.params import OLDEST, Arithmetic, TrainParams
from fedmq.boosting.splits import CandidateTable, best, split_gains
from fedmq.computation import Computation, computation
from fedmq.errors import ConfigError, MessageError, Refused
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
    SplitOffer,
    Traits,
)
from fedmq.privacy.masking import (
    Columns,
    OneHotSpan,
    RowNumbersPassive,
    ask_hidden,
    broadcast_row_numbers,
    check_vector_counts,
    hide_splits,
    is_orthonormal,
    joined_rows,
    leverages,
    matrix_limit,
    null_vectors,
    row_pieces,
)
from fedmq.privacy.plan import Compute, Exchange, Plan, Reply, Values

__all__ = ["Smm2", "hide_gradients", "pieces_off_splits", "vectors_off_splits"]

WhenExposed = Literal["smm1", "refuse"]

_LEAST_LEVERAGE = 1e-3  # of the mean; random vectors over rows that share bins stay far above
_REST_BITS = 16
_NUMBER_BYTES = 4  # of a candidate
_MOST_VECTORS = 8192  # of a node: the active party chooses how many columns a passive one makes
_PUBLIC = ("r", "r_used", "l1", "l2")
_TERMS = {"g_sum", "h_sum", "g_bits", "h_bits", "reg_lambda", "min_child_weight"}


@dataclass(frozen=True)
class Smm2(Engine):
    """``r``: vectors sent per node, ``r_used`` (r') of them hide g and h.

    ``l1`` random binary and ``l2`` random numeric columns stand beside M; a passive party uses at
    least its own configured numbers. ``when_exposed``: what the active party does about a node that
    cannot be hidden, ``smm1`` or ``refuse``.
    """

    r: int = 16
    r_used: int = 8
    l1: int = 8
    l2: int = 8
    when_exposed: WhenExposed = "smm1"

    name = "smm2"
    traits = Traits(exact=True, shows_best=True, replays=True, rounded=frozenset({"z"}), light=True)
    leakage = Leakage(
        active="a passive party's best gain per node, and the partition if it wins; its split "
        "candidates row by row in nodes that are asked as in smm1",
        passive="the labels: the sign of W gives them away; G and H of each node; who stands "
        "in which node",
    )
    known_leak = (
        "a passive party reads 100 % of the labels from the signs of W "
        "(93 % still with r_used = 1,500 on 3,000 rows, where guessing reaches 78 %)"
    )

    def __post_init__(self) -> None:
        check_vector_counts(self.r, self.r_used)
        if min(self.l1, self.l2) < 0:
            raise ConfigError(f"l1 = {self.l1}, l2 = {self.l2}: no fewer than 0 columns")
        if self.when_exposed not in get_args(WhenExposed):
            allowed = ", ".join(get_args(WhenExposed))
            raise ConfigError(f"when_exposed = {self.when_exposed!r}: use {allowed}")

    def check(self, params: TrainParams) -> None:
        """Refuse ``reg_alpha`` and ``max_delta_step``: passive parties score without them."""
        super().check(params)
        for name in ("reg_alpha", "max_delta_step"):
            if getattr(params, name):
                raise ConfigError(
                    f"engine smm2: {name}: a passive party scores its own candidates without it; "
                    "leave it at 0"
                )

    def active(self, parallelism: int) -> ActiveHalf:
        return _Active(self)

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        if set(public) != set(_PUBLIC) or any(not isinstance(n, int) for n in public.values()):
            raise Refused("the active party's numbers of vectors and columns are malformed")
        r, r_used, l1, l2 = (public[key] for key in _PUBLIC)
        if not 0 < r + max(l1, 0) + max(l2, 0) <= _MOST_VECTORS:
            raise Refused(f"smm2: r + l1 + l2 is more than {_MOST_VECTORS}, or nothing")
        asked = replace(self, r=r, r_used=r_used, l1=max(l1, self.l1), l2=max(l2, self.l2))
        return _Passive(asked, bins)


# The active party's half


@computation("HideGradients")
def hide_gradients(
    pieces: Sequence[Values], pairs: NDArray[np.int64], r: int, r_used: int, seed: int
) -> Columns | None:
    """``W = (I - Z' Z'^T) [g h]`` for ``r_used`` random vectors of the Z that came, or None.

    None: the vectors would hide too little. They are fewer than agreed, not orthonormal, or zero in
    a row. A row alone in its bin causes a zero; a curious party could also send one to read that
    row's g.
    """
    vectors = joined_rows("z", pieces, len(pairs))
    if vectors.shape[1] < r or not is_orthonormal(vectors):
        return None
    chosen = vectors[:, np.random.default_rng(seed).permutation(r)[:r_used]]
    taken = leverages(chosen)
    if taken.min() < _LEAST_LEVERAGE * taken.mean():
        return None
    gradients = pairs.astype(np.float64)
    return gradients - chosen @ (chosen.T @ gradients)


class _Active(ActiveHalf):
    def __init__(self, spec: Smm2) -> None:
        self._spec = spec
        self._gradients: Gradients

    def open(self) -> Plan[Values]:
        return {key: getattr(self._spec, key) for key in _PUBLIC}
        yield

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._gradients = gradients
        return broadcast_row_numbers(gradients)

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        vectors, hidden = (matrix_limit(rows, columns) for columns in (self._spec.r, candidates))
        return SizeLimit(
            max(vectors.pieces, hidden.pieces),
            max(vectors.bytes, hidden.bytes, _NUMBER_BYTES * candidates),
        )

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        spec, pairs = self._spec, self._gradients.pairs[asked.rows]
        vectors = yield Exchange()
        step = hide_gradients.bind(vectors, pairs, spec.r, spec.r_used, secrets.randbits(128))
        [hidden] = yield Compute([step])
        if hidden is not None:
            pieces = row_pieces("w", hidden)
            pieces[0] |= self._terms(pairs)
            return _checked_best((yield Exchange(pieces)))
        if spec.when_exposed == "refuse":
            raise Refused(
                f"smm2 cannot hide the gradients of node {asked.node} ({len(asked.rows)} rows) "
                f'from {peer}: fewer bins (max_bin) help, or when_exposed = "smm1"'
            )
        return (yield from ask_hidden(pairs, spec.r))

    def _terms(self, pairs: NDArray[np.int64]) -> Values:
        gradients = self._gradients
        g, h = pairs.sum(axis=0).tolist()
        return {
            "g_sum": g,
            "h_sum": h,
            "g_bits": gradients.scale.g_bits,
            "h_bits": gradients.scale.h_bits,
            "reg_lambda": gradients.params.reg_lambda,
            "min_child_weight": gradients.params.min_child_weight,
            "xgboost_arithmetic": gradients.params.xgboost_arithmetic,
        }


def _checked_best(pieces: Sequence[Values]) -> SplitOffer:
    gain, candidates = (pieces[0].get(key) for key in ("gain", "candidates"))
    if (
        not isinstance(gain, float)
        or not isinstance(candidates, np.ndarray)
        or candidates.dtype != np.uint32
        or np.isnan(gain)
        or (gain > -np.inf) != bool(len(candidates))
    ):
        raise MessageError("a best candidate that is not one")
    return SplitOffer(gain, candidates)


# The passive party's half


@computation("VectorsOffSplits")
def pieces_off_splits(
    bins: BinMatrix, rows: NDArray[np.int32], features: NDArray[np.int32], spec: Smm2, seed: int
) -> list[Values]:
    """The `vectors_off_splits` in pieces."""
    return row_pieces("z", vectors_off_splits(bins, rows, features, spec, seed))


def vectors_off_splits(
    bins: BinMatrix, rows: NDArray[np.int32], features: NDArray[np.int32], spec: Smm2, seed: int
) -> Columns:
    """r random orthonormal vectors Z with ``Z^T [M M' Y] = 0``: (rows, r), or (rows, 0) if fewer.

    They are orthogonal to the indicator of each bin, of which the columns of M are sums.
    """
    count, none = len(rows), np.empty((len(rows), 0))
    if count <= spec.r + spec.l1 + spec.l2:
        return none
    random = np.random.default_rng(seed)
    binary = random.integers(0, 2, (count, spec.l1)).astype(np.float64)
    numeric = random.standard_normal((count, spec.l2))
    codes = bins.codes[np.ix_(rows, features)]
    span = OneHotSpan(codes, np.concatenate((binary, numeric), axis=1))
    if span.largest_rank > count - spec.r:
        return none
    span.factorise()
    vectors = null_vectors(span, spec.r, random)
    accurate = np.abs(span.products(vectors)).max(initial=0) < 1e-10
    return vectors if accurate else none


@computation("_ScoreHidden")
def _score_hidden(
    pieces: Sequence[Values],
    bins: BinMatrix,
    rows: NDArray[np.int32],
    candidates: CandidateTable,
    order: NDArray[np.int64],
) -> Values:
    """The best of this party's candidates by XGBoost's gain, from W."""
    terms: Values = {key: pieces[0].get(key) for key in _TERMS}
    if any(not isinstance(value, int | float) for value in terms.values()):
        raise MessageError("the terms of a node's score are malformed")
    # The arithmetic comes from the query: the XGBoost installed here may differ from the active
    # party's, or from an auditor's.
    arithmetic = pieces[0].get("xgboost_arithmetic", OLDEST)
    if not isinstance(arithmetic, str) or arithmetic not in get_args(Arithmetic):
        raise MessageError("the terms of a node's score name no arithmetic that is known here")
    hidden = joined_rows("w", pieces, len(rows))
    if hidden.shape[1] != 2 or np.abs(hidden).max(initial=0) >= 2.0**62:
        raise MessageError("an answer W that is not one of g and h")
    left = _left_sums(hidden, bins, rows, candidates, order)
    total = np.array([terms["g_sum"], terms["h_sum"]], dtype=np.int64)
    scale = FixedPoint(int(terms["g_bits"]), int(terms["h_bits"]), 0)
    params = TrainParams(
        reg_lambda=float(terms["reg_lambda"]),
        min_child_weight=float(terms["min_child_weight"]),
        xgboost_arithmetic=cast("Arithmetic", arithmetic),
    )
    to_float = scale.to_float
    gains = split_gains(to_float(left), to_float(total - left), to_float(total), params)
    gain, tied = best(gains)
    return {"gain": float(gain), "candidates": tied.astype(np.uint32)}


def _left_sums(
    hidden: Columns,
    bins: BinMatrix,
    rows: NDArray[np.int32],
    candidates: CandidateTable,
    order: NDArray[np.int64],
) -> NDArray[np.int64]:
    """``M^T W`` on the grid: whole numbers and their rest are summed apart, both exactly."""
    whole = np.rint(hidden)
    rest = np.rint(np.ldexp(hidden - whole, _REST_BITS))
    sums = []
    for part in (whole, rest):
        pairs = np.zeros((bins.n_rows, 2), dtype=np.int64)
        pairs[rows] = part.astype(np.int64)
        [cells] = histograms(bins, pairs, [rows])
        sums.append(candidates.left_sums(cells)[order])
    rests = np.rint(np.ldexp(sums[1].astype(np.float64), -_REST_BITS))
    left: NDArray[np.int64] = sums[0] + rests.astype(np.int64)
    return left


class _Passive(RowNumbersPassive):
    queries_per_node = 2

    def __init__(self, spec: Smm2, bins: BinMatrix) -> None:
        super().__init__(bins)
        self._spec = spec

    def largest_query(self, rows: int) -> SizeLimit:
        return matrix_limit(rows, max(2, self._spec.r))  # W of g and h, or the vectors of smm1

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        answers = yield Compute([self._answer(query) for query in queries])
        for query, pieces in zip(queries, answers, strict=True):
            yield Reply(query.node, [pieces] if isinstance(pieces, dict) else pieces)

    def _answer(self, query: Query) -> Computation:
        spec, rows = self._spec, self.carrying(query.rows)
        if not query.pieces:
            features = np.unique(query.candidates.feature)
            return pieces_off_splits.bind(self.bins, rows, features, spec, self.seed(query))
        if "w" in query.pieces[0]:
            return _score_hidden.bind(query.pieces, self.bins, rows, query.candidates, query.order)
        if spec.when_exposed == "refuse":
            raise Refused(
                f"the active party asks about node {query.node} as in smm1, "
                'which when_exposed = "refuse" excludes'
            )
        return hide_splits.bind(
            query.pieces,
            self.bins,
            rows,
            query.candidates,
            query.order,
            spec.r,
            spec.r_used,
            self.seed(query),
        )
