"""With hidden sums an active party receives nothing that names rows, or says where they stand.

All that it receives is taken for sums. What remains are the winners, and directions of their
splits, which it asks for afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.boosting.splits import CandidateTable
from fedmq.leakage.attacks.bins_from_sums import (
    Equations,
    NodeSums,
    named_rows,
    shares_left,
)
from fedmq.privacy.hidden_sums.shares import Field
from fedmq.privacy.hidden_sums.steps import Learned
from fedmq.privacy.masking import splitting_matrix
from tests.privacy.hidden_sums.copied_level import CopiedLevels
from tests.privacy.hidden_sums.drawn_level import LOGISTIC, DrawnLevel, gradients
from tests.privacy.hidden_sums.driven import Parcel, size
from tests.privacy.hidden_sums.level_pair import LevelPair, Told
from tests.privacy.hidden_sums.simulator import made_up

ROWS = 80
TREES = 3
READINGS = 6
PARAMS = TrainParams(min_child_weight=0.0, xgboost_arithmetic=OLDEST)
VALUES = np.random.default_rng(4).normal(size=(ROWS, 2)).astype(np.float32)
BINS = BinMatrix.of(VALUES, Cuts.of(VALUES, 12))
CANDIDATES = CandidateTable.of(BINS.cuts)
COUNT = len(CANDIDATES)
COLUMNS = [np.flatnonzero(CANDIDATES.feature == feature) for feature in range(2)]
NEIGHBOURS = np.array([(right, left) for right in range(COUNT) for left in range(right)])
GOES_LEFT = (
    splitting_matrix(BINS, np.arange(ROWS, dtype=np.int32), CANDIDATES, np.arange(COUNT)) == 1
)

Sums = Sequence[np.ndarray]
"""int64 (nodes, candidates, 2) of each level."""


@dataclass(frozen=True, eq=False)
class SeenLevel:
    """A level of a tree, and what the active party is told of it."""

    rows: list[np.ndarray]
    pairs: np.ndarray
    level: DrawnLevel
    told: Told

    @property
    def received(self) -> list[np.ndarray]:
        """All words: its shares, what was transferred, labels and tables."""
        parcels = [joined(parcel) for parcel in self.told.received]
        whole = [part[: len(part) // 8 * 8].view(np.uint64) for part in parcels]
        return [self.told.shares.reshape(-1), *whole]


def joined(parcel: Parcel) -> np.ndarray:
    """The bytes of all pieces."""
    return np.concatenate([piece["bytes"] for piece in parcel])


@cache
def seen(copies: int = 1) -> tuple[SeenLevel, ...]:
    """Trees of depth 3 whose nodes are parted at random, half of them won by the passive party.

    Of so many ``copies`` of circuits.
    """
    random = np.random.default_rng(5)
    session = LevelPair() if copies == 1 else CopiedLevels(copies)
    found = []
    for tree in range(TREES):
        floats = gradients(random, ROWS, LOGISTIC)
        scale = FixedPoint.of(floats)
        pairs = scale.encode(floats)
        field = Field(scale.value_bits + ROWS.bit_length() + 2)
        place = np.zeros(ROWS, np.intp)
        for depth in range(3):
            rows = [np.flatnonzero(place == node).astype(np.int32) for node in range(2**depth)]
            left = CANDIDATES.left_sums(histograms(BINS, pairs, rows))
            totals = np.stack([pairs[held].sum(axis=0) for held in rows])
            held = tuple(pairs[of_node] for of_node in rows)
            level = DrawnLevel(left, totals, scale, PARAMS, field, held)
            told = session.run(level, to_beat(rows), bytes([tree + 1, depth]) * 16)
            found.append(SeenLevel(rows, pairs, level, told))
            place = 2 * place + random.integers(0, 2, ROWS)
    return tuple(found)


def to_beat(rows: Sequence[np.ndarray]) -> np.ndarray:
    """The active party's best gains: nothing, and more than there is, by turns."""
    return np.where(np.arange(len(rows)) % 2, 1e6, 0).astype(np.float32)


def true_sums() -> Sums:
    return [level.level.left for level in seen()]


def readings(copies: int = 1) -> list[Sums]:
    """What was received, read as sums: its beginning, its end, and stretches between."""
    found: list[Sums] = []
    for reading in range(READINGS):
        sums = []
        for level in seen(copies):
            shape = level.level.left.shape
            words = np.concatenate(level.received)
            start = (len(words) - level.level.left.size) * reading // (READINGS - 1)
            sums.append(words[start : start + level.level.left.size].reshape(shape).view(np.int64))
        found.append(sums)
    return found


def nodes_of(sums: Sums) -> list[NodeSums]:
    return [
        NodeSums(rows, level.pairs[rows], left)
        for level, of_level in zip(seen(), sums, strict=True)
        for rows, left in zip(level.rows, of_level, strict=True)
    ]


