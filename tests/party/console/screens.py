"""Pictures of every page of the console, at two widths and in both themes: ``make screenshots``.

::

    python -m tests.party.console.screens [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page

from tests.party.console.chromium import Visitor, chromium
from tests.party.console.shown_federation import (
    SERVED,
    begin_training,
    owner_asked,
    start_with_consoles,
    train_and_serve,
)
from tests.party.daemons import ACTIVE, PASSIVE, ExampleFederation
from tests.rabbitmq_node import RabbitNode

__all__ = ["ASKED", "LOOKS", "PAGES", "open_page"]

FOLDER = Path(__file__).parents[3] / "docs" / "console"

ASKED = PASSIVE[0]
"""Whose owner is asked meanwhile: there is something in its inbox."""

LOOKS = [(1280, "light"), (1280, "dark"), (320, "light"), (320, "dark")]
"""Width in pixels, and theme."""


def scored(page: Page) -> None:
    page.get_by_label("Id of the person").fill("P0000")
    page.get_by_role("button", name="Score", exact=True).click()
    page.get_by_role("heading", name="P0000").wait_for()


def read(page: Page) -> None:
    page.locator("table.columns").wait_for()


def chosen(page: Page) -> None:
    page.get_by_role("link", name="Approve alike…").click()
    page.get_by_role("heading", name="Approve alike").wait_for()


def nothing(_: Page) -> None:
    """The page is as it opens."""


PAGES: Mapping[str, tuple[str, str, Callable[[Page], None]]] = {
    "now": (ACTIVE, "/now", nothing),
    "now-at-a-feature-holder": (PASSIVE[0], "/now", nothing),
    "models": (ACTIVE, "/models", nothing),
    "model": (ACTIVE, f"/models/{SERVED}", nothing),
    "model-at-a-feature-holder": (PASSIVE[0], f"/models/{SERVED}", nothing),
    "inbox": (PASSIVE[0], "/inbox", nothing),
    "inbox-alike": (PASSIVE[0], "/inbox", chosen),
    "data": (PASSIVE[0], "/data", read),
    "people": (ACTIVE, "/people", nothing),
    "records": (ACTIVE, "/records", nothing),
    "score": (ACTIVE, "/score", scored),
}
"""By name: whose console, which address, and what is done there first."""


def open_page(
    browser: Browser, federation: ExampleFederation, name: str, width: int, theme: str
) -> Visitor:
    """Somebody who looks at the page ``name``; in the inbox a request waits for `ASKED`."""
    party, path, act = PAGES[name]
    visitor = Visitor(browser, federation.config(party), width=width, theme=theme)
    visitor.goes_to(path)
    act(visitor.page)
    visitor.page.wait_for_timeout(700)
    return visitor


def take(folder: Path, browser: Browser, federation: ExampleFederation) -> None:
    """Write a picture of every page in every look into ``folder``."""
    for name in PAGES:
        for width, theme in LOOKS:
            visitor = open_page(browser, federation, name, width, theme)
            path = folder / f"{name}-{width}-{theme}.png"
            picture = Image.open(BytesIO(visitor.page.screenshot(full_page=True)))
            picture.convert("RGB").quantize(96).save(path, optimize=True)
            print(path, *visitor.faults)
            visitor.leaves()


def main(folder: Path) -> None:
    """Write the pictures into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, chromium() as browser:
        place = Path(made)
        (broker := place / "broker").mkdir()
        node = RabbitNode(broker)
        node.start()
        federation = start_with_consoles(place / "federation", node)
        try:
            train_and_serve(federation, place)
            training = begin_training(federation, "credit-2027", 900)
            time.sleep(15)  # some trees, so that there is a curve
            with owner_asked(federation, ASKED, "credit-2028"):
                take(folder, browser, federation)
            training.terminate()
        finally:
            federation.discard()
            node.discard()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
