"""A node of very many candidates is compared block by block, and its winner is the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from fedmq.privacy.engine import ALONE
from fedmq.privacy.hidden_sums.filter import MOST_SLOTS
from fedmq.privacy.hidden_sums.level import (
    _LEAST_CANDIDATES,
    HiddenLevel,
    evaluator_bytes,
    garbler_bytes,
)
from fedmq.privacy.hidden_sums.rounds import Rounds, in_blocks
from fedmq.protocol.training import comparisons
from tests.how_often import seldom
from tests.privacy.hidden_sums.copied_level import CopiedLevels
from tests.privacy.hidden_sums.driven import size
from tests.privacy.hidden_sums.level_chain import run
from tests.privacy.hidden_sums.level_pair import LevelPair, Told
from tests.privacy.hidden_sums.test_chain import check as check_chain
from tests.privacy.hidden_sums.test_chain import divided
from tests.privacy.hidden_sums.test_level import check, drawn, own_gains


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 16 candidates."""
    monkeypatch.setattr("fedmq.privacy.hidden_sums.rounds.AT_ONCE", 16)


@dataclass(frozen=True)
class Some:
    """A block of so many candidates."""

    instances: int
    takes_numbers: bool = True

    @property
    def transfers(self) -> int:
        return 10 * self.instances


@pytest.mark.usefixtures("short_rounds")
def test_blocks_hold_every_candidate_of_every_node_once() -> None:
    whole = slice(0, 8)
    assert list(in_blocks(5, 8)) == [
        (slice(0, 2), whole),
        (slice(2, 4), whole),
        (slice(4, 5), whole),
    ]
    cut = [slice(0, 13), slice(13, 26), slice(26, 40)]
    assert list(in_blocks(2, 40)) == [
        (slice(node, node + 1), block) for node in (0, 1) for block in cut
    ]


def test_nodes_that_are_compared_together_are_one_round() -> None:
    nodes = comparisons._MOST_INSTANCES // _LEAST_CANDIDATES
    assert len(list(in_blocks(nodes, _LEAST_CANDIDATES))) == 1
    assert len(list(in_blocks(nodes, MOST_SLOTS))) == 1


def test_very_many_nodes_take_few_blocks() -> None:
    """A passive party is asked about as many as an active party that lies likes."""
    assert len(list(in_blocks(2**15, 1))) == 2


@pytest.mark.usefixtures("short_rounds")
def test_a_round_has_as_many_blocks_as_there_is_room_for() -> None:
    rounds = Rounds(map(Some, (4, 12, 1, 40, 8, 8)))
    found = []
    while rounds:
        blocks = [block.instances for block in rounds.go_on()]
        assert rounds.transfers == 10 * sum(blocks)
        found.append(blocks)
    assert found == [[4, 12], [1], [40], [8, 8]]
    assert rounds.take_numbers


def said(told: Told) -> int:
    """Parcels of the active party but requests of tables, which are empty."""
    return sum(size(parcel) > 0 for parcel in told.sent)


@pytest.mark.parametrize("filtered", [True, *seldom(False)], ids=["filter", "no filter"])
@pytest.mark.parametrize(
    "kind",
    [
        {},
        *seldom(
            {"xgboost_arithmetic": "3.4"},
            {"reg_alpha": 0.5, "constrained": True, "interactions": 2},
            {"reg_lambda": 0.0, "min_child_weight": 0.0},
        ),
    ],
    ids=str,
)
def test_the_winner_of_many_blocks(
    monkeypatch: pytest.MonkeyPatch, kind: dict[str, float], filtered: bool
) -> None:
    level = drawn(3, 40, 3, **kind)
    to_beat = own_gains(level, 0, 0.99, 1.01)
    factors = None if filtered else [None] * 3
    whole = LevelPair().run(level, to_beat, factors=factors)
    monkeypatch.setattr("fedmq.privacy.hidden_sums.rounds.AT_ONCE", 16)
    told = LevelPair().run(level, to_beat, factors=factors, apart=filtered)
    check(level, to_beat, told)
    assert said(told) > said(whole)
    assert (told.crowded, told.doubtful) == (whole.crowded, whole.doubtful)
    hidden = HiddenLevel(level.circuit.ranked_at(ALONE), 3, 40)
    assert sum(map(size, told.received)) <= garbler_bytes(hidden)
    assert sum(map(size, told.sent)) <= evaluator_bytes(hidden)


def test_a_level_of_many_rounds_takes_no_more_than_is_foreseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmq.privacy.hidden_sums.rounds.AT_ONCE", 20)
    level = drawn(60, 13, interactions=2)
    told = LevelPair().run(level, own_gains(level, 0, 0.99, 1.01))
    assert sum(map(size, told.sent)) <= evaluator_bytes(HiddenLevel(level.circuit, 60, 13))


@pytest.mark.usefixtures("short_rounds")
def test_copies_of_many_blocks() -> None:
    level = replace(drawn(2, 40), far=True)
    to_beat = own_gains(level, 0.5, 2)
    check(level, to_beat, CopiedLevels(2).run(level, to_beat))


@pytest.mark.usefixtures("short_rounds")
def test_a_chain_of_parties_with_many_blocks() -> None:
    level = drawn(4, 60)
    levels = divided(level, [40, 20])
    to_beat = own_gains(level, 0.5, 0)
    assert set(check_chain(levels, to_beat, run(levels, to_beat))) >= {1, 2}
