"""The figures that owners read are those of the page that measures them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.party.consent.measured_leaks import (
    MEASURED_LEAKS,
    PAGE,
    MeasuredLeak,
    measured_leaks,
)
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.registry import ENGINES

ROOT = Path(__file__).parents[3]
LEAKS = sorted({leak for leaks in MEASURED_LEAKS.values() for leak in leaks}, key=str)


def row_of(leak: MeasuredLeak) -> list[str]:
    """The cells of its line on the page."""
    for line in (ROOT / PAGE).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if tuple(cells[: len(leak.row)]) == tuple(leak.row):
            return cells
    raise AssertionError(f"the page has no line {leak.row}")


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.what[:30])
def test_a_figure_stands_on_the_page(leak: MeasuredLeak) -> None:
    cells = row_of(leak)
    assert f"{leak.value:.3f}" in cells
    if leak.measure in cells:  # the line has what guessing reaches beside it
        assert f"{leak.guessing:.3f}" == cells[-1]
    if leak.by_sums:
        value = cells.index(f"{leak.value:.3f}")
        assert f"{leak.guessing:.3f}" == cells[value + 1]


def test_every_engine_says_what_it_leaks() -> None:
    for name, engine in ENGINES.items():
        assert MEASURED_LEAKS.get(name) or engine.known_leak or name == "plain"


def test_an_owner_whose_sums_are_hidden_reads_of_no_attack_on_sums() -> None:
    shown, hidden = measured_leaks(Lattice()), measured_leaks(Lattice(sums="hidden"))
    assert any("sums" in leak.what for leak in shown)
    assert hidden and not any("sums" in leak.what for leak in hidden)
    assert all(leak in shown for leak in hidden)
