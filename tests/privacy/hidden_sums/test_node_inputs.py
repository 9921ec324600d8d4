"""What cannot be computed exactly is refused before anything is sent."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import TrainParams
from fedmq.errors import DataError
from fedmq.privacy.hidden_sums.circuits import NodeInputs
from fedmq.privacy.hidden_sums.shares import Field

FIELD = Field(57)
SCALE = FixedPoint(40, 42, 40)


def inputs(
    total: tuple[int, int] = (2**50, 2**50), scale: FixedPoint = SCALE, best: float = 1, **params
) -> NodeInputs:
    totals = np.array([total], np.int64)
    gains = np.array([best], np.float32)
    return NodeInputs.of(totals, gains, scale, TrainParams(**params), FIELD)


def number(node: NodeInputs, name: str) -> int:
    return sum(int(bit) << place for place, bit in enumerate(node.bits[name][:, 0]))


@pytest.mark.parametrize(
    "total",
    [(2**55, 1), (-(2**55), 1), (0, 2**55), (0, -1)],
    ids=["large", "small", "heavy", "negative"],
)
def test_sums_beyond_the_field_are_refused(total: tuple[int, int]) -> None:
    with pytest.raises(DataError, match="leave 55 bits"):
        inputs(total)


def test_the_largest_sums_are_let_in() -> None:
    assert number(inputs((1 - 2**55, 2**55 - 1)), "H") == 2**55 - 1


def test_gradients_whose_gains_float32_lacks_are_refused() -> None:
    with pytest.raises(DataError, match="too large for hidden sums"):
        inputs(scale=FixedPoint(10, 42, 40))


@pytest.mark.parametrize("reg_lambda", [1e-20, 1e9], ids=["fine", "large"])
def test_a_lambda_that_is_no_number_of_hessians_is_refused(reg_lambda: float) -> None:
    with pytest.raises(DataError, match=r"reg_lambda = .* is no number of 56 bits"):
        inputs(reg_lambda=reg_lambda)


def test_a_side_has_some_weight_and_no_more_than_there_can_be() -> None:
    assert number(inputs(min_child_weight=0), "least weight") == 1
    assert number(inputs(min_child_weight=1), "least weight") == 2**42
    assert number(inputs(min_child_weight=1e30), "least weight") == FIELD.bound


def test_what_is_to_beat() -> None:
    least = number(inputs(best=-np.inf), "to beat")
    assert number(inputs(best=1e-6), "to beat") == least
    gamma = number(inputs(best=1.5), "to beat")
    assert number(inputs(best=-np.inf, gamma=1.5), "to beat") == gamma - 1
    assert number(inputs(best=2.0, gamma=1.5), "to beat") == number(inputs(best=2.0), "to beat")


def test_gains_beyond_those_of_a_circuit_are_let_go() -> None:
    tiny = FixedPoint(100, 42, 40)  # of gradients of 2^-60: 1e-6 is more than they can gain
    assert number(inputs(scale=tiny), "to beat") == 2**32 - 1
