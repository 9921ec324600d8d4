"""The page on engines names every engine, every option, and every known leak."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedmq.privacy.registry import ENGINES

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "engines.md"


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
