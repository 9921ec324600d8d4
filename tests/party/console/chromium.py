"""A real Chromium, driven by Playwright, that shows a console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from tests.cli.command import fedmq

__all__ = ["Visitor", "chromium", "installed"]

_AXE = Path(__file__).parent / "axe" / "axe.min.js"

NAMES = ("chromium", "chromium-browser", "google-chrome")


def installed() -> str:
    """Where the Chromium of this machine lies; the test is skipped where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no chromium; install it with: apt-get install chromium")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium of this machine; the tests are skipped where there is none."""
    found = installed()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """Somebody at a browser, signed in at the daemon of the party's file ``config``.

    ``faults`` are errors of scripts and of the content security policy; ``strangers`` are requests
    to any address but the daemon's.
    """

    def __init__(
        self,
        browser: Browser,
        config: Path,
        *roles: str,
        width: int = 1280,
        height: int = 900,
        theme: str = "light",
    ) -> None:
        chosen = [option for role in roles for option in ("--role", role)]
        opened = fedmq("console", config, "--who", "anna", "--json", *chosen).result
        self.home = opened["address"].partition("/console")[0]
        self.page: Page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme=theme,  # type: ignore[arg-type]
        )
        self.page.set_default_timeout(20_000)
        self.faults: list[str] = []
        self.strangers: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._asked)
        self.page.goto(opened["address"])

    def goes_to(self, path: str) -> None:
        """Open a page of the console."""
        self.page.goto(f"{self.home}/console{path}")

    def axe(self) -> list[str]:
        """What axe has to say against the page, of each element: the rule, and why."""
        self.page.evaluate(_AXE.read_text())
        found = self.page.evaluate("axe.run()")["violations"]
        return [
            f"{rule['id']}: {node['html']}: {node['failureSummary']}"
            for rule in found
            for node in rule["nodes"]
        ]

    def leaves(self) -> None:
        """Close the page."""
        self.page.context.close()

    def _said(self, message: object) -> None:
        if getattr(message, "type", "") == "error":
            self.faults.append(getattr(message, "text", ""))

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.home):
            self.strangers.append(request.url)
