"""Models are looked at, activated and asked for a score, in a real browser at real daemons."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from fedmq.boosting.model.tree import ACTIVE_PARTY
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.store.documents import ModelStore
from tests.cli.command import fedmq
from tests.party.console.chromium import Visitor
from tests.party.console.shown_federation import (
    SECOND,
    SERVED,
    begin_training,
    train_and_serve,
)
from tests.party.daemons import ACTIVE, PASSIVE, ExampleFederation


@pytest.fixture(scope="module")
def shown(
    consoles: ExampleFederation, tmp_path_factory: pytest.TempPathFactory
) -> ExampleFederation:
    train_and_serve(consoles, tmp_path_factory.mktemp("shown"))
    return consoles


@pytest.fixture
def bank(browser: Browser, shown: ExampleFederation) -> Iterator[Visitor]:
    visitor = Visitor(browser, shown.config(ACTIVE))
    yield visitor
    assert visitor.faults == []
    assert visitor.strangers == []
    visitor.leaves()


def test_a_model_is_activated_rolled_back_and_the_audit_log_says_by_whom(
    bank: Visitor, shown: ExampleFederation
) -> None:
    page = bank.page
    bank.goes_to("/models")
    page.get_by_role("link", name=SECOND).first.click()
    page.get_by_text("Activate…").click()
    page.get_by_role("button", name="Activate at all parties").click()
    expect(page.get_by_text(f"production is model {SECOND} from now on")).to_be_visible()
    served = fedmq("serving", shown.config(ACTIVE), "--json").result["models"]
    assert served["production"]["model"] == SECOND
    page.get_by_text("Roll back…").click()
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_text(f"production is model {SERVED} again")).to_be_visible()
    done = [
        (entry["who"], entry["did"])
        for entry in AuditLog(shown.state(ACTIVE)).entries()
        if entry["event"] == "console"
    ]
    assert done[-2:] == [("anna", "activate"), ("anna", "rollback")]


def test_what_cannot_be_done_is_said_in_the_daemons_words(bank: Visitor) -> None:
    bank.goes_to(f"/models/{SERVED}")
    bank.page.get_by_text("Activate…").click()
    bank.page.get_by_label("Under the name").fill("not a name!")
    bank.page.get_by_role("button", name="Activate at all parties").click()
    expect(bank.page.get_by_role("alert")).to_contain_text("write up to 64 letters")
    bank.faults.clear()  # the browser calls each answer that is no success an error


def test_a_score_has_reasons_and_says_who_took_how_long(
    bank: Visitor, shown: ExampleFederation
) -> None:
    bank.goes_to("/score")
    page = bank.page
    page.get_by_label("Id of the person").fill("P0000")
    page.get_by_role("button", name="Score", exact=True).click()
    told = fedmq("score", shown.config(ACTIVE), "P0000", "--json").result
    expect(page.get_by_text(f"{told['scores'][0]['score']:.5f}")).to_be_visible()
    took = page.locator("section", has_text="Who took how long")
    for party in PASSIVE:
        expect(took.get_by_role("row", name=party).last).to_contain_text("ms")
    expect(page.get_by_role("row", name="all columns").first).to_be_visible()


def test_somebody_whom_nobody_knows_gets_a_line(bank: Visitor) -> None:
    bank.goes_to("/score")
    bank.page.get_by_label("Id of the person").fill("<b>nobody</b>")
    bank.page.get_by_role("button", name="Score", exact=True).click()
    expect(bank.page.get_by_role("alert")).to_contain_text("is not known at")
    bank.faults.clear()


def test_a_tree_shows_own_splits_by_name_and_others_by_party_and_number(
    bank: Visitor, shown: ExampleFederation
) -> None:
    share = ModelStore(shown.state(ACTIVE)).active(SERVED)
    bank.goes_to(f"/models/{SERVED}")
    tree = bank.page.get_by_role("group", name=f"Tree 1 of {SERVED}")
    expect(tree).to_be_visible()
    for node in range(len(share.trees[0])):
        owner = int(share.trees[0].owner[node])
        if owner > ACTIVE_PARTY:
            split = f"{share.parties[owner]}, split {int(share.trees[0].record[node])}"
            expect(tree.get_by_text(split, exact=True).first).to_be_visible()


@pytest.mark.parametrize("page", ["/now", "/models", f"/models/{SERVED}", "/score"])
def test_other_parties_columns_and_thresholds_appear_nowhere(
    browser: Browser, shown: ExampleFederation, page: str
) -> None:
    for party in (ACTIVE, *PASSIVE):
        visitor = Visitor(browser, shown.config(party))
        visitor.goes_to(page)
        visitor.page.wait_for_timeout(700)
        text = visitor.page.content().replace("<wbr>", "")
        for other in {ACTIVE, *PASSIVE} - {party}:
            header = shown.table(other).read_text().partition("\n")[0].split(",")
            columns = set(header) - {"id", "label"}
            assert not [column for column in columns if column in text], (party, other)
        for other in set(PASSIVE) - {party}:
            table = ModelStore(shown.state(other)).passive(SERVED).lookup_table
            for threshold in table.threshold.tolist():
                assert f"{threshold:.6g}" not in text.split() or threshold == int(threshold)
        visitor.leaves()


def test_the_page_of_a_training_passes_axe_too(browser: Browser, shown: ExampleFederation) -> None:
    training = begin_training(shown, "looked-at", 500)
    visitor = Visitor(browser, shown.config(ACTIVE), width=320)
    expect(visitor.page.get_by_role("heading", name="Training of looked-at")).to_be_visible()
    expect(visitor.page.locator(".curve").first).to_be_visible()
    assert visitor.axe() == []
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 320
    visitor.page.get_by_text("Cancel…").click()
    visitor.page.get_by_role("button", name="Cancel the training").click()
    assert training.wait(60) == 6
    visitor.leaves()


def test_the_keyboard_reaches_everything(bank: Visitor) -> None:
    bank.goes_to("/models")
    reached = []
    for _ in range(25):
        bank.page.keyboard.press("Tab")
        reached.append(bank.page.evaluate("document.activeElement.textContent.trim().slice(0, 40)"))
    assert reached[0] == "Skip to the page"
    for words in ("Now", "Models", "Try a score", "Sign out", "Roll back…", SERVED, "Compare"):
        assert words in reached
