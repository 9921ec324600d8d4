"""Requests are read and answered in the browser; what others wrote into them stays text."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fedmq.party.configuration.party import PartyFile
from tests.cli.command import fedmq
from tests.party.console.chromium import Visitor
from tests.party.console.served_console import ANNA, serve
from tests.party.console.shown_federation import ASKS, add_to_policy
from tests.party.daemons import ACTIVE, FEDMQ, ExampleFederation

SCRIPT = "<script>alert(1)</script>"
ASKED = ("telco", "retail")
JOB = """
engine = "paillier"
engine_options = { key_bits = 512, allow_weak_keys = true }
[params]
num_boost_round = %d
max_depth = 2
max_bin = 8
"""


def request(**changes: Any) -> dict[str, Any]:
    """A training that waits."""
    terms = {
        "alignment": "people",
        "rows": 400,
        "evaluation_rows": 40,
        "engine": "paillier",
        "key_bits": 2048,
        "trees": 10,
        "own_trees": 0,
        "max_depth": 3,
        "max_leaves": 0,
        "max_bin": 32,
        "gradient_bits": 41,
        "folds": 1,
        "continues": "",
        "columns_named": [SCRIPT],
        "particulars": ["monotone constraints"],
        "label_holder_learns": "sums",
        "this_party_learns": "nodes",
        "known_leak": "",
        "measured": [],
        "measured_in": "",
        "spent": {"trainings": 3, "most_trainings_per_day": 100, "answered": None},
    }
    return {
        "request": "9f3c01ab",
        "session": "12ab",
        "kind": "training",
        "peer": "bank",
        "name": "m",
        "asked": "2026-11-22T16:00:00+00:00",
        "until": "2026-11-23T16:00:00+00:00",
        "state": "waiting",
        "reason": "",
        "decided_by": "",
        "decided": None,
        "terms": terms,
        **changes,
    }


ANSWERED = {"state": "refused", "decided_by": SCRIPT, "decided": "2026-11-22T16:00:00+00:00"}
ANSWERS: dict[str, Any] = {
    "inbox": [request(), request(request="old", reason=SCRIPT, name=SCRIPT, **ANSWERED)],
    "alike": {"file": "party.toml", "diff": f"--- a\n+++ a\n@@ -1 +1,2 @@\n+{SCRIPT}\n"},
    "approve": {},
    "refuse": {},
}


async def test_scripts_in_what_others_wrote_are_text(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        await served.sign_in("approver")
        for path in ("/inbox", "/inbox/9f3c01ab/alike", "/inbox/news?known=" + SCRIPT):
            answer = await served.client.get(f"/console{path}")
            assert answer.status_code == 200
            assert SCRIPT not in answer.text
        shown = await served.client.get("/console/inbox")
        assert shown.text.count("&lt;script&gt;") == 4


@pytest.mark.parametrize("roles", [(), ("viewer",), ("operator",)])
async def test_who_is_no_approver_answers_nothing(tmp_path: Path, roles: tuple[str, ...]) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in(*roles)
        assert ">Approve<" not in (await served.client.get("/console/inbox")).text
        for path in ("approve", "refuse"):
            answer = await served.send(f"/inbox/9f3c01ab/{path}", csrf)
            assert answer.status_code == 403
            assert "it takes the role approver" in answer.text
        alike = await served.client.get("/console/inbox/9f3c01ab/alike")
        assert "/approve" not in alike.text
        assert not {asked["do"] for asked in served.asked} & {"approve", "refuse"}


async def test_another_site_approves_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in("approver")
        for token, origin in ((csrf, "https://evil.example"), ("", str(served.client.base_url))):
            answer = await served.client.post(
                "/console/inbox/9f3c01ab/approve",
                data={"csrf": token},
                headers={"Origin": origin.rstrip("/")},
            )
            assert answer.status_code == 403
        assert "approve" not in {asked["do"] for asked in served.asked}


async def test_an_approver_answers_in_the_own_name(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in("approver")
        diff = ANSWERS["alike"]["diff"]
        await served.send(
            "/inbox/9f3c01ab/approve", csrf, person="mallory", diff=diff.replace("\n", "\r\n")
        )
        assert served.asked[-1] == {
            "do": "approve",
            "request": "9f3c01ab",
            "person": ANNA,
            "diff": diff,
        }
        await served.send("/inbox/9f3c01ab/refuse", csrf, reason=" in May ")
        assert served.asked[-1]["reason"] == "in May"
        assert served.audited() == ["sign in", "approve", "refuse"]


async def test_a_reason_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        csrf = await served.sign_in("approver")
        answer = await served.send("/inbox/9f3c01ab/refuse", csrf, reason="x" * 1001)
        assert "at most 1,000 characters" in answer.text
        assert served.asked[-1]["do"] != "refuse"


async def test_the_page_is_told_at_once_which_requests_wait(tmp_path: Path) -> None:
    async with serve(tmp_path, ANSWERS) as served:
        await served.sign_in("viewer")
        shown = (await served.client.get("/console/inbox")).text
        assert 'data-live="/console/inbox/events"' in shown
        assert 'data-series="9f3c01ab"' in shown
        async with served.client.stream("GET", "/console/inbox/events") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    assert json.loads(line.removeprefix("data: ")) == {"data:news": "9f3c01ab"}
                    break


@pytest.fixture(scope="module")
def asking(consoles: ExampleFederation) -> ExampleFederation:
    """Daemons with consoles, whose owners are asked but for the active party's."""
    add_to_policy(consoles, ASKS, *ASKED)
    return consoles


