"""What does a party read that lies in a screen whose sums are hidden?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.privacy.hidden_screen import blocks, label
from fedmq.privacy.hidden_screen.label import BinShares
from fedmq.privacy.hidden_screen.steps import FRACTION_BITS, SCALE
from fedmq.privacy.lattice.inner_products import encrypt_column
from tests.privacy.hidden_screen import hidden_pair

PEOPLE, BINS, COLUMNS = 400, 10, 20
WEIGHTS = (1, 2, 4, 8, 12, 19, 26, 32, 36, 39)
"""Labels of ten people: the weight of evidence of a bin of 40 tells which of them stands in it."""


def columns() -> list[NDArray[np.uint16]]:
    """Columns of ten bins of 40; in each the first ten people stand in one bin each."""
    random, found = np.random.default_rng(1), []
    for _ in range(COLUMNS):
        rest = random.permutation(np.repeat(np.arange(BINS), PEOPLE // BINS - 1))
        found.append(np.concatenate([random.permutation(BINS), rest]).astype(np.uint16))
    return found


def lied(monkeypatch: pytest.MonkeyPatch, moved: dict[int, float], ratio: float) -> list[int]:
    """The steps of all columns, if ten people have `WEIGHTS` for labels, and d is ``moved``.

    ``moved``: by person what it adds to d; ``ratio`` stands for log2(N1/N0), and half a person for
    nothing.
    """

    def encrypted(key: label.ColumnKey, _: NDArray[np.bool_]) -> NDArray[np.uint8]:
        ones, adds = np.zeros((2, PEOPLE), np.int64)
        ones[: len(WEIGHTS)] = WEIGHTS
        for person, share in moved.items():
            adds[person] = round(share * 2**34)
        layout = label._layout(PEOPLE)
        both = zip(label._keys(key), (ones, adds), strict=True)
        return np.concatenate([encrypt_column(own, column, layout) for own, column in both])

    monkeypatch.setattr(hidden_pair, "encrypt_shared_label", encrypted)
    monkeypatch.setattr(blocks, "known_bits", lambda *_: (0, round(ratio * 2**16)))
    return hidden_pair.steps_found(np.ones(PEOPLE, np.bool_), columns()).tolist()


def test_a_liar_reads_in_each_column_with_which_of_ten_people_another_one_shares_a_bin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person, scale = 123, 63 / 64 / 11.2
    found = lied(monkeypatch, {person: scale}, ratio=-5.4)
    size = PEOPLE // BINS
    expected = [64 * scale * (np.log2(one / (size - one)) + 5.4) for one in WEIGHTS]
    guessed = [int(np.argmin(np.abs(np.array(expected) - steps - 0.5))) for steps in found]
    shared = [column[: len(WEIGHTS)].tolist().index(int(column[person])) for column in columns()]
    assert guessed == shared


def test_a_liar_reads_the_bins_of_two_people_at_once_in_few_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bins of two people among ten are 100 pairs, and there are 64 answers."""
    scale = 63 / 64 / 11.2
    found = lied(monkeypatch, {123: scale / 11, 124: scale * 10 / 11}, ratio=-5.4)
    size = PEOPLE // BINS
    weights = np.array([np.log2(one / (size - one)) + 5.4 for one in WEIGHTS])
    pairs = 64 * scale * (weights[:, np.newaxis] / 11 + weights * 10 / 11)
    right = 0
    for column, steps in zip(columns(), found, strict=True):
        best = np.unravel_index(np.argmin(np.abs(pairs - steps - 0.5)), pairs.shape)
        first = column[: len(WEIGHTS)].tolist()
        right += tuple(map(int, best)) == tuple(
            first.index(int(column[person])) for person in (123, 124)
        )
    assert right == 8  # of 20


def test_an_owner_that_weighs_one_person_in_each_column_reads_labels_by_what_is_selected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many people as it has columns, if the active party tells which are selected by IV."""
    held = np.random.default_rng(2).random(PEOPLE) < 0.1
    weight, people = 20, range(60)
    answer = label.answer_products

    def tile(number: int, bins: int) -> NDArray[np.uint8]:
        """It weighs the first bin of each column, and the second one counts for nothing."""
        return np.tile(np.array([number, 0], np.uint8), bins // 2)

    def weighted(*given: Any) -> Any:
        public, encrypted, weights, *rest = given
        return answer(public, encrypted, weights * tile(weight, weights.shape[1]), *rest)

    def garbled(block: blocks.Block, *given: Any) -> NDArray[np.uint8]:
        # What a person of label 0 takes off d is added again, by a guess of how many there are.
        offset = round(SCALE * weight / (PEOPLE * 0.9) * 2**FRACTION_BITS)
        *before, shares, _ = given
        moved = np.array([offset, 0], np.uint64)
        own = [BinShares(ones, difference + moved) for ones, difference in shares]
        counts = tile(weight, block.instances).astype(np.int64)
        return blocks.garble_block(block, *before, own, counts)

    monkeypatch.setattr(label, "answer_products", weighted)
    monkeypatch.setattr(hidden_pair, "garble_block", garbled)
    single = [np.where(np.arange(PEOPLE) == person, 0, 1).astype(np.uint16) for person in people]
    found = hidden_pair.steps_found(held, single)
    selected = np.array(found) >= 2
    assert (selected == held[: len(people)]).mean() == 1.0
