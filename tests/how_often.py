"""Which seeds, cases and examples a test takes: a few in every run, all in ``make test-long``.

``make seeds FIRST=1000`` takes as many from 1000 on, with which nobody has tried the tests yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

FIRST = int(os.environ.get("FEDMQ_FIRST_SEED", "0"))
OFTEN = 3
"""So many of them in every run."""


def each_seed(count: int, often: int = OFTEN) -> pytest.MarkDecorator:
    """Run a test with each of ``count`` seeds, of which the first ``often`` are never left out."""
    values = [pytest.param(FIRST + number, marks=_marks(number < often)) for number in range(count)]
    return pytest.mark.parametrize("seed", values)


def some_seeds(count: int, block: int = 20, often: int = OFTEN) -> pytest.MarkDecorator:
    """Run a test with ``count`` seeds, some at once: the first ``often``, then blocks of them."""
    values = [
        pytest.param(seeds, marks=_marks(seeds.start == FIRST), id=f"{seeds.start}-{seeds[-1]}")
        for seeds in _blocks(count, block, often)
    ]
    return pytest.mark.parametrize("seeds", values)


def examples(count: int) -> settings:
    """Draw ``count`` examples in ``make test-long``, and a fifth of them in every run."""
    return settings(max_examples=max(5, count * settings().max_examples // 100))


def seldom(*cases: Any) -> list[Any]:
    """Cases of a test that are left out of every run but the long ones."""
    return [pytest.param(case, marks=pytest.mark.long) for case in cases]


def seldom_several(*cases: tuple[Any, ...]) -> list[Any]:
    """Cases of several parameters each, that are left out of every run but the long ones."""
    return [pytest.param(*case, marks=pytest.mark.long) for case in cases]


def _blocks(count: int, block: int, often: int) -> Iterator[range]:
    yield range(FIRST, FIRST + often)
    for start in range(often, count, block):
        yield range(FIRST + start, FIRST + min(start + block, count))


def _marks(often: bool) -> list[pytest.MarkDecorator]:
    return [pytest.mark.seeded] if often else [pytest.mark.seeded, pytest.mark.long]
