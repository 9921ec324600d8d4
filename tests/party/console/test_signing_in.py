"""People sign in with an address of ``fedmq console``, in a real browser, at real daemons."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from fedmq.party.consent.audit_log import AuditLog
from tests.cli.command import fedmq
from tests.party.console.chromium import Visitor
from tests.party.daemons import ACTIVE, PASSIVE, ExampleFederation


def test_an_address_signs_in_once_and_the_audit_log_says_whom(
    browser: Browser, consoles: ExampleFederation
) -> None:
    visitor = Visitor(browser, consoles.config(ACTIVE), "operator")
    expect(visitor.page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    expect(visitor.page.get_by_text("anna")).to_be_visible()
    assert visitor.page.url == f"{visitor.home}/console/now"
    visitor.page.get_by_role("button", name="Sign out").click()
    expect(visitor.page.get_by_text("You are signed out.")).to_be_visible()
    visitor.goes_to("/now")
    expect(visitor.page.get_by_text("To sign in, ask the daemon")).to_be_visible()
    entries = [
        entry for entry in AuditLog(consoles.state(ACTIVE)).entries() if entry["event"] == "console"
    ]
    assert [(entry["who"], entry["did"]) for entry in entries] == [
        ("anna", "sign in"),
        ("anna", "sign out"),
    ]
    assert visitor.strangers == []
    visitor.leaves()


def test_a_used_address_signs_nobody_in(browser: Browser, consoles: ExampleFederation) -> None:
    address = fedmq("console", consoles.config(PASSIVE[0]), "--json").result["address"]
    first, second = browser.new_page(), browser.new_page()
    first.goto(address)
    expect(first.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    second.goto(address)
    expect(second.get_by_text("To sign in, ask the daemon")).to_be_visible()
    for page in (first, second):
        page.close()


def test_the_theme_is_the_systems_until_somebody_chooses(
    browser: Browser, consoles: ExampleFederation
) -> None:
    visitor = Visitor(browser, consoles.config(ACTIVE), theme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = visitor.page.evaluate(background)
    visitor.page.get_by_role("button", name="Light").click()
    light = visitor.page.evaluate(background)
    assert dark != light
    visitor.goes_to("/now")
    assert visitor.page.evaluate(background) == light
    assert visitor.faults == []
    visitor.leaves()