def claims(sums: Sums) -> int:
    return sum(
        len(claim.pairs) for node in nodes_of(sums) for claim in named_rows(node, NEIGHBOURS)
    )


def bits_told(sums: Sums) -> float:
    """How much better than by guessing it is known who goes left of which candidate."""
    shares = GOES_LEFT.mean(axis=0)
    nodes = nodes_of(sums)
    equations = Equations.of(ROWS, nodes, [np.ones(COUNT, np.bool_)] * len(nodes))
    alone = shares_left(equations, np.tile(shares, (ROWS, 1)))
    guess = shares_left(equations, alone, COLUMNS) > 0.5
    return float((guess == GOES_LEFT).mean() - np.maximum(shares, 1 - shares).mean())


def correlation(sums: Sums) -> float:
    """The largest of any bit and the true sums of g, or of h, over all candidates and nodes.

    Bits that are nearly always the same are left out: a few of the largest sums decide theirs.
    """
    found = []
    for channel in range(2):
        wanted, words = (
            np.concatenate([part[..., channel].ravel() for part in parts])
            for parts in (true_sums(), sums)
        )
        bits = words[:, np.newaxis] >> np.arange(64) & 1
        varying = bits[:, np.abs(bits.mean(axis=0) - 0.5) < 0.4]
        found.append(np.abs(np.corrcoef(varying.T, wanted)[-1, :-1]).max())
    return float(max(found))


def of_their_size(sums: Sums) -> Sums:
    """The same between 0 and what a node has, as sums are."""
    return [
        (level.level.totals[:, np.newaxis] * (words.view(np.uint64) / 2.0**64)).astype(np.int64)
        for level, words in zip(seen(), sums, strict=True)
    ]


@pytest.mark.long
def test_sums_that_are_shown_name_rows_and_tell_bits() -> None:
    assert claims(true_sums()) > 100
    assert bits_told(true_sums()) > 0.05


def test_nothing_that_is_received_names_a_row() -> None:
    assert [claims(sums) for sums in readings()] == [0] * READINGS


def test_nothing_that_is_received_tells_bits_beyond_guessing() -> None:
    for sums in readings():
        assert bits_told(of_their_size(sums)) <= 0


def test_no_bit_that_is_received_goes_with_sums() -> None:
    """True sums are 16 standard errors from chance; of 768 bits by chance one in 10^6 runs is 6."""
    assert correlation(true_sums()) > 0.5
    assert max(map(correlation, readings())) < 6 / np.sqrt(sum(map(np.size, true_sums())) / 2)


@pytest.mark.long
def test_no_bit_that_comes_with_copies_goes_with_sums() -> None:
    """Corrections of shares, the XOR of all copies' parcels, hashes and signatures."""
    found = max(map(correlation, readings(copies=2)))
    assert found < 6 / np.sqrt(sum(map(np.size, true_sums())) / 2)


def test_who_won_is_told() -> None:
    for level in seen():
        assert level.told.seen_won == level.level.winners(to_beat(level.rows))[0]


@pytest.mark.parametrize(
    ("arithmetic", "far"), [(OLDEST, False), (OLDEST, True), ("3.4", False)], ids=str
)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_who_knows_the_winners_alone_makes_up_what_nobody_tells_from_it(
    depth: int, arithmetic: str, far: bool
) -> None:
    level = seen()[depth]
    drawn, told = level.level, level.told
    if arithmetic != OLDEST or far:
        params = PARAMS.model_copy(update={"xgboost_arithmetic": arithmetic})
        drawn = replace(drawn, params=params, far=far)
        told = LevelPair().run(drawn, to_beat(level.rows))
    sizes = list(map(size, told.received))
    session = LevelPair()
    evaluator, _ = session.halves(drawn, to_beat(level.rows), b"other" * 6)
    chooser = session.back[1].party
    shown = (told.seen_won, told.crowded, told.overfull, told.doubtful)
    learned = Learned(*map(np.array, shown))
    found, received = made_up(evaluator, learned, sizes, chooser, depth)
    for name in ("won", "crowded", "overfull", "doubtful"):
        assert (getattr(found, name) == getattr(learned, name)).all()
    pairs = list(zip(told.received, received, strict=True))
    for real, simulated in [*pairs[1:4], *pairs[5:]]:  # numbers of transfers end within a byte
        for parcel in (joined(real), joined(simulated)):
            if len(parcel) > 100_000:
                words = parcel[: len(parcel) // 8 * 8].view(np.uint64)[:10_000]
                assert len(np.unique(words)) == len(words)
                bits = words[:, np.newaxis] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
                assert np.abs(bits.mean(0) - 0.5).max() < 2.5 / np.sqrt(len(words))
