"""A long name goes on in the next line: no page is wider than a telephone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright

from tests.party.console.chromium import installed
from tests.party.console.one_name import answers
from tests.party.console.served_console import serve

pytestmark = pytest.mark.long

WIDTH = 320
COLUMN = "compactness_error"
"""May be broken after its underscore."""

UNBREAKABLE = "n" * 64
NAMES = [COLUMN, UNBREAKABLE]

# Lines of the first row header, and the place at which the second begins.
LINES = """() => {
    const header = document.querySelector("table.columns th[scope=row]");
    const range = document.createRange();
    const lines = [];
    for (const text of [...header.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)) {
        for (let at = 0; at < text.length; at++) {
            range.setStart(text, at);
            range.setEnd(text, at + 1);
            const top = Math.round(range.getBoundingClientRect().top);
            if (lines.at(-1)?.top !== top) lines.push({ top, text: "" });
            lines.at(-1).text += text.data[at];
        }
    }
    return lines.map((line) => line.text.trim()).filter((line) => line);
}"""


_EVENTS_MILLISECONDS = 500
"""For what a stream of events brings. Older Playwrights take the network for idle when it ends."""


@asynccontextmanager
async def telephone(state: Path, name: str) -> AsyncIterator[tuple[Page, str]]:
    """A narrow page, signed in, and the address of the console."""
    async with serve(state, answers(name)) as served, async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=installed(), args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": WIDTH, "height": 900})
        await page.goto(await served.address("operator"))
        yield page, f"{str(served.client.base_url).rstrip('/')}/console"
        await browser.close()


async def width(page: Page) -> int:
    return int(await page.evaluate("document.documentElement.scrollWidth"))


@pytest.mark.parametrize("name", NAMES, ids=["breakable", "unbreakable"])
async def test_a_long_name_makes_no_page_wider(tmp_path: Path, name: str) -> None:
    async with telephone(tmp_path, name) as (page, home):
        for path in ("/now", "/models", "/models/m", "/comparison?one=m&other=n", "/data"):
            await page.goto(f"{home}{path}")
            await page.wait_for_timeout(_EVENTS_MILLISECONDS)
            assert await width(page) <= WIDTH, path


@pytest.mark.parametrize("name", NAMES, ids=["breakable", "unbreakable"])
async def test_a_long_name_makes_no_score_wider(tmp_path: Path, name: str) -> None:
    async with telephone(tmp_path, name) as (page, home):
        await page.goto(f"{home}/score")
        await page.get_by_label("Id of the person").fill("P0000")
        await page.get_by_role("button", name="Score", exact=True).click()
        await page.get_by_text("degraded: not known at").wait_for()
        assert await width(page) <= WIDTH


async def test_a_column_is_broken_after_its_underscore(tmp_path: Path) -> None:
    async with telephone(tmp_path, COLUMN) as (page, home):
        await page.goto(f"{home}/data")
        await page.locator("table.columns").wait_for()
        assert await page.evaluate(LINES) == ["compactness_", "error"]
