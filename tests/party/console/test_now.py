"""What runs is watched as it happens, in a real browser at real daemons."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.command import fedmq
from tests.party.console.chromium import Visitor
from tests.party.console.shown_federation import begin_training
from tests.party.daemons import ACTIVE, PASSIVE, ExampleFederation


def test_a_training_is_watched_from_its_beginning_to_its_end(
    browser: Browser, consoles: ExampleFederation
) -> None:
    bank = Visitor(browser, consoles.config(ACTIVE))
    telco = Visitor(browser, consoles.config(PASSIVE[0]))
    for visitor in (bank, telco):
        expect(visitor.page.get_by_text("Nothing runs.")).to_be_visible()
    training = begin_training(consoles, "watched", 20)
    for visitor in (bank, telco):
        expect(visitor.page.get_by_role("heading", name="Training of watched")).to_be_visible()
    tree = bank.page.locator(".facts div", has_text="Tree").locator("dd")
    expect(tree).to_contain_text("of 20")
    seen = {tree.inner_text()}
    while training.poll() is None and len(seen) < 3:
        bank.page.wait_for_timeout(500)
        seen.add(tree.inner_text() if tree.is_visible() else "")
    assert len(seen) >= 3, f"it stood still: {seen}"
    expect(bank.page.get_by_role("img", name="logloss by tree")).to_be_visible()
    lanes = bank.page.locator(".lanes")
    expect(lanes.get_by_text("telco")).to_be_visible()
    expect(bank.page.get_by_role("row", name="telco").get_by_text("kB").first).to_be_visible()
    assert training.wait(120) == 0
    for visitor in (bank, telco):
        row = visitor.page.get_by_role("row", name="watched")
        expect(row.get_by_text("finished")).to_be_visible()
        expect(visitor.page.get_by_text("Nothing runs.")).to_be_visible()
        assert visitor.faults == []
        assert visitor.strangers == []
        visitor.leaves()


def test_a_training_rests_goes_on_and_is_cancelled_with_a_reason_that_all_see(
    browser: Browser, consoles: ExampleFederation
) -> None:
    bank = Visitor(browser, consoles.config(ACTIVE))
    telco = Visitor(browser, consoles.config(PASSIVE[0]))
    training = begin_training(consoles, "given-up", 500)
    page = bank.page
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("rests after this tree")).to_be_visible()
    expect(page.locator(".state", has_text="paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".state", has_text="runs")).to_be_visible()
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Cancel the training").click()
    expect(page.get_by_text("is cancelled; every party is told")).to_be_visible()
    for visitor in (bank, telco):
        row = visitor.page.get_by_role("row", name="given-up")
        expect(row.get_by_text("bank cancelled the session")).to_be_visible()
        assert visitor.faults == []
        visitor.leaves()
    assert training.wait(60) == 6


@pytest.mark.long
def test_the_command_line_shows_what_the_page_shows(consoles: ExampleFederation) -> None:
    training = begin_training(consoles, "told", 500)
    config = consoles.config(ACTIVE)
    try:
        while not (running := live(fedmq("status", config, "--json").result)):
            assert training.poll() is None
        shown = fedmq("status", config, running, "--json").result
        assert {row["party"] for row in shown["traffic"]} == set(PASSIVE)
        assert "telco" in fedmq("status", config, running).out
    finally:
        fedmq("cancel", config, live(fedmq("status", config, "--json").result))
        training.wait(60)


def live(status: dict[str, list[dict[str, str | None]]]) -> str:
    """The session that runs."""
    return next((str(s["session"]) for s in status["sessions"] if s["ended"] is None), "")
