"""Gradients in the clear travel as float32, and arrive as the integers that they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.gradients import FixedPoint, Gradients
from fedmq.boosting.params import TrainParams
from fedmq.errors import MessageError
from fedmq.privacy.cleartext_sums import CleartextPassive
from fedmq.privacy.engine import BroadcastPiece
from fedmq.privacy.engines.plain import Plain
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Compute, Plan

ROWS = 300_000


def gradients(pairs: NDArray[np.int64], carried: NDArray[np.bool_]) -> Gradients:
    return Gradients(0, pairs, carried, FixedPoint(0, 0, 40), TrainParams())


def passive(rows: int, columns: int = 2) -> CleartextPassive:
    values = np.zeros((rows, 1), np.float32)
    half = CleartextPassive(BinMatrix.of(values, Cuts.of(values, 2)))
    half.start_session(np.ones(rows, np.bool_), outputs=columns // 2)
    return half


def value(plan: Plan[Any]) -> Any:
    """The value of a plan that takes no step but computations."""
    try:
        step = next(plan)
        while True:
            assert isinstance(step, Compute)
            step = plan.send([computation.run() for computation in step.computations])
    except StopIteration as ended:
        return ended.value


def broadcast(gradients: Gradients) -> list[BroadcastPiece]:
    return [value(piece) for piece in Plain().active(1).broadcast(gradients)]


def taken(half: CleartextPassive, piece: BroadcastPiece) -> None:
    value(half.receive(0, piece))


@pytest.mark.parametrize("share", [1.0, 0.7])
@pytest.mark.parametrize(
    ("objective", "bits"), [("binary:logistic", None), ("reg:squarederror", 7)]
)
def test_the_gradients_of_an_objective_arrive_in_half_the_bytes(
    objective: str, bits: int | None, share: float
) -> None:
    random = np.random.default_rng(3)
    params = TrainParams(objective=objective, gradient_bits=bits, subsample=share)
    margins = np.float32(2) ** random.integers(-40, 9, ROWS).astype(np.float32)
    labels = (margins > random.normal(size=ROWS)).astype(np.float32)
    made = Gradients.of(margins, labels, np.ones(ROWS, np.bool_), params, 0)
    half = passive(ROWS)
    for piece in broadcast(made):
        pairs = piece.values["pairs"]
        assert pairs.dtype == np.float32
        assert pairs.nbytes + (0 if share == 1 else piece.rows.nbytes) <= LARGEST_PIECE_BYTES
        taken(half, piece)
    np.testing.assert_array_equal(half._pairs, made.pairs)
    np.testing.assert_array_equal(half._carried, made.carried)


def test_integers_of_more_bits_travel_as_they_are() -> None:
    random = np.random.default_rng(4)
    pairs = random.integers(-(2**24), 2**24, (ROWS, 2)) << 16
    pairs[::1000] = 2**60 + 1
    half = passive(ROWS)
    pieces = broadcast(gradients(pairs, np.ones(ROWS, np.bool_)))
    for piece in pieces:
        assert piece.values["pairs"].dtype == np.int64
        assert piece.values["pairs"].nbytes <= 2 * LARGEST_PIECE_BYTES
        taken(half, piece)
    np.testing.assert_array_equal(half._pairs, pairs)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 0.5, 2.0**63])
def test_what_is_no_integer_is_refused(wrong: float) -> None:
    pairs = np.array([[1, 2], [3, wrong]], np.float32)
    with pytest.raises(MessageError, match="whole numbers"):
        taken(passive(2), BroadcastPiece(np.arange(2, dtype=np.uint32), {"pairs": pairs}))


@pytest.mark.parametrize("shape", [(2,), (2, 4), (3, 2)])
def test_pairs_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(MessageError, match=r"pairs|gradients for"):
        pairs = np.ones(shape, np.float32)
        taken(passive(2), BroadcastPiece(np.arange(2, dtype=np.uint32), {"pairs": pairs}))
