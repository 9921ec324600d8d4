"""Directions of chosen rows arrive, and no others."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.lattice.directions import ChooseRows, HideDirections
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS
from fedmq.privacy.oblivious_transfer.seeds import GROUPS, GrowSeeds, PunctureSeeds
from fedmq.privacy.plan import LARGEST_PIECE_BYTES
from tests.privacy.oblivious_transfer.base import CHOICES, SENDER, base


@cache
def groups() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All seeds, the sums that are sent of them, and what the sums and choices give."""
    _, keys, pairs = base()
    seeds, sums = GrowSeeds(pairs, SENDER).run()
    return seeds, sums, PunctureSeeds(sums, keys, CHOICES).run()


def choice(rows: np.ndarray, count: int, purpose: str = "0 1") -> ChooseRows:
    return ChooseRows(count, purpose, b"k", rows, groups()[0])


def hidden(pieces: list, left: np.ndarray, purpose: str = "0 1") -> HideDirections:
    return HideDirections(pieces, purpose, b"k", left, groups()[2], ~CHOICES)


def test_of_each_group_all_seeds_are_learned_but_that_of_the_secret_place() -> None:
    seeds, _, learned = groups()
    secret = np.packbits(~CHOICES.reshape(GROUPS, 4), axis=1)[:, 0] >> 4
    for group in range(GROUPS):
        for place in range(1, 16):
            wanted = seeds[group, place ^ secret[group]]
            assert np.array_equal(learned[group, place], wanted)
    assert not learned[:, 0].any()
    assert len({seed.tobytes() for seed in seeds.reshape(-1, 16)}) == 16 * GROUPS


def test_without_the_seeds_of_transfers_the_sums_give_nothing() -> None:
    seeds, sums, _ = groups()
    keys = base()[2][np.arange(TRANSFERS), 1 - CHOICES.astype(int)]
    wrong = PunctureSeeds(sums, keys, CHOICES).run()
    assert not {seed.tobytes() for seed in wrong.reshape(-1, 16)} & {
        seed.tobytes() for seed in seeds.reshape(-1, 16)
    }


@pytest.mark.parametrize(
    "sums",
    [None, 3, np.zeros((128, 2, 15), np.uint8), np.zeros((128, 2, 16), np.int8)],
    ids=["none", "number", "short", "signed"],
)
def test_malformed_sums_are_refused(sums: object) -> None:
    with pytest.raises(MessageError, match=r"sums of seeds that are not uint8 \(128, 2, 16\)"):
        PunctureSeeds(sums, base()[1], CHOICES).run()


@pytest.mark.parametrize("count", [1, 7, 8, 9, 1000, 40_000])
def test_directions_of_chosen_rows_arrive_and_no_others(count: int) -> None:
    random = np.random.default_rng(count)
    rows = np.flatnonzero(random.random(count) < 0.3)
    left = random.random(count) < 0.5
    pieces, pads = choice(rows, count).run()
    shown = hidden(pieces, left).run() ^ pads
    np.testing.assert_array_equal(shown[rows], left[rows])
    others = np.setdiff1d(np.arange(count), rows)
    if count >= 1000:
        assert abs((shown[others] == left[others]).mean() - 0.5) < 3 / np.sqrt(len(others))


def test_each_piece_fits_a_message() -> None:
    pieces, _ = choice(np.arange(5), 300_000).run()
    assert len(pieces) > 1
    assert max(piece["choice"].nbytes for piece in pieces) <= LARGEST_PIECE_BYTES


def test_choices_of_all_rows_and_of_none_look_alike() -> None:
    for rows in (np.arange(20_000), np.arange(0)):
        pieces, _ = choice(rows, 20_000).run()
        bits = np.unpackbits(np.concatenate([piece["choice"] for piece in pieces], axis=1))
        assert abs(bits.mean() - 0.5) < 0.002


def test_nodes_have_pads_of_their_own() -> None:
    rows = np.arange(4000)
    one, two = (choice(rows, 4000, purpose).run()[1] for purpose in ("0 1", "0 2"))
    assert abs((one == two).mean() - 0.5) < 0.05


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [{}],
        [{"choice": 3}],
        [{"choice": np.zeros((GROUPS, 4), np.uint8)}],
        [{"choice": np.zeros((GROUPS - 1, 5), np.uint8)}],
        [{"choice": np.zeros((GROUPS, 5), np.int8)}],
        [{"choice": np.zeros((GROUPS, 5), np.uint8), "more": 1}],
    ],
    ids=["nothing", "empty", "number", "few rows", "few columns", "signed", "more"],
)
def test_a_malformed_choice_is_refused(pieces: list) -> None:
    with pytest.raises(MessageError, match=r"uint8 \(32, 5\)"):
        hidden(pieces, np.zeros(40, np.bool_)).run()


def test_another_secret_choice_hides_the_same_directions_otherwise() -> None:
    left = np.zeros(4000, np.bool_)
    pieces, _ = choice(np.arange(0), 4000).run()
    step = hidden(pieces, left)
    other = replace(step, secret=CHOICES)
    assert abs((step.run() == other.run()).mean() - 0.5) < 0.05
