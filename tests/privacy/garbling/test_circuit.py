"""Only gates that a result needs are computed, and none of them twice."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.privacy.garbling.circuit import FALSE, TRUE, Circuit
from fedmq.privacy.garbling.schedule import Schedule, in_the_clear


@pytest.fixture
def c() -> Circuit:
    return Circuit()


def test_constants_need_no_gates(c: Circuit) -> None:
    [x] = c.input("x", 1)
    assert c.both(x, FALSE) == FALSE
    assert c.both(TRUE, x) == c.both(x, x) == c.xor(x, FALSE) == x
    assert c.both(x, c.inverse(x)) == c.xor(x, x) == FALSE
    assert c.xor(x, c.inverse(x)) == c.either(x, TRUE) == TRUE
    assert c.xor(x, TRUE) == c.inverse(x)
    assert not c.gates


def test_a_gate_that_is_there_is_not_added_again(c: Circuit) -> None:
    x, y = c.input("x", 2)
    assert c.both(x, y) == c.both(y, x)
    assert c.xor(x, y) == c.xor(y, x) == c.inverse(c.xor(c.inverse(x), y))
    assert len(c.gates) == 2


def test_gates_that_no_output_needs_are_left_out(c: Circuit) -> None:
    x, y = c.input("x", 2)
    c.both(c.xor(x, y), x)
    c.output("y", [c.both(y, x)])
    schedule = Schedule.of(c)
    assert schedule.ands == 1
    assert sum(map(len, schedule.layers)) == 1


def test_slots_are_used_again(c: Circuit) -> None:
    [x], rest = c.input("x", 1), c.input("y", 200)
    for y in rest:
        x = c.both(c.xor(x, y), c.inverse(x))
    c.output("x", [x])
    assert Schedule.of(c).slots < 1 + 201 + 4


def random_circuit(seed: int) -> tuple[Circuit, np.ndarray, np.ndarray]:
    """A circuit of 600 gates, its inputs, and the outputs that Python computes."""
    random = np.random.default_rng(seed)
    c = Circuit()
    inputs = random.random((12, 16)) < 0.5
    wires = [FALSE, TRUE, *c.input("first", 5), *c.input("second", 7)]
    values = [np.zeros(16, np.bool_), np.ones(16, np.bool_), *inputs]
    for _ in range(600):
        left, right = random.integers(max(0, len(wires) - 40), len(wires), 2)
        pick = random.integers(4)
        x, y = values[left], values[right]
        wires.append(
            [c.xor, c.both, c.either, lambda wire, _: c.inverse(wire)][pick](
                wires[left], wires[right]
            )
        )
        values.append([x ^ y, x & y, x | y, ~x][pick])
    picked = random.integers(0, len(wires), 60)
    c.output("picked", [wires[place] for place in picked])
    c.output("inputs", wires[:6])
    return c, inputs, np.array(values)[[*picked, *range(6)]]


@pytest.mark.parametrize("seed", range(20))
def test_schedules_of_any_circuit_compute_it(seed: int) -> None:
    c, inputs, wanted = random_circuit(seed)
    found = in_the_clear(Schedule.of(c), {"first": inputs[:5], "second": inputs[5:]})
    np.testing.assert_array_equal(np.concatenate([found["picked"], found["inputs"]]), wanted)
