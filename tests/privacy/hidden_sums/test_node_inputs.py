"""What cannot be computed exactly is refused before anything is sent."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.gain import GainRule
from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.boosting.splits import NodeConstraints
from fedmq.errors import DataError, MessageError
from fedmq.privacy.garbling.circuit import real_bits
from fedmq.privacy.hidden_sums.circuits import GainCircuit, NodeInputs, circuit_of
from fedmq.privacy.hidden_sums.shares import Field

FIELD = Field(57)
SCALE = FixedPoint(40, 42, 40)


def inputs(
    total: tuple[int, int] = (2**50, 2**50), scale: FixedPoint = SCALE, best: float = 1, **params
) -> NodeInputs:
    totals = np.array([total], np.int64)
    gains = np.array([best], np.float32)
    given = TrainParams(**{"xgboost_arithmetic": OLDEST, **params})
    circuit = circuit_of(given, scale, FIELD, NodeConstraints())
    return NodeInputs.of(totals, gains, scale, given, circuit)


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
def test_a_lambda_that_is_no_number_of_hessians_enters_as_a_float(reg_lambda: float) -> None:
    bits = inputs(reg_lambda=reg_lambda).bits["lambda"]
    scaled = np.ldexp(np.float32([reg_lambda]).astype(np.float64), SCALE.h_bits)
    form = GainCircuit(FIELD, whole=False).form
    np.testing.assert_array_equal(bits, real_bits(scaled, form, signed=False))


def test_a_rule_is_read_as_it_was_told() -> None:
    for rule in (GainRule("3.2"), GainRule("3.4", shrinks=True), GainRule("3.2", bounds=True)):
        for whole, interactions in ((True, 0), (False, 3), (True, 63)):
            circuit = GainCircuit(FIELD, rule, whole, interactions)
            assert GainCircuit.read(FIELD, circuit.told()) == circuit
    assert GainCircuit(FIELD).told().tobytes() == b"ahead"


@pytest.mark.parametrize("told", [b"3.3", b"alpha 3.4", b"3.4 3.4", b"interactions=64", b"\xff"])
def test_a_rule_that_nobody_knows_is_refused(told: bytes) -> None:
    told = b"ahead " + told
    with pytest.raises(MessageError, match="rules that this party does not know"):
        GainCircuit.read(FIELD, np.frombuffer(told, np.uint8))


@pytest.mark.parametrize("told", [b"", b"3.4", b"ranked"], ids=str)
def test_a_rule_told_by_a_party_whose_numbers_leave_later_is_refused(told: bytes) -> None:
    with pytest.raises(MessageError, match="rules that this party does not know"):
        GainCircuit.read(FIELD, np.frombuffer(told, np.uint8))


def test_a_party_keeps_its_own_monotone_constraint() -> None:
    signs, held = np.array([0, 1], np.int8), np.zeros((1, 2), np.uint64)
    with pytest.raises(MessageError, match="keep no monotone constraint of this party"):
        GainCircuit(FIELD).of_columns(signs, held)


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
