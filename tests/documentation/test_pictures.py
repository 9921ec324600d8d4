from __future__ import annotations

from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.documentation.fences import DOCS, ROOT
from tests.loaded_module import loaded_module


@pytest.fixture(scope="module")
def parties() -> ModuleType:
    return loaded_module(DOCS / "pictures" / "parties.py")


def test_the_pictures_are_current(parties: ModuleType) -> None:
    for name, scheme in parties.PICTURES.items():
        assert (DOCS / "pictures" / name).read_text() == parties.picture(scheme), "run: make docs"


def test_words_in_a_picture_fit_where_they_stand(parties: ModuleType) -> None:
    """A letter is about half as wide as it is high."""
    left, right = parties.BROKER
    for name in parties.PICTURES:
        for text in ElementTree.parse(DOCS / "pictures" / name).iter("{*}text"):
            assert text.text is not None
            width = len(text.text) * 15 * 0.55
            centre = int(text.attrib["x"])
            if left < centre < right and int(text.attrib["y"]) < 320:
                assert width < right - left, text.text
            elif int(text.attrib["y"]) < 320:
                assert width < 240, text.text


def test_the_readme_shows_them_on_its_first_screen(parties: ModuleType) -> None:
    first_screen = (ROOT / "README.md").read_text().splitlines()[:20]
    for name in parties.PICTURES:
        assert any(f"docs/pictures/{name}" in line for line in first_screen)
