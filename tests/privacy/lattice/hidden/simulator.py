"""What an active party receives of a level, made up by who knows no more than who won.

Lindell, "How to Simulate It" (2017): what can be made up of the result alone tells no more than the
result does. Of half gates and colours: Zahur, Rosulek and Evans, "Two Halves Make a Whole", 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmq.privacy.lattice.hidden.circuits import NodeInputs
from fedmq.privacy.lattice.hidden.evaluator import LevelEvaluator
from fedmq.privacy.lattice.hidden.shares import Field, Shares
from fedmq.privacy.oblivious_transfer.extension import Tweaks
from tests.privacy.lattice.hidden.level_pair import PERMUTATION
from tests.privacy.oblivious_transfer.base import extension

TRANSFERRED = 3  # arrays before labels and tables


def made_up(
    field: Field,
    candidates: int,
    inputs: NodeInputs,
    won: Sequence[bool],
    shapes: Sequence[tuple[int, ...]],
    seed: int,
) -> tuple[Shares, list[np.ndarray]]:
    """Shares of sums, and a message of each of ``shapes``; ``inputs`` are the active party's own.

    All is random but the last piece: colours by which the result is ``won``.
    """
    random = np.random.default_rng(seed)
    shares = random.integers(0, 2**64, (len(won), candidates, 2), np.uint64) & field.mask
    received = [random.integers(0, 2**64, shape, np.uint64) for shape in shapes]
    received[-1] = np.zeros(shapes[-1], np.uint64)
    shown = evaluated(field, shares, inputs, received)
    received[-1][0] = np.array(shown) ^ np.array(won)
    return shares, received


def evaluated(
    field: Field, shares: Shares, inputs: NodeInputs, received: Sequence[np.ndarray]
) -> list[bool]:
    """Who won, by an active party that receives this."""
    receiver, _ = extension()
    evaluator = LevelEvaluator(field, shares, inputs, receiver, PERMUTATION, Tweaks())
    evaluator.choose_carries()
    evaluator.choose_squares(received[0])
    evaluator.choose_labels(*received[1:TRANSFERRED])
    for piece in received[TRANSFERRED:]:
        evaluator.take(piece)
    won: list[bool] = evaluator.winners()[0].tolist()
    return won
