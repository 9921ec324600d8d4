"""The computations of both halves one after the other, over rings of any degree."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.splits import CandidateTable
from fedmq.privacy.lattice.answer import AnswerQuery, JointBins, SumPieces
from fedmq.privacy.lattice.hint import JoinHints, MakeHints, TurnMasks
from fedmq.privacy.lattice.parameters import Layout
from fedmq.privacy.lattice.query import DecryptAnswer, EncryptNode
from fedmq.privacy.lattice.ring import PublicElements, shares_of

PUBLIC_SEED = bytes(range(32))
HINT_SEED = b"h" * 32
QUERY_SEED = b"q" * 32


def integers(limbs: np.ndarray) -> list[int]:
    """Limbs (6, n) as numbers modulo 2^192."""
    columns = np.asarray(limbs).T.tolist()
    return [sum(value << (32 * limb) for limb, value in enumerate(row)) % 2**192 for row in columns]


def negacyclic(a: list[int], b: list[int]) -> list[int]:
    """The product in Z[X]/(X^N + 1) as it is defined, modulo 2^192."""
    degree = len(a)
    product = [0] * degree
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            sign = 1 if i + j < degree else -1
            product[(i + j) % degree] += sign * x * y
    return [value % 2**192 for value in product]


def binned(rows: int, seed: int = 0) -> BinMatrix:
    """Three features: one of four bins, one of a single bin, one of missing values beside bins."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, 3)).astype(np.float32).round(1)
    values[:, 1] = 7
    values[random.random(rows) < 0.3, 2] = np.nan
    return BinMatrix.of(values, Cuts.of(values, 4))


class Computed:
    """Everything that one session of both halves holds, over the rows of ``bins``."""

    def __init__(
        self, bins: BinMatrix, degree: int, value_bits: int = 40, *, hidden: bool = False
    ) -> None:
        self.bins = bins
        self.layout = Layout(bins.n_rows, degree, value_bits, hidden)
        self.public = PublicElements.joined(
            [share.run() for share in shares_of(PUBLIC_SEED, self.layout, 2)]
        )
        self.candidates = CandidateTable.of(bins.cuts)
        self.joint = JointBins.of(bins, np.arange(bins.cuts.n_features))
        pieces, counts = [], []
        for feature in range(bins.cuts.n_features):
            own = np.flatnonzero(self.candidates.feature == feature)
            counts.append(len(own))
            hints = MakeHints(
                bins.codes[:, feature],
                int(bins.cuts.n_bins[feature]) + 1,
                self.candidates.bin[own],
                self.candidates.default_left[own],
                self.public,
                self.layout,
                feature,
                HINT_SEED,
            ).run()
            pieces.append({"hint": hints})
        self.masks = TurnMasks(counts, degree, HINT_SEED).run()
        self.hints = JoinHints(pieces, self.layout).run()

    def query(self, pairs: np.ndarray, *rows: np.ndarray) -> list[dict[str, Any]]:
        return EncryptNode(pairs, rows, self.public, self.layout, QUERY_SEED).run()

    def answer(self, query: list[dict[str, Any]], seed: bytes = b"a" * 32) -> np.ndarray:
        return self.answering(query, seed).limbs()

    def answering(
        self,
        query: list[dict[str, Any]],
        seed: bytes = b"a" * 32,
        purpose: str = "0 1 0",
        begun: tuple[int, ...] = (),
    ) -> AnswerQuery:
        """Of a query whose pieces were summed before in parts that end at ``begun``."""
        every = np.arange(len(self.candidates))
        ends = [0, *begun]
        parts = [self.summed(query[start:stop], start, seed) for start, stop in pairwise(ends)]
        return AnswerQuery(
            self.summed(query[ends[-1] :], ends[-1], seed),
            [part.run() for part in parts],
            self.candidates,
            every,
            every,
            self.layout,
            purpose,
            seed,
        )

    def summed(
        self, pieces: list[dict[str, Any]], first: int, seed: bytes = b"a" * 32
    ) -> SumPieces:
        return SumPieces(pieces, first, self.joint, self.masks, self.layout, seed)

    def decrypt(self, answer: np.ndarray) -> np.ndarray:
        pieces = [{"numbers": np.arange(len(answer), dtype=np.uint32), "sums": answer}]
        [(_, left)] = DecryptAnswer([pieces], self.hints, self.layout, [QUERY_SEED]).run()
        return left

    def sums(self, pairs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self.decrypt(self.answer(self.query(pairs, rows)))[0]

    def expected(self, pairs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self.candidates.left_sums(histograms(self.bins, pairs, [rows]))[0]


def drawn_pairs(rows: int, seed: int = 0, value_bits: int = 40) -> np.ndarray:
    """As large as gradients get, of both signs."""
    largest = 2**value_bits
    return np.random.default_rng(seed).integers(-largest, largest + 1, (rows, 2))
