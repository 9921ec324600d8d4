"""Among several passive parties the best candidate of all wins, and only its owner learns which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from fedmq.boosting.splits import SMALLEST_GAIN, is_worthwhile
from fedmq.errors import MessageError
from fedmq.privacy.engine import ALONE, Place
from fedmq.privacy.garbling.schedule import in_the_clear
from fedmq.privacy.hidden_sums.circuits import gain_bits, link_schedule
from tests.how_often import examples
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.level_chain import ToldChain, divided, halves, linked, run
from tests.privacy.hidden_sums.test_level import NOTHING, drawn, own_gains

NODES = 4


def wanted(levels: list[DrawnLevel], to_beat: np.ndarray) -> tuple[list[int], list[int]]:
    """Owners and indices: the first of all that gain most, the active party's own before all."""
    owners, index = [], []
    for node, own in enumerate(to_beat):
        owner, best, place = 0, own, 0
        for number, level in enumerate(levels, start=1):
            gains = level.gains[node]
            first = int(gains.argmax())
            if gains[first] > best and is_worthwhile(gains[first], level.params):
                owner, best, place = number, gains[first], first
        owners.append(owner)
        index.append(place)
    return owners, index


def check(levels: list[DrawnLevel], to_beat: np.ndarray, told: ToldChain) -> list[int]:
    owners, index = wanted(levels, to_beat)
    assert (told.owners, told.index) == (owners, index)
    for number, party in enumerate(told.parties, start=1):
        assert party.won == [owner == number for owner in owners]
    return owners


@pytest.mark.long
@examples(12)
@given(
    sizes=some.lists(some.integers(1, 5), min_size=2, max_size=4),
    share=some.sampled_from([0.0, 0.5, 1.0, 1.5]),
    copies=some.lists(some.tuples(some.integers(0, 99), some.integers(0, 99)), max_size=6),
    seed=some.integers(0, 2**16),
)
def test_the_first_of_all_that_gain_most_wins(
    sizes: list[int], share: float, copies: list[tuple[int, int]], seed: int
) -> None:
    level = drawn(NODES, sum(sizes), seed, min_child_weight=0.0)
    left = level.left.copy()
    for source, target in copies:  # candidates that tie, within a party and between parties
        left[:, target % sum(sizes)] = left[:, source % sum(sizes)]
    level = replace(level, left=left)
    levels = divided(level, sizes)
    to_beat = own_gains(level, share, 0)
    check(levels, to_beat, run(levels, to_beat, seed))


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_every_party_of_a_chain_can_win(parties: int) -> None:
    level = drawn(parties + 1, 3 * parties)
    left = level.left.copy()
    best = level.gains.argmax(axis=1)
    for node in range(parties):
        place = 3 * node + 1
        left[node, [place, best[node]]] = left[node, [best[node], place]]
    level = replace(level, left=left)
    levels = divided(level, [3] * parties)
    to_beat = own_gains(level, *[0.9] * parties, 2)
    told = run(levels, to_beat)
    assert check(levels, to_beat, told) == [*range(1, parties + 1), 0]


def test_of_parties_that_tie_the_one_with_the_first_columns_wins() -> None:
    level = drawn(1, 9)
    equal = [level] * 4
    told = run(equal, own_gains(level, 0))
    assert told.owners == [1]
    worse = replace(level, left=np.zeros_like(level.left))
    assert run([worse, level, worse, level], own_gains(level, 0)).owners == [2]
    assert run([level, level], own_gains(level, 1)).owners == [0]


def test_a_gain_that_nobody_has_is_won_by_nobody() -> None:
    level = drawn(2, 2)
    level = replace(level, left=np.zeros_like(level.left))
    told = run([level] * 3, np.full(2, NOTHING, np.float32))
    assert told.owners == [0, 0]
    assert not any(any(party.won) for party in told.parties)


def test_what_is_handed_on_is_half_of_what_is_shared() -> None:
    """Both shares are even; together they are the best gain so far, and whose it is."""
    level = drawn(60, 6)
    levels = divided(level, [2, 2, 2])
    to_beat = own_gains(level, 0.3)
    told = run(levels, to_beat)
    for number, own in enumerate(told.leaders, start=1):
        handed = told.parties[number].handed
        assert handed is not None
        assert handed.shape == own.shape == (32 + number.bit_length(), 60)
        for share in (own, handed):
            assert abs(share.mean() - 0.5) < 0.06
        best = np.max([part.gains.max(axis=1) for part in levels[:number]], axis=0)
        best = np.maximum(best, np.maximum(to_beat, SMALLEST_GAIN)).astype(np.float64)
        np.testing.assert_array_equal((own ^ handed)[:32], gain_bits(best, level.gain_shift))


def test_a_party_that_does_not_win_is_told_nothing_but_that() -> None:
    level = drawn(12, 9)
    levels = divided(level, [3, 3, 3])
    told = run(levels, own_gains(level, 0.5))
    assert len(set(told.owners)) > 2
    for party in told.parties:
        assert not any(index for won, index in zip(party.won, party.index, strict=True) if not won)


def test_shares_of_another_length_are_refused() -> None:
    level = drawn(1, 2)
    for wrong in (np.zeros((16, 1), np.bool_), np.zeros((60, 1), np.bool_)):
        with pytest.raises(MessageError, match="which is too"):
            linked(*halves([level] * 2, own_gains(level, 0)), hand_on=lambda *_, to=wrong: to)


def test_how_many_ands_a_link_takes() -> None:
    links = [link_schedule(Place(number, 4), 7).ands for number in (1, 2, 3, 4)]
    assert links == [71, 72, 73, 41]
    assert link_schedule(ALONE, 7).ands == 39


def test_a_link_alone_says_only_whether_it_won() -> None:
    assert set(link_schedule(ALONE, 3).outputs) == {"won", "index", "owner"}
    found = in_the_clear(
        link_schedule(ALONE, 3),
        {
            "gain": gain_bits(np.array([1.0, 2.0, 3.0])),
            "to beat": gain_bits(np.array([2.0, 2.0, 2.0])),
            "index": np.ones((3, 3), np.bool_),
        },
    )
    assert found["owner"].tolist() == found["won"].tolist() == [[False, False, True]]
    assert found["index"].T.tolist() == [[False] * 3, [False] * 3, [True] * 3]


@pytest.mark.parametrize(("number", "parties"), [(0, 2), (3, 2)])
def test_there_is_no_place_outside_of_a_chain(number: int, parties: int) -> None:
    with pytest.raises(ValueError, match="no place"):
        Place(number, parties)
