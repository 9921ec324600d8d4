"""How often requests came lately, and how long they took."""

from __future__ import annotations

import pytest

from fedmq.party.telemetry.metrics import RecentTimes


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_minute() -> None:
    clock = Clock()
    recent = RecentTimes(clock)
    assert recent.described() == {"requests": 0, "per_second": 0.0, "median": None, "p99": None}
    for number in range(120):
        clock.now = float(number)
        recent.add(clock.now, 0.01)
    assert recent.described()["per_second"] == pytest.approx(1.0, abs=0.05)
    clock.now += 3600
    assert recent.described()["per_second"] == 0.0


def test_more_than_a_thousand_a_minute_are_counted_over_the_time_they_took() -> None:
    clock = Clock()
    recent = RecentTimes(clock)
    for number in range(5000):
        clock.now = number / 100
        recent.add(clock.now, number / 1000)
    found = recent.described()
    assert found["requests"] == 1000
    assert found["per_second"] == pytest.approx(100, rel=0.01)
    assert found["median"] == pytest.approx(4.5)
    assert found["p99"] == pytest.approx(4.99)
