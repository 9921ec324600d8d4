"""Every page at two widths and in both themes: axe finds nothing, and nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.party.console.screens import ASKED, LOOKS, PAGES, open_page
from tests.party.console.shown_federation import owner_asked, train_and_serve
from tests.party.daemons import ExampleFederation


@pytest.fixture(scope="module")
def shown(
    consoles: ExampleFederation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExampleFederation]:
    train_and_serve(consoles, tmp_path_factory.mktemp("shown"))
    with owner_asked(consoles, ASKED, "credit-2028"):
        yield consoles


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_axe_finds_nothing(
    browser: Browser, shown: ExampleFederation, name: str, width: int, theme: str
) -> None:
    visitor = open_page(browser, shown, name, width, theme)
    assert visitor.axe() == []
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visitor.faults == []
    visitor.leaves()