def begin(asking: ExampleFederation, model: str, trees: int = 3) -> subprocess.Popen[bytes]:
    job = asking.job(f'model = "{model}"\n{JOB % trees}')
    return subprocess.Popen(
        [FEDMQ, "train", str(job)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def test_consent_given_at_two_parties_unblocks_a_training(
    browser: Browser, asking: ExampleFederation
) -> None:
    bank = Visitor(browser, asking.config(ACTIVE))
    owners = {party: Visitor(browser, asking.config(party), "approver") for party in ASKED}
    for owner in owners.values():
        owner.goes_to("/inbox")
        expect(owner.page.get_by_text("Nothing waits for your consent.")).to_be_visible()
    training = begin(asking, "agreed")
    expect(bank.page.get_by_text("Waits for telco's consent")).to_be_visible()
    expect(bank.page.get_by_text("Waits for retail's consent")).to_be_visible()
    for party, owner in owners.items():
        owner.page.get_by_role("link", name="Show it").click()
        words = owner.page.get_by_role("heading", name="bank asks to train model agreed")
        expect(words).to_be_visible()
        expect(owner.page.get_by_text("paillier, keys of 512 bits")).to_be_visible()
        expect(owner.page.get_by_text("where guessing reaches").first).to_be_visible()
        owner.page.get_by_role("button", name="Approve", exact=True).click()
        expect(owner.page.get_by_text("is approved.")).to_be_visible()
        expect(bank.page.get_by_text(f"Waits for {party}'s consent")).to_be_hidden()
    assert training.wait(60) == 0
    finished = bank.page.get_by_role("row", name="agreed").get_by_text("finished")
    expect(finished).to_be_visible()
    for visitor in (bank, *owners.values()):
        assert visitor.faults == []
        assert visitor.strangers == []
        visitor.leaves()


def test_a_refusal_shows_its_reason_at_the_active_party(
    browser: Browser, asking: ExampleFederation
) -> None:
    bank = Visitor(browser, asking.config(ACTIVE))
    telco = Visitor(browser, asking.config("telco"), "approver")
    training = begin(asking, "unwanted")
    expect(bank.page.get_by_text("Waits for telco's consent")).to_be_visible()
    telco.goes_to("/inbox")
    telco.page.get_by_text("Refuse…").click()
    telco.page.get_by_label("Why; bank reads it").fill(f"not in May {SCRIPT}")
    telco.page.get_by_role("button", name="Refuse", exact=True).click()
    expect(telco.page.get_by_text("is refused.")).to_be_visible()
    expect(bank.page.get_by_text(f"telco refused: not in May {SCRIPT}")).to_be_visible()
    assert training.wait(60) == 6
    for visitor in (bank, telco):
        assert visitor.faults == []
        visitor.leaves()


def test_alike_shows_the_change_of_the_file_and_makes_it(
    browser: Browser, asking: ExampleFederation
) -> None:
    telco = Visitor(browser, asking.config("telco"), "approver")
    before = asking.config("telco").read_text()
    training = begin(asking, "alike")
    telco.goes_to("/inbox")
    telco.page.wait_for_function("document.querySelector('.sheet, a[href=\"/console/inbox\"]')")
    for _ in range(100):
        if telco.page.get_by_role("link", name="Approve alike…").is_visible():
            break
        telco.page.wait_for_timeout(100)
        telco.goes_to("/inbox")
    telco.page.get_by_role("link", name="Approve alike…").click()
    expect(telco.page.get_by_text("+most_trees = 3")).to_be_visible()
    telco.page.get_by_role("button", name="Approve, and change the file").click()
    expect(telco.page.get_by_text("approves similar requests from now on")).to_be_visible()
    expect(telco.page.get_by_role("heading", name="Approved for all times")).to_be_visible()
    assert asking.config("telco").read_text().startswith(before)
    [standing] = PartyFile.read(asking.config("telco"))[0].policy.approved
    assert standing.most_trees == 3
    retail = asking.config("retail")
    for found in fedmq("inbox", retail, "--json").result:
        fedmq("approve", retail, found["request"])
    assert training.wait(60) == 0
    assert telco.faults == []
    telco.leaves()
