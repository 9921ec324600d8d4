"""The page Data shows the screen that the party made last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmq.party.configuration.job import ScreenJob
from tests.party.console.served_console import serve
from tests.party.daemons_in_memory import DaemonsInMemory

SCRIPT = "<script>alert(1)</script>"
WEAK = {
    "column": 1, "name": None, "type": "number", "missing": 0.25, "distinct": "10 to 50",
    "iv": 0.0625, "auc": 0.5,
}  # fmt: skip
STRONG = {**WEAK, "column": 2, "name": SCRIPT, "iv": 1.5, "auc": 0.8125}
DESCRIBED = {name: value for name, value in WEAK.items() if name not in ("iv", "auc")}
SCREEN = {
    "name": "look",
    "made": "2026-11-22T16:00:00+00:00",
    "looked_at": 12_345,
    "parties": {
        "bank": {"columns": [WEAK, STRONG]},
        "telco": {"columns": [{**DESCRIBED, "name": "calls"}] * 20},
        "retail": {"refused": SCRIPT},
    },
}


async def page(folder: Path, screen: Any) -> str:
    answers = {"alignments": [], "last_screen": screen}
    async with serve(folder, answers) as served:
        await served.sign_in("viewer")
        return (await served.client.get("/console/data")).text


async def test_the_strongest_columns_come_first_and_who_refuses_is_named(tmp_path: Path) -> None:
    shown = await page(tmp_path, SCREEN)
    assert SCRIPT not in shown
    rows = shown.partition("Information value</th>")[2].split("<tr>")[1:]
    assert len(rows) == 20
    assert "&lt;script&gt;" in rows[0]
    assert "1.500" in rows[0] and "0.812" in rows[0]
    assert "column 1" in rows[1] and "0.062" in rows[1]
    assert "calls" in rows[2] and "not shown" in rows[2]
    assert "retail shows nothing: &lt;script&gt;" in shown
    assert "12,345" in shown
    assert "and 2 weaker columns" in shown


async def test_an_information_value_of_hidden_sums_is_shown_as_its_step(tmp_path: Path) -> None:
    step = {**DESCRIBED, "iv": 0.04, "iv_below": 0.06}
    most = {**DESCRIBED, "iv": 1.26, "iv_below": None}
    shown = await page(tmp_path, SCREEN | {"parties": {"telco": {"columns": [step, most]}}})
    rows = shown.partition("Information value</th>")[2].split("<tr>")[1:]
    assert "1.26 or more" in rows[0]
    assert "0.04 to 0.06" in rows[1]


async def test_without_a_screen_the_page_has_no_room_for_one(tmp_path: Path) -> None:
    assert "Last look at columns" not in await page(tmp_path, None)


async def test_the_daemon_has_the_screen_that_was_made_last(federation: DaemonsInMemory) -> None:
    assert await federation.ask("bank", "last_screen") is None
    for name in ("first", "second"):
        job = ScreenJob(name=name, bins=4).model_dump(mode="json")
        await federation.ask("bank", "screen", job=job)
    last = await federation.ask("bank", "last_screen")
    assert last["name"] == "second"
    assert [column["name"] for column in last["parties"]["bank"]["columns"]]
    assert "refused" in last["parties"]["telco"]
