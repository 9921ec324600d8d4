"""A stranger mails a members' file in which the bank has the stranger's keys, or leads no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fedmq.cli.main import cli
from fedmq.party.configuration.federation import Federation
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.identity.joining import JoinRequest
from fedmq.transport.sealing.keys import PrivateKeys
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory


def typed(*words: str | Path, answer: str = "") -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], input=answer)


def fingerprint(folder: Path, party: str) -> str:
    """As the party's owner reads it out."""
    asked = JoinRequest.read(folder / party / f"{party}.request.json")
    return asked.public.fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Telco knows the true bank; `evil` is the file of a stranger that calls itself the bank."""
    begun = ("--broker", "localhost:5671")
    typed("join", tmp_path / "telco", "--party", "telco", *begun)
    telco = tmp_path / "telco" / "telco.request.json"
    for name in ("bank", "evil"):
        typed("join", tmp_path / name, "--party", "bank", "--active", *begun)
        read_out = fingerprint(tmp_path, "telco")
        typed("party", "add", tmp_path / name / "party.toml", telco, "--fingerprint", read_out)
    done = typed("join", tmp_path / "telco", "--members", tmp_path / "bank" / "federation.toml")
    assert done.exit_code == 0, done.output
    return tmp_path


def pinned(folder: Path, party: str) -> Federation:
    return Federation.read(folder / party / "federation.toml")


def test_another_key_is_shown_beside_the_first_and_asked_about(folder: Path) -> None:
    true, evil = (pinned(folder, name) for name in ("bank", "evil"))
    join = ("join", folder / "telco", "--members", folder / "evil" / "federation.toml")
    for answer in ("", "n\n"):
        refused = typed(*join, answer=answer)
        assert refused.exit_code != 0
        for keys in (*true.pinned("bank"), *evil.pinned("bank")):
            assert keys.fingerprint in refused.output
        assert pinned(folder, "telco") == true
    assert typed(*join, answer="y\n").exit_code == 0
    assert pinned(folder, "telco") == evil


def test_a_name_replaces_the_key_of_that_party_alone(folder: Path) -> None:
    evil = folder / "evil" / "federation.toml"
    join = ("join", folder / "telco", "--members", evil)
    assert typed(*join, "--replace-key", "retail").exit_code != 0
    assert pinned(folder, "telco") == pinned(folder, "bank")
    assert typed(*join, "--replace-key", "bank").exit_code == 0
    assert pinned(folder, "telco") == pinned(folder, "evil")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("second key", "bank would be"),
        ("another leads", "stranger would be a new party"),
        ("one more", "stranger would be a new party"),
    ],
)
def test_nobody_comes_beside_the_bank_or_in_its_place_without_a_question(
    folder: Path, change: str, said: str
) -> None:
    true = pinned(folder, "telco")
    own, bank = str(true.pinned("telco")[0]), str(true.pinned("bank")[0])
    stranger = str(PrivateKeys.generate().public)
    banks = [bank, stranger] if change == "second key" else [bank]
    leads = "stranger" if change == "another leads" else "bank"
    others = {"second key": ["telco"], "one more": ["telco", "stranger"]}.get(
        change, ["bank", "telco"]
    )
    more = {} if change == "second key" else {"stranger": [stranger]}
    keys = {"telco": [own], "bank": banks, **more}
    mailed = folder / "mailed.toml"
    mailed.write_text(
        f'name = "demo"\nactive = "{leads}"\npassive = {json.dumps(others)}\n[keys]\n'
        + "".join(f"{party} = {json.dumps(held)}\n" for party, held in keys.items())
    )
    refused = typed("join", folder / "telco", "--members", mailed)
    assert refused.exit_code != 0
    assert said in refused.output
    assert pinned(folder, "telco") == true


def test_another_federations_file_is_refused(folder: Path) -> None:
    text = (folder / "bank" / "federation.toml").read_text()
    mailed = folder / "mailed.toml"
    mailed.write_text(text.replace('name = "demo"', 'name = "other"'))
    refused = typed("join", folder / "telco", "--members", mailed, "--replace-key", "bank")
    assert "this party is in federation 'demo'" in str(refused.exception or refused.output)


def test_the_same_file_is_taken_again_without_a_question(folder: Path) -> None:
    join = ("join", folder / "telco", "--members", folder / "bank" / "federation.toml")
    assert typed(*join).exit_code == 0


def test_a_key_that_nobody_pinned_before_is_asked_about_also_when_it_is_typed(
    folder: Path,
) -> None:
    evil = str(pinned(folder, "evil").pinned("bank")[0])
    trust = ("keys", "trust", folder / "telco" / "party.toml", "bank", evil, "--only")
    refused = typed(*trust)
    assert refused.exit_code != 0
    assert pinned(folder, "telco") == pinned(folder, "bank")
    assert typed(*trust, "--replace-key", "bank").exit_code == 0
    assert [str(key) for key in pinned(folder, "telco").pinned("bank")] == [evil]


async def test_the_audit_log_keeps_whose_keys_changed_also_while_the_daemon_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {party: PrivateKeys.generate() for party in PARTIES}
    demo = DaemonsInMemory(tmp_path, monkeypatch, keys=keys)
    file = tmp_path / "federation.toml"
    stranger = PrivateKeys.generate().public

    async def recorded(number: int) -> list[dict[str, Any]]:
        async def enough() -> list[dict[str, Any]]:
            entries = list(AuditLog(tmp_path / "telco" / "state").entries())
            found = [entry for entry in entries if entry["event"] == "keys pinned"]
            return found if len(found) == number else []

        return list(await demo.until(enough))

    async with demo:
        [first] = await recorded(1)
        assert first["pinned"]["bank"] == [keys["bank"].public.fingerprint]
        await demo.stop("telco")
        text = file.read_text()
        file.write_text(text.replace(str(keys["bank"].public), str(stranger)))
        await demo.start("telco")
        [_, second] = await recorded(2)
        before, now = keys["bank"].public.fingerprint, stranger.fingerprint
        assert second["changed"] == {"bank": {"before": [before], "now": [now]}}
        file.write_text(text)
        await demo.ask("telco", "reload")
        [*_, third] = await recorded(3)
        assert third["changed"] == {"bank": {"before": [now], "now": [before]}}
        await demo.ask("telco", "reload")
        await recorded(3)
