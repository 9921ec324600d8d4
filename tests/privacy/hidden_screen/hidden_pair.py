"""Both parties of a hidden screen without messages between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.hidden_screen.blocks import (
    GarblingSeeds,
    blocks_of,
    choose_block,
    choose_transfers,
    chosen_seeds,
    evaluate_block,
    garble_block,
    offer_transfers,
)
from fedmq.privacy.hidden_screen.label import add_shared_label, encrypt_shared_label, read_shares
from fedmq.privacy.lattice.inner_products import ColumnKey
from fedmq.privacy.oblivious_transfer.extension import Permutation

KEY = ColumnKey(b"p" * 32, b"k" * 32)
SEEDS = GarblingSeeds(b"g" * 32)


def steps_found(
    label: NDArray[np.bool_], columns: Sequence[NDArray[np.uint16]], least: int = 1
) -> NDArray[np.int64]:
    """The steps that the active party reads of ``columns`` in bins, uint16 (rows,) each."""
    encrypted = encrypt_shared_label(KEY, label)
    sums, own = add_shared_label(KEY.public, encrypted, columns, b"n" * 32)
    read = read_shares(KEY, sums, len(label))
    offer, pairs = offer_transfers(choose_transfers(SEEDS), b"o" * 32)
    chosen, permutation = chosen_seeds(offer, SEEDS), Permutation(b"public")
    people = int(label.sum()), int((~label).sum())
    found = []
    for block in blocks_of([len(each.ones) for each in read], len(label), least):
        sent, labels = choose_block(block, pairs, read[block.columns], people)
        counts = np.concatenate([np.bincount(column) for column in columns[block.columns]])
        answer = garble_block(block, sent, SEEDS, chosen, permutation, own[block.columns], counts)
        assert len(answer) == block.sent_bytes
        found.append(evaluate_block(block, labels, answer, permutation))
    return np.concatenate(found)
