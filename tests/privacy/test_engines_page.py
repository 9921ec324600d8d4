"""The page on engines names every engine, every option, and every known leak."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.engines.okamoto_uchiyama import OkamotoUchiyama
from fedmq.privacy.registry import ENGINES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "explanation" / "engines.md"
MEASURED = DOCS / "measured" / "papers.md"


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_its_row(name: str) -> None:
    assert re.search(rf"^\| `{name}` \|", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", ["smm1", "smm2", "ldp"])
def test_every_option_is_explained(name: str) -> None:
    text = PAGE.read_text()
    assert all(f"`{option}`" in text for option in ENGINES[name].options())


@pytest.mark.parametrize("name", [name for name, engine in ENGINES.items() if engine.known_leak])
def test_the_figures_of_a_known_leak_stand_next_to_the_engine(name: str) -> None:
    figures = re.findall(r"\d+ %", ENGINES[name].known_leak)
    assert figures
    section = PAGE.read_text().split(f"**`{name}`:")[1].split("\n\n")[0]
    assert all(figure in section for figure in figures)


@pytest.mark.parametrize(
    ("engine", "people"), [(Lattice, " 400 people"), (OkamotoUchiyama, " 24,033 people")]
)
def test_the_figures_of_shown_sums_stand_next_to_the_engine_and_on_the_page_of_leaks(
    engine: type[Engine], people: str
) -> None:
    figures = re.findall(r"\d+\.\d+ %", engine.leak_of_sums)
    assert len(figures) == 2
    assert people in engine.leak_of_sums
    section = PAGE.read_text().split(f"**`{engine.name}`:")[1].split("\n\n")[0]
    measured = (DOCS / "measured" / "leakage.md").read_text()
    [line] = [line for line in measured.splitlines() if f"{people} | `{engine.name}`" in line]
    for figure in figures:
        assert figure in section
        assert f"{float(figure.removesuffix(' %')) / 100:.3f}" in line


@pytest.mark.parametrize("name", ENGINES)
def test_what_an_engine_costs_is_what_was_measured(name: str) -> None:
    shown = _cells(PAGE.read_text(), f"`{name}`")
    credit2 = MEASURED.read_text().split("#### Credit 2, 30,000 rows")[1].split("####")[0]
    measured = _cells(credit2, "ldp laplace, epsilon 1" if name == "ldp" else name)
    seconds, megabytes = measured[2], measured[4]
    assert float(shown[4].removesuffix(" s")) == float(f"{float(seconds):.2g}")
    assert shown[5] == megabytes


def _cells(page: str, first: str) -> list[str]:
    """The cells of the row that begins with ``first``, from 0."""
    row = re.findall(rf"^\| {re.escape(first)} \|.*$", page, re.MULTILINE)[0]
    return [cell.strip() for cell in row.strip("|").split("|")]
