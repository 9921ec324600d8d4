"""Words of gates compute as Python's integers do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedmq.privacy.garbling.circuit import (
    Circuit,
    at_least,
    constant,
    difference,
    select,
    sum_and_carry,
    swap,
    total,
    when,
)
from fedmq.privacy.garbling.schedule import Schedule, in_the_clear

LEFT, RIGHT = 5, 3
CASES = list(itertools.product(range(2**LEFT), range(2**RIGHT), range(2)))


def bits(numbers: list[int], length: int) -> np.ndarray:
    return (np.array(numbers)[np.newaxis] >> np.arange(length)[:, np.newaxis] & 1).astype(np.bool_)


def numbers(found: np.ndarray) -> list[int]:
    return (found.astype(np.int64) << np.arange(len(found))[:, np.newaxis]).sum(axis=0).tolist()


@pytest.fixture(scope="module")
def found() -> dict[str, list[int]]:
    c = Circuit()
    x, y, [choice] = c.input("x", LEFT), c.input("y", RIGHT), c.input("choice", 1)
    added, carried = sum_and_carry(c, x, y, choice)
    c.output("added", [*added, carried])
    c.output("total", total(c, x, y))
    c.output("constant", total(c, x, constant(-2, LEFT)))
    c.output("difference", difference(c, x, y))
    c.output("at least", [at_least(c, x, y)])
    c.output("select", select(c, choice, x, y))
    for name, word in zip(("swapped x", "swapped y"), swap(c, choice, x, y), strict=True):
        c.output(name, word)
    c.output("when", when(c, choice, x))
    c.output("any", [c.any_of(x)])
    c.output("either", [c.either(x[0], c.inverse(y[0]))])
    c.output("known", [0, 1, c.inverse(c.xor(x[1], x[1]))])
    inputs = {
        "x": bits([case[0] for case in CASES], LEFT),
        "y": bits([case[1] for case in CASES], RIGHT),
        "choice": bits([case[2] for case in CASES], 1),
    }
    results = in_the_clear(Schedule.of(c), inputs)
    return {name: numbers(result) for name, result in results.items()}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("added", lambda x, y, choice: x + y + choice),
        ("total", lambda x, y, choice: (x + y) % 32),
        ("constant", lambda x, y, choice: (x - 2) % 32),
        ("difference", lambda x, y, choice: (x - y) % 32),
        ("at least", lambda x, y, choice: x >= y),
        ("select", lambda x, y, choice: x if choice else y),
        ("swapped x", lambda x, y, choice: y if choice else x),
        ("swapped y", lambda x, y, choice: x if choice else y),
        ("when", lambda x, y, choice: x * choice),
        ("any", lambda x, y, choice: x > 0),
        ("either", lambda x, y, choice: x & 1 or not y & 1),
        ("known", lambda x, y, choice: 0b110),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_of_all_numbers(found: dict[str, list[int]], name: str, wanted) -> None:
    assert found[name] == [int(wanted(*case)) for case in CASES]


def test_an_addition_costs_an_and_a_bit() -> None:
    c = Circuit()
    added, carried = sum_and_carry(c, c.input("x", 20), c.input("y", 20))
    c.output("sum", [*added, carried])
    assert Schedule.of(c).ands == 20


@pytest.mark.parametrize("length", [4, 5, 21, 40])
def test_sums_of_a_shallow_circuit_are_those_of_any_other_by_fewer_layers(length: int) -> None:
    random, most = np.random.default_rng(length), 2**length - 1
    drawn = random.integers(0, most, (2, 500), endpoint=True).tolist()
    left, right = drawn[0] + [most, most, 0, 1], drawn[1] + [most, 0, 0, most]
    carried = random.integers(0, 2, len(left)).tolist()
    layers = {}
    for shallow in (False, True):
        c = Circuit(shallow=shallow)
        x, y, [carry] = c.input("x", length), c.input("y", length), c.input("carry", 1)
        added, out = sum_and_carry(c, x, y, carry)
        c.output("added", [*added, out])
        c.output("at least", [at_least(c, x, y)])
        schedule = Schedule.of(c)
        inputs = {"x": bits(left, length), "y": bits(right, length), "carry": bits(carried, 1)}
        found = in_the_clear(schedule, inputs)
        triples = zip(left, right, carried, strict=True)
        assert numbers(found["added"]) == [x + y + carry for x, y, carry in triples]
        assert numbers(found["at least"]) == [x >= y for x, y in zip(left, right, strict=True)]
        layers[shallow] = sum(layer.is_and for layer in schedule.layers)
    assert layers[True] <= layers[False]
    assert length < 20 or layers[True] < 0.6 * layers[False]
