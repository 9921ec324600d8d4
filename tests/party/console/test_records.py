"""Audit log, dead letters and ended sessions in the browser; what others wrote stays text."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fedmq.party.configuration.party import BROKER_VARIABLE
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection
from fedmq.transport.rabbitmq.topology import exchange_name, routing_key
from tests.cli.command import fedmq
from tests.party.console.chromium import Visitor
from tests.party.console.served_console import serve
from tests.party.daemons import ExampleFederation

SCRIPT = "<script>alert(1)</script>"
ENTRY = {
    "number": 7,
    "at": "2026-11-22T16:00:00+00:00",
    "event": "asked",
    "peer": SCRIPT,
    "session": SCRIPT,
    "attempt": 1,
    "model": SCRIPT,
    "previous": "0" * 64,
}
LETTER = {
    "letter": "3f09",
    "reason": SCRIPT,
    "at": "2026-11-22T16:00:00+00:00",
    "bytes": 12,
    "sender": SCRIPT,
    "header": {"kind": SCRIPT},
}
ENDED = {
    "session": "12ab",
    "purpose": "training",
    "model": SCRIPT,
    "ended": "2026-11-22T16:00:00+00:00",
    "reason": SCRIPT,
}
ANSWERS: dict[str, Any] = {
    "audit_log": [ENTRY],
    "history": [ENDED],
    "verify_audit_log": {"unbroken": False, "reason": SCRIPT},
    "dead_letters": [LETTER],
    "requeue": {"letter": "3f09", "taken": False, "reason": SCRIPT},
    "drop": {"letter": "3f09"},
}


async def test_scripts_in_what_others_wrote_are_text(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in("operator")
        await served.send("/records/letters/3f09/requeue", csrf)
        for path, scripts in (
            (f"?text={SCRIPT}&event={SCRIPT}&peer={SCRIPT}", 7),
            ("/letters", 3),
            ("/verification", 1),
        ):
            answer = await served.client.get(f"/console/records{path}")
            assert answer.status_code == 200
            assert SCRIPT not in answer.text
            assert answer.text.count("&lt;script&gt;") == scripts


async def test_what_is_searched_for_is_asked_of_the_daemon(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        await served.sign_in()
        await served.client.get("/console/records?event=asked&peer=telco&text=a%26b&before=50")
        asked = next(asked for asked in served.asked if asked["do"] == "audit_log")
        assert (asked["event"], asked["peer"], asked["text"], asked["before"]) == (
            "asked",
            "telco",
            "a&b",
            50,
        )


@pytest.mark.parametrize("before", ["-1", "x", "1" * 40, "\N{SUPERSCRIPT TWO}"])
async def test_a_number_that_is_none_is_refused(tmp_path: Path, before: str) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        await served.sign_in()
        answer = await served.client.get("/console/records", params={"before": before})
        assert answer.status_code != 200
        assert "write the number of an entry" in answer.text


@pytest.mark.parametrize("roles", [(), ("viewer",), ("approver",)])
async def test_who_is_no_operator_touches_no_letter(tmp_path: Path, roles: tuple[str, ...]) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in(*roles)
        for path in ("requeue", "drop"):
            assert (await served.send(f"/records/letters/3f09/{path}", csrf)).status_code == 403
        assert "Redeliver" not in (await served.client.get("/console/records/letters")).text
        assert not {asked["do"] for asked in served.asked} & {"requeue", "drop"}


async def test_another_site_drops_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in("operator")
        answer = await served.client.post(
            "/console/records/letters/3f09/drop",
            data={"csrf": csrf},
            headers={"Origin": "https://evil.example"},
        )
        assert answer.status_code == 403
        assert "drop" not in {asked["do"] for asked in served.asked}


async def test_the_export_is_the_file(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        await served.sign_in()
        answer = await served.client.get("/console/records/audit.jsonl")
        assert answer.content == served.audit_log.path.read_bytes()
        assert "attachment" in answer.headers["content-disposition"]
        assert json.loads(answer.text.splitlines()[0])["did"] == "sign in"


def send_garbage(consoles: ExampleFederation, content: bytes) -> None:
    """Let bank send telco what is no message."""

    async def send() -> None:
        address = BrokerAddress.parse(consoles.broker.url("bank"))
        connection = await BrokerConnection.open(address, "garbage", None)
        await connection.publish(
            exchange_name("demo"), routing_key("bank", "telco", "training"), content, "garbage"
        )
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(send()))
    thread.start()
    thread.join()


def dead_letters(consoles: ExampleFederation) -> Any:
    broker = {BROKER_VARIABLE: consoles.broker.url("telco")}
    return fedmq("dead", "list", consoles.config("telco"), "--json", **broker).result


def test_a_dead_letter_is_redelivered_in_vain_and_dropped(
    browser: Browser, consoles: ExampleFederation
) -> None:
    send_garbage(consoles, b"<script>alert(1)</script>")
    for _ in range(100):
        if dead_letters(consoles):
            break
    telco = Visitor(browser, consoles.config("telco"), "operator")
    telco.goes_to("/records")
    page = telco.page
    expect(page.get_by_text("unbroken")).to_be_visible()
    expect(page.get_by_text("no message,")).to_be_visible()
    page.get_by_role("button", name="Redeliver").click()
    expect(page.get_by_text("was refused again")).to_be_visible()
    page.get_by_text("Drop…").click()
    page.get_by_role("button", name="Drop it").click()
    expect(page.get_by_text("is dropped.")).to_be_visible()
    expect(page.get_by_text("There are none.")).to_be_visible()
    assert dead_letters(consoles) == []
    page.get_by_label("Event").select_option("console")
    page.get_by_role("button", name="Search").click()
    row = page.get_by_role("row", name="did drop")
    expect(row.get_by_text("anna")).to_be_visible()
    assert telco.faults == []
    assert telco.strangers == []
    telco.leaves()
