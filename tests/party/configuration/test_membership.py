"""Parties come and go in a federation's file, and the rest stays as people wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedmq.errors import ConfigError
from fedmq.party.configuration.federation import Federation, add_party, remove_party
from fedmq.transport.sealing.keys import PrivateKeys

KEYS = {name: PrivateKeys.generate().public for name in ("bank", "telco", "shop")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "federation.toml"
    path.write_text(
        '# ours\nname = "demo"\nactive = "bank"\npassive = [\n  "telco",\n]\n\n[keys]\n'
        f'bank = "{KEYS["bank"]}"  # by telephone\ntelco = {json.dumps([str(KEYS["telco"])])}\n'
    )
    return path


def test_a_party_comes_last_with_its_keys_and_goes_again(path: Path) -> None:
    before = Federation.read(path)
    add_party(path, "shop", KEYS["shop"])
    after = Federation.read(path)
    assert after.parties == ("bank", "telco", "shop")
    assert after.pinned("shop") == (KEYS["shop"],)
    remove_party(path, "shop")
    assert Federation.read(path) == before
    assert path.read_text().startswith("# ours\n")
    assert "# by telephone" in path.read_text()
    remove_party(path, "telco")
    assert Federation.read(path).parties == ("bank",)


@pytest.mark.parametrize("party", ["bank", "telco"])
def test_who_is_there_is_not_added_again(path: Path, party: str) -> None:
    text = path.read_text()
    with pytest.raises(ConfigError, match=f"{party} is a party already"):
        add_party(path, party, KEYS["shop"])
    assert path.read_text() == text


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_only_passive_parties_are_removed(path: Path, party: str) -> None:
    with pytest.raises(ConfigError, match=f"{party} is no passive party; there are: telco"):
        remove_party(path, party)


def test_a_federation_without_keys_is_no_place_for_a_key(path: Path) -> None:
    path.write_text('name = "demo"\nactive = "bank"\npassive = ["telco"]\n')
    with pytest.raises(ConfigError, match="no party has keys here"):
        add_party(path, "shop", KEYS["shop"])


def test_a_file_that_would_not_say_what_was_meant_is_left_alone(path: Path) -> None:
    text = path.read_text() + "\n[other]\n"
    path.write_text(text.replace("\n[other]\n", "\n"))
    path.write_text(path.read_text().replace('passive = [\n  "telco",\n]', 'passive = ["telco"]'))
    inline = path.read_text().replace("[keys]\n", "").replace('bank = "', 'keys.bank = "')
    path.write_text(inline.replace("telco = [", "keys.telco = ["))
    before = path.read_text()
    with pytest.raises(ConfigError, match="write a line for each, then try again"):
        add_party(path, "shop", KEYS["shop"])
    assert path.read_text() == before
