"""An organisation joins: what is missing is named, and no fingerprint is given away."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.party.identity.joining import JoinRequest
from tests.cli.command import fedmq


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The folder of a shop that has asked to join the federation beside it."""
    parties = ("--active", "bank", "--passive", "telco", "--broker", "127.0.0.1:1")
    assert fedmq("init", tmp_path / "federation", *parties).code == 0
    assert fedmq("join", tmp_path / "shop", "--party", "shop", "--broker", "mq:5671").code == 0
    return tmp_path / "shop"


def test_a_saved_request_waits_in_a_list_until_its_party_is_added(shop: Path) -> None:
    bank = shop.parent / "federation" / "bank"
    listed = fedmq("party", "requests", bank / "party.toml")
    assert "nobody waits" in listed.out
    saved = bank / "requests" / "shop.request.json"
    saved.parent.mkdir()
    saved.write_text((shop / "shop.request.json").read_text())
    waiting = fedmq("party", "requests", bank / "party.toml")
    right = JoinRequest.read(saved).public.fingerprint
    assert "shop" in waiting.out and right not in waiting.out + waiting.err
    assert waiting.err.splitlines()[-1] == f"next: fedmq party add {bank / 'party.toml'} {saved}"
    assert fedmq("party", "add", bank / "party.toml", saved, "--fingerprint", right).code == 0
    assert fedmq("party", "requests", bank / "party.toml", "--json").result == []


def test_a_wrong_fingerprint_does_not_tell_the_right_one(shop: Path) -> None:
    bank, request = shop.parent / "federation/bank/party.toml", shop / "shop.request.json"
    own = fedmq("keys", "show", bank, "--json").result[0]["fingerprint"]
    right = JoinRequest.read(request).public.fingerprint
    refused = fedmq("party", "add", bank, request, "--fingerprint", own)
    assert refused.code == 3
    assert "has another fingerprint than the one given, so shop is not added" in refused.error
    assert not any(group in refused.error for group in right.split())


def test_without_a_terminal_the_option_is_named(shop: Path) -> None:
    bank = shop.parent / "federation/bank/party.toml"
    refused = fedmq("party", "add", bank, shop / "shop.request.json")
    assert refused.code == 3
    assert refused.error.endswith("there is no terminal; say it with --fingerprint FINGERPRINT")


def test_a_folder_that_is_not_complete_says_what_is_missing(shop: Path) -> None:
    broker, request = shop.parent / "federation/broker", shop / "shop.request.json"
    assert fedmq("broker", "sign", broker, request).code == 0
    [signed] = shop.parent.rglob("shop.signed.json")
    joined = fedmq("join", shop, "--signed", signed)
    assert joined.code == 0
    assert "not complete yet; still missing: federation.toml, from a member" in joined.out
    assert joined.err.splitlines()[-1] == f"next: fedmq join {shop} --members federation.toml"
