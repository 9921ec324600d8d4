"""Every page of figures says by which command it was made, and that command is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MEASURED = ROOT / "docs" / "measured"
PAGES = sorted(MEASURED.glob("*.md"))
MADE_BY = re.compile(r"(?:Made|Written) by `(make|python -m) ([\w.-]+)")
TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_of_figures_names_the_command_that_made_it(page: Path) -> None:
    first_paragraph = page.read_text().split("\n\n")[1]
    made = MADE_BY.match(first_paragraph)
    assert made is not None, first_paragraph
    if made[1] == "make":
        assert made[2] in TARGETS
    else:
        assert (ROOT / made[2].replace(".", "/")).with_suffix(".py").exists()


def test_a_plot_or_a_file_of_figures_belongs_to_a_page() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    linked = set(re.findall(r"\]\(data/([^)]+)\)", text))
    kept = {path.name for path in (MEASURED / "data").iterdir()}
    assert linked <= kept
    assert {name for name in kept if not name.endswith(".json")} <= linked


def test_seconds_in_the_readme_are_those_of_the_benchmarks() -> None:
    readme = (ROOT / "README.md").read_text()
    measured = (MEASURED / "benchmarks.md").read_text()
    engines = ("paillier", "ou", "lattice", "lattice, hidden sums")
    for data, name in (("Credit 2", "Default of Credit Card"), ("Credit 1", "Give Me Some Credit")):
        seconds_by_engine = r"\| ([^|]*) " * len(engines)
        shown = re.search(rf"^\| {name}[^|]*{seconds_by_engine}\|$", readme, re.MULTILINE)
        assert shown is not None
        for engine, seconds in zip(engines, shown.groups(), strict=True):
            row = re.search(rf"^\| {data}, {engine} \| ([\d.]+) \|", measured, re.MULTILINE)
            assert row is not None
            assert f"{float(row[1]):.2f}" == seconds, (data, engine)
