"""The party's own table in the browser."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.party.console.chromium import Visitor
from tests.party.daemons import ExampleFederation


def test_columns_are_drawn_with_the_cuts_of_a_training(
    browser: Browser, consoles: ExampleFederation
) -> None:
    telco = Visitor(browser, consoles.config("telco"), "viewer")
    telco.goes_to("/data")
    page = telco.page
    header = consoles.table("telco").read_text().splitlines()[0].split(",")
    for column in header:
        expect(page.get_by_role("rowheader", name=column, exact=False).first).to_be_visible()
    expect(page.get_by_role("img", name="cuts").first).to_be_visible()
    page.get_by_label("Bins of a column, at most").select_option("16")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("max_bin = 16")).to_be_visible()
    expect(page.get_by_text(consoles.table("telco").name, exact=True)).to_be_visible()
    page.get_by_role("button", name="Read again").click()
    expect(page.get_by_text("The table was read again.")).to_be_visible()
    expect(page.get_by_text("There are none. The active party makes one")).to_be_visible()
    # The name of a column alone: the page itself speaks of labels.
    shown = page.locator("table.columns th[scope=row]").all_inner_texts()
    assert [name.split()[0] for name in shown] == header
    assert telco.faults == []
    assert telco.strangers == []
    # What `fedmq data check` warns of stands above the columns.
    table = consoles.table("telco")
    lines = table.read_text().splitlines()
    table.write_text("\n".join([f",{lines[0]}", *(f"1,{line}" for line in lines[1:])]) + "\n")
    page.get_by_role("button", name="Read again").click()
    expect(page.get_by_text("has no name: is it the index of a data frame?")).to_be_visible()
    telco.leaves()
