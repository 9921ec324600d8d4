"""What other parties can name and say is shown as text, wherever it stands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import async_playwright

from tests.party.console.chromium import installed
from tests.party.console.one_name import answers
from tests.party.console.served_console import ServedConsole, serve

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}"
    "\N{RIGHT-TO-LEFT OVERRIDE}"
)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedConsole]:
    async with serve(tmp_path, answers(HOSTILE)) as console:
        yield console


def assert_text(page: str) -> None:
    assert "&lt;script&gt;alert(1)" in page or "\\u003cscript" in page
    for markup in ("<script>alert", "<img", "onerror=alert(2)>"):
        assert markup not in page


@pytest.mark.parametrize(
    "path",
    [
        "/now",
        "/now/sessions",
        "/models",
        "/serving",
        "/models/m",
        "/models/m/tree?tree=1",
        "/comparison?one=m&other=n",
        "/score",
    ],
)
async def test_names_and_reasons_are_text(served: ServedConsole, path: str) -> None:
    await served.sign_in("operator")
    answer = await served.client.get(f"/console{path}")
    assert answer.status_code == 200, answer.text
    assert_text(answer.text)


async def test_what_is_pushed_is_text(served: ServedConsole) -> None:
    await served.sign_in("operator")
    async with served.client.stream("GET", "/console/now/events") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                parts = json.loads(line.removeprefix("data: "))
                break
    assert_text("".join(text for name, text in parts.items() if not name.startswith("data:")))


@pytest.mark.long
@pytest.mark.parametrize("path", ["/now", "/models", "/models/m", "/score"])
async def test_a_real_browser_runs_none_of_it(served: ServedConsole, path: str) -> None:
    found = installed()
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = await browser.new_page()
        shown: list[str] = []
        page.on("dialog", lambda dialog: shown.append(dialog.message))
        page.on("request", lambda request: shown.append(request.url))
        await page.goto(await served.address("operator"))
        await page.goto(f"{served.client.base_url}/console{path}".replace("//console", "/console"))
        await page.wait_for_timeout(1500)
        assert await page.locator("img").count() == 0
        assert [seen for seen in shown if "/console/" not in seen] == []
        await browser.close()


async def test_the_reasons_of_a_score_are_text(served: ServedConsole) -> None:
    csrf = await served.sign_in("operator")
    answer = await served.send("/score", csrf, name=HOSTILE, id="7")
    assert answer.status_code == 200, answer.text
    assert_text(answer.text)


async def test_a_refusal_is_text(served: ServedConsole) -> None:
    csrf = await served.sign_in("operator")
    answer = await served.send("/now/12ab/cancel", csrf)
    assert answer.status_code == 403
    assert_text(answer.text)


@pytest.mark.parametrize("model", ["..%2f..%2fkeys.json", "%2e%2e", "a%00b", "x" * 5000])
async def test_a_path_in_place_of_a_model_reaches_the_daemon_as_a_name_only(
    served: ServedConsole, model: str
) -> None:
    await served.sign_in("operator")
    answer = await served.client.get(f"/console/models/{model}")
    assert answer.status_code in (200, 404)
    for asked in served.asked:
        assert set(asked) <= {"do", "model"}
