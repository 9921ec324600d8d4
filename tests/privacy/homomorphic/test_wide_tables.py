"""Of a wide table few columns are summed, and few nodes' sums are kept, at a time."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.splits import CandidateTable
from fedmq.privacy.engine import Sums
from fedmq.privacy.engines.okamoto_uchiyama import OkamotoUchiyama
from fedmq.privacy.homomorphic import passive as homomorphic_passive
from fedmq.privacy.homomorphic.passive import AdditivePassive
from tests.privacy.engine_pair import EnginePair
from tests.privacy.test_engine_contract import expected, gradients, table

ROWS, COLUMNS = 90, 40


def pair_of(vectors: bool) -> EnginePair:
    engine = OkamotoUchiyama(384, allow_weak_keys=True, vectors=vectors)
    return EnginePair(engine, table(ROWS, COLUMNS, seed=1))


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("kept", [0, 3])
def test_sums_are_the_same_block_by_block_and_with_few_nodes_kept(
    vectors: bool, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_of(vectors)
    node_bytes = pair.passive._bytes_of_sums(1)
    monkeypatch.setattr(homomorphic_passive, "_CODES_AT_ONCE", 1)
    monkeypatch.setattr(homomorphic_passive, "_MOST_ROWS", 20)
    monkeypatch.setattr(homomorphic_passive, "_SUMS_AT_ONCE", node_bytes)
    monkeypatch.setattr(homomorphic_passive, "_SUMS_KEPT", kept * node_bytes)
    candidates = CandidateTable.of(pair.bins.cuts)
    held = gradients(ROWS, 2, subsample=0.7)
    pair.start_tree(held, candidates)
    rows = np.arange(ROWS, dtype=np.int32)
    quarters = np.random.default_rng(3).integers(0, 4, ROWS)
    levels = (
        {1: rows},
        {2: rows[quarters < 2], 3: rows[quarters >= 2]},
        {4 + quarter: rows[quarters == quarter] for quarter in range(4)},
    )
    for level in levels:
        orders = {node: np.random.default_rng(node).permutation(len(candidates)) for node in level}
        answers = pair.ask_level(level, candidates, orders)
        assert len(pair.passive._sums) <= kept
        for node, standing in level.items():
            answer = answers[node]
            assert isinstance(answer, Sums)
            np.testing.assert_array_equal(
                answer.left, expected(pair.bins, held, standing, candidates)[orders[node]]
            )


def test_columns_come_in_blocks_that_cover_each_once() -> None:
    for rows, columns in ((1, 0), (10, 5), (32768, 5000), (10**8, 40)):
        blocks = homomorphic_passive._column_blocks(rows, columns)
        covered = [column for block in blocks for column in range(columns)[block]]
        assert covered == list(range(columns))
        assert all(len(range(columns)[block]) % 16 == 0 for block in blocks[:-1])
        assert all((block.stop - block.start) * rows <= max(2**24, 16 * rows) for block in blocks)


def test_memory_for_sums_does_not_grow_with_depth_beyond_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passive = pair_of(True).passive
    assert isinstance(passive, AdditivePassive)
    node = passive._bytes_of_sums(1)
    assert passive.sums_bytes(7) < passive.sums_bytes(63)
    monkeypatch.setattr(homomorphic_passive, "_SUMS_KEPT", 4 * node)
    monkeypatch.setattr(homomorphic_passive, "_SUMS_AT_ONCE", 4 * node)
    assert passive.sums_bytes(63) == passive.sums_bytes(1023) == 8 * node
