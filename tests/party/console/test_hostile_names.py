"""What other parties can name and say is shown as text, wherever it stands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright

from fedmq.errors import Refused
from tests.party.console.chromium import installed
from tests.party.console.served_console import STATUS, ServedConsole, serve

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}"
    "\N{RIGHT-TO-LEFT OVERRIDE}"
)

SESSION: dict[str, Any] = {
    "session": "12ab",
    "purpose": "training",
    "model": HOSTILE,
    "meaning": HOSTILE,
    "ended": None,
    "paused": False,
    "waiting": [f"waiting for {HOSTILE}"],
    "done": 1,
    "total": 2,
    "unit": "tree",
    "seconds": 1.0,
    "seconds_left": 2.0,
    "bytes_sent": 1000,
    "curve": {"done": [1.0], f"{HOSTILE}-{HOSTILE}": [0.5]},
    "traffic": [
        {
            "party": HOSTILE,
            "messages_sent": 1,
            "bytes_sent": 1,
            "messages_received": 1,
            "bytes_received": 1,
        }
    ],
    "activity": {
        "seconds": 120.0,
        "busy": {"bank": [(3.0, 1.0)], HOSTILE: [(2.0, 0.0)]},
        "owed": {HOSTILE: {"kind": HOSTILE, "seconds": 2.0}},
    },
}
ENDED = {
    "session": "34cd",
    "purpose": "training",
    "model": HOSTILE,
    "ended": "2026-01-01T00:00:00+00:00",
    "reason": HOSTILE,
}
REPORT = {
    "made": "2026-01-01T00:00:00+00:00",
    "facts": {HOSTILE: HOSTILE},
    "metrics": {HOSTILE: {"value": 0.5, "low": None, "high": None}},
    "charts": [
        {
            "name": HOSTILE,
            "x": HOSTILE,
            "y": HOSTILE,
            "lines": [{"name": HOSTILE, "x": [0.0, 0.0, 1.0], "y": [0.0, 0.5, 1.0]}],
        }
    ],
    "tables": [{"name": HOSTILE, "about": HOSTILE, "headers": [HOSTILE], "rows": [[HOSTILE]]}],
}
MODEL: dict[str, Any] = {
    "model": HOSTILE,
    "objective": HOSTILE,
    "parties": ["bank", HOSTILE],
    "params": {HOSTILE: [HOSTILE]},
    "departures": [HOSTILE],
    "trees": [{"nodes": 1, "leaves": 1, "depth": 0}],
    "own_splits": {HOSTILE: 1},
    "curve": {HOSTILE: [0.5]},
    "training": None,
    "importance": [{"party": HOSTILE, "column": HOSTILE, "gain": 1.0, "splits": 1.0}],
    "report": REPORT,
    "card": {
        "card": {
            "made": "2026-01-01T00:00:00+00:00",
            "training": None,
            "splits": {HOSTILE: 1},
            "worth": {HOSTILE: {"metric": HOSTILE, "without": 0.5}},
        },
        "endorsements": [{"party": HOSTILE}],
    },
}
SERVING: dict[str, Any] = {
    "models": {HOSTILE: {"model": HOSTILE, "mode": "hop", "rounds": 1}},
    "troubles": [HOSTILE],
    "away": [HOSTILE],
    "counts": {"requests": 1, "failed": 1, "degraded": 1},
    "recent": {"requests": 1, "per_second": 1.0, "median": 0.1, "p99": 0.1},
    "scored": {HOSTILE: {"columns": [HOSTILE], "unexplained": ""}},
}
SCORED = {
    "model": HOSTILE,
    "mode": "hop",
    "scores": [
        {
            "id": HOSTILE,
            "score": 0.5,
            "unknown_at": [HOSTILE],
            "reasons": [
                {"party": HOSTILE, "column": 3, "value": 1.0, "text": HOSTILE},
                {"party": HOSTILE, "value": -0.5},
            ],
        }
    ],
    "degraded": {HOSTILE: 0.5},
    "seconds": 0.1,
    "waited": {HOSTILE: 0.05},
}
DRIFT = {
    "columns": [{"column": HOSTILE, "model": HOSTILE, "rows": 1, "index": 0.3, "alarm": True}],
    "parties": [HOSTILE],
}
ANSWERS: dict[str, Any] = {
    "status": STATUS
    | {
        "broker": HOSTILE,
        "warnings": [HOSTILE],
        "store": HOSTILE,
        "idle": [HOSTILE],
        "ended": [ENDED],
        "drift": DRIFT,
    },
    "sessions": [SESSION],
    "models": [
        {
            "model": HOSTILE,
            "trees": 1,
            "objective": HOSTILE,
            "metrics": {HOSTILE: 0.5},
            "departures": [HOSTILE],
        }
    ],
    "model": MODEL,
    "serving": SERVING,
    "compare": [{"key": HOSTILE, "one": HOSTILE, "other": None}],
    "tree": [
        {"node": 0, "party": HOSTILE, "record": 1, "left": 1, "right": 2, "gain": 1.0, "cover": 1},
        {"node": 1, "weight": 0.5, "cover": 1.0},
        {"node": 2, "weight": [0.5, 1.0], "cover": 1.0},
    ],
    "score": SCORED,
    "cancel": Refused(HOSTILE),
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedConsole]:
    async with serve(tmp_path, ANSWERS) as console:
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
