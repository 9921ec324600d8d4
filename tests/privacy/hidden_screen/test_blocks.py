"""Two parties find the steps together, and the passive party sees nothing of a label."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.screened_columns import Strength
from fedmq.errors import MessageError
from fedmq.privacy.hidden_screen.blocks import (
    Block,
    blocks_of,
    choose_block,
    choose_transfers,
    chosen_seeds,
    evaluate_block,
    garble_block,
    offer_transfers,
)
from fedmq.privacy.hidden_screen.label import (
    add_shared_label,
    encrypt_shared_label,
    read_shares,
)
from fedmq.privacy.hidden_screen.steps import error_in_steps
from fedmq.privacy.oblivious_transfer.extension import Permutation
from tests.how_often import each_seed
from tests.privacy.hidden_screen.hidden_pair import KEY, SEEDS, steps_found

ROWS = 400
random = np.random.default_rng(1)
LABEL: NDArray[np.bool_] = random.random(ROWS) < 0.3


def columns(count: int, bins: int = 8) -> list[NDArray[np.uint16]]:
    """The more of them, the more they tell the label."""
    drawn = [random.random(ROWS) * bins + LABEL * place * 0.5 for place in range(count)]
    clipped = [np.minimum(each, bins - 1 - place % 3) for place, each in enumerate(drawn)]
    return [np.unique(each.astype(np.uint16), return_inverse=True)[1] for each in clipped]


def values(held: list[NDArray[np.uint16]], label: NDArray[np.bool_]) -> list[float]:
    found = [
        Strength.of(np.bincount(one), np.bincount(one[label], minlength=one.max() + 1))
        for one in held
    ]
    return [each.iv / 0.02 for each in found if each is not None]


@each_seed(4)
def test_the_active_party_reads_the_steps_of_each_column(seed: int) -> None:
    held = columns(5)
    error = error_in_steps(8, int(LABEL.sum()), int((~LABEL).sum()))
    for found, value in zip(steps_found(LABEL, held), values(held, LABEL), strict=True):
        assert min(63, int(value - error)) <= found <= min(63, int(value + error))


def test_columns_of_several_blocks_are_read_in_their_order() -> None:
    held = columns(20)
    assert len(blocks_of([int(one.max()) + 1 for one in held], ROWS, 1)) == 2
    together = steps_found(LABEL, held)
    for place in (0, 9, 19):
        assert together[place] == steps_found(LABEL, [held[place]])[0]
    assert together[0] < together[-1]


def test_what_the_active_party_decrypts_is_even_whatever_it_has_encrypted() -> None:
    column = columns(1)[0]
    for label in (LABEL, ~LABEL):
        encrypted = encrypt_shared_label(KEY, label)
        shares = []
        for seed in range(60):
            sums, _ = add_shared_label(KEY.public, encrypted, [column], bytes([seed]) * 32)
            [read] = read_shares(KEY, sums, ROWS)
            shares += [read.ones / 2.0**11, read.difference / 2.0**23]
        even = np.concatenate(shares)
        assert even.mean() == pytest.approx(0.5, abs=0.04)
        assert even.std() == pytest.approx(12**-0.5, abs=0.02)


def test_what_the_passive_party_gets_of_a_block_is_the_same_but_for_random_bits() -> None:
    _, pairs = offer_transfers(choose_transfers(SEEDS), b"o" * 32)
    sent = []
    for label in (LABEL, ~LABEL):
        sums, _ = add_shared_label(
            KEY.public, encrypt_shared_label(KEY, label), [columns(1)[0]], b"n" * 32
        )
        shares = read_shares(KEY, sums, ROWS)
        [block] = blocks_of([len(each.ones) for each in shares], ROWS, 1)
        people = int(label.sum()), int((~label).sum())
        sent.append(choose_block(block, pairs, shares, people)[0])
    one, other = sent
    assert len(one) == len(other)
    # Beside sums of seeds and proofs: choices under streams of which one seed in 16 is unknown.
    masked = slice(128 * 2 * 16 + 32 * 2 * 32, -129 * 16)
    assert np.unpackbits(one[masked]).mean() == pytest.approx(0.5, abs=0.02)


def test_malformed_parts_are_refused() -> None:
    held = columns(1)
    sums, own = add_shared_label(KEY.public, encrypt_shared_label(KEY, LABEL), held, b"n" * 32)
    shares = read_shares(KEY, sums, ROWS)
    [block] = blocks_of([len(shares[0].ones)], ROWS, 1)
    offer, pairs = offer_transfers(choose_transfers(SEEDS), b"o" * 32)
    people = int(LABEL.sum()), int((~LABEL).sum())
    sent, labels = choose_block(block, pairs, shares, people)
    seeds, permutation = chosen_seeds(offer, SEEDS), Permutation(b"public")
    counts = np.bincount(held[0])

    def garbled(sent: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return garble_block(block, sent, SEEDS, seeds, permutation, own, counts)

    with pytest.raises(MessageError, match="too short"):
        garbled(sent[:-1])
    with pytest.raises(MessageError, match="too long"):
        garbled(np.append(sent, np.uint8(0)))
    turned = sent.copy()
    turned[128 * 2 * 16 + 32 * 2 * 32] ^= 1
    with pytest.raises(MessageError, match="other choices"):
        garbled(turned)
    answer = garbled(sent)
    with pytest.raises(MessageError, match="too short"):
        evaluate_block(block, labels, answer[:-1], permutation)
    with pytest.raises(MessageError, match="another length"):
        read_shares(KEY, [sums[0][:, :-1]], ROWS)
    with pytest.raises(MessageError, match="bins"):
        blocks_of([52], ROWS, 1)
    with pytest.raises(MessageError, match="one encrypted number"):
        add_shared_label(KEY.public, np.zeros((3, 12), np.uint8), held, b"n" * 32)


def test_a_block_has_its_own_tweaks() -> None:
    first, second = (Block(number, 0, (3,), ROWS, 1).tweaks for number in (0, 1))
    assert first.start + first.left == second.start
