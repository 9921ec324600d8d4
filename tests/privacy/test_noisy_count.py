"""A number with noise tells little of one person: the distribution, exactly, and what is drawn."""

from __future__ import annotations

import math
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedmq.privacy.noisy_count import SCALE, STEP, drawn_noise, told


def chances(people: int, reach: int = 2000) -> dict[int, float]:
    """How likely each number is to be told of so many ``people``."""
    fall = math.exp(-1 / SCALE)
    found: dict[int, float] = {}
    for noise in range(-reach, reach + 1):
        chance = (1 - fall) / (1 + fall) * fall ** abs(noise)
        number = told(people, noise)
        found[number] = found.get(number, 0.0) + chance
    return found


@given(st.integers(0, 400))
def test_one_person_more_changes_no_chance_by_more_than_a_twentieth(people: int) -> None:
    one, more = chances(people), chances(people + 1)
    bound = math.exp(1 / SCALE) * (1 + 1e-9)
    for number in range(0, 1500, STEP):  # beyond, the noise is cut off
        assert 1 / bound <= one[number] / more[number] <= bound


def test_noise_is_drawn_as_the_distribution_says() -> None:
    random = Random(1)
    drawn = np.array([drawn_noise(random) for _ in range(100_000)])
    fall = math.exp(-1 / SCALE)
    for noise in (-40, -20, -1, 0, 1, 20, 40):
        expected = (1 - fall) / (1 + fall) * fall ** abs(noise)
        error = math.sqrt(expected * (1 - expected) / len(drawn))
        assert abs(np.mean(drawn == noise) - expected) < 5 * error
    assert abs(drawn.mean()) < 5 * SCALE * math.sqrt(2 / len(drawn))


@given(st.integers(0, 2**28), st.integers(-1000, 1000))
def test_what_is_told_is_a_multiple_of_the_step_and_near(people: int, noise: int) -> None:
    number = told(people, noise)
    assert number >= 0 and number % STEP == 0
    assert abs(number - max(0, people + noise)) <= STEP / 2
