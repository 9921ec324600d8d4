"""Parties, keys and newcomers in the browser."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fedmq.errors import ConfigError
from tests.party.console.chromium import Visitor
from tests.party.console.served_console import serve
from tests.party.daemons import ExampleFederation

SCRIPT = "<script>alert(1)</script>"
TELCO = {
    "party": "telco",
    "role": "passive",
    "own": False,
    "fingerprints": [SCRIPT],
    "heard": "2026-11-22T16:00:00+00:00",
    "refusal": SCRIPT,
    "release": SCRIPT,
}
WAITING = [
    {"file": "clinic.request.json", "party": "clinic", "error": ""},
    {"file": "x.json", "party": "", "error": f"x.json: {SCRIPT}"},
]
ANSWERS: dict[str, Any] = {
    "parties": [TELCO],
    "join_requests": WAITING,
    "admit": {"party": "clinic"},
}


async def test_scripts_in_what_others_wrote_are_text(tmp_path: Path) -> None:
    async with serve(tmp_path, {**ANSWERS, "admit": ConfigError(SCRIPT)}) as served:
        csrf = await served.sign_in("operator")
        for answer in (
            await served.client.get("/console/people"),
            await served.send("/people/admit", csrf, text=SCRIPT, fingerprint=SCRIPT),
        ):
            assert SCRIPT not in answer.text
            assert "&lt;script&gt;" in answer.text


async def test_a_request_waits_until_somebody_types_the_fingerprint(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in("operator")
        assert "Let clinic take part" in (await served.client.get("/console/people")).text
        done = await served.send(
            "/people/admit", csrf, file="clinic.request.json", fingerprint="ab12"
        )
        assert done.status_code == 303
        [asked] = [asked for asked in served.asked if asked["do"] == "admit"]
        assert (asked["file"], asked["fingerprint"]) == ("clinic.request.json", "ab12")


@pytest.mark.parametrize("roles", [(), ("viewer",), ("approver",)])
async def test_who_is_no_operator_admits_nobody(tmp_path: Path, roles: tuple[str, ...]) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in(*roles)
        assert "Let it take part" not in (await served.client.get("/console/people")).text
        answer = await served.send("/people/admit", csrf, text="{}", fingerprint="x")
        assert answer.status_code == 403
        assert "admit" not in {asked["do"] for asked in served.asked}


async def test_another_site_admits_nobody(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in("operator")
        answer = await served.client.post(
            "/console/people/admit",
            data={"csrf": csrf, "text": "{}", "fingerprint": "x"},
            headers={"Origin": "https://evil.example"},
        )
        assert answer.status_code == 403
        assert "admit" not in {asked["do"] for asked in served.asked}


def test_the_parties_are_shown_and_what_is_no_request_is_refused(
    browser: Browser, consoles: ExampleFederation
) -> None:
    bank = Visitor(browser, consoles.config("bank"), "operator")
    bank.goes_to("/people")
    page = bank.page
    for party in ("bank", "telco", "retail"):
        expect(page.get_by_role("row", name=party)).to_be_visible()
    page.get_by_label("The join request").fill('{"format": "else"}')
    page.get_by_label("The fingerprint").fill("1234")
    page.get_by_role("button", name="Let it take part").click()
    expect(page.get_by_text("this is no request of fedmq join")).to_be_visible()
    assert bank.strangers == []
    bank.leaves()


@pytest.mark.parametrize(
    ("zone", "said", "heard"),
    [("UTC", "UTC", "2026-11-22 16:00"), ("XXX-5:30", "UTC+05:30", "2026-11-22 21:30")],
)
async def test_times_are_in_a_zone_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str, said: str, heard: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        async with serve(tmp_path, ANSWERS) as served:
            await served.sign_in()
            page = (await served.client.get("/console/people")).text
    finally:
        monkeypatch.undo()
        time.tzset()
    assert f"Times are in {said}<" in page
    assert f">{heard}<" in page
