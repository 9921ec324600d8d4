"""Waits grow, stay under their limit, and differ."""

from __future__ import annotations

from itertools import islice
from random import Random

from fedmq.transport.backoff import Backoff


def test_each_wait_lies_between_half_and_the_whole_of_its_step() -> None:
    waits = islice(Backoff(first=1, factor=2, limit=8).delays(Random(7)), 6)

    for wait, step in zip(waits, [1, 2, 4, 8, 8, 8], strict=True):
        assert step / 2 <= wait <= step


def test_two_parties_do_not_wait_in_step() -> None:
    one = list(islice(Backoff().delays(Random(1)), 5))
    other = list(islice(Backoff().delays(Random(2)), 5))

    assert all(a != b for a, b in zip(one, other, strict=True))


def test_the_steps_stay_finite_however_long_the_outage() -> None:
    *_, last = islice(Backoff(limit=30).delays(Random(0)), 5000)

    assert 15 <= last <= 30
