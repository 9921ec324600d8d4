"""``fedmq keys``, as the owners of two parties type it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedmq.cli.main import cli
from fedmq.errors import ConfigError
from fedmq.party.configuration.federation import Federation
from fedmq.party.identity.private_keys import PASSPHRASE_VARIABLE
from fedmq.transport.sealing.keys import PublicKeys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two parties, each with a federation file of its own, and no keys."""
    for party, label in (("bank", 'label = "y"'), ("telco", "")):
        home = tmp_path / party
        home.mkdir()
        (home / "federation.toml").write_text(
            'name = "demo"\nactive = "bank"\npassive = ["telco"]\n'
        )
        (home / "party.toml").write_text(
            f'party = "{party}"\nfederation = "federation.toml"\n'
            f'broker = "amqp://{party}:x@localhost/"\n[data]\npath = "d.csv"\nid = "id"\n{label}\n'
        )
    return tmp_path


def typed(*words: str | Path, env: dict[str, str] | None = None) -> Any:
    """What ``fedmq keys`` prints as JSON."""
    result = CliRunner().invoke(
        cli, ["keys", *map(str, words), "--json"], env=env, standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout)


def test_two_owners_exchange_their_keys(folder: Path) -> None:
    made = {party: typed("new", folder / party / "party.toml") for party in ("bank", "telco")}
    for here, there in (("bank", "telco"), ("telco", "bank")):
        typed("trust", folder / here / "party.toml", there, made[there]["public"])

    shown = {party: typed("show", folder / party / "party.toml") for party in ("bank", "telco")}
    assert sorted(shown["bank"], key=str) == sorted(shown["telco"], key=str)
    for party in ("bank", "telco"):
        federation = Federation.read(folder / party / "federation.toml")
        assert [str(key) for key in federation.pinned("bank")] == [made["bank"]["public"]]
        assert (folder / party / "keys.json").stat().st_mode & 0o777 == 0o600


def test_a_key_changes_in_two_steps(folder: Path) -> None:
    party = folder / "bank" / "party.toml"
    first = typed("new", party)["public"]

    second = typed("rotate", party)["public"]
    assert typed("rotate", party)["public"] == second  # others may seal to it already
    assert [key["public"] for key in typed("show", party)] == [first, second]

    assert typed("rotate", party, "--finish")["public"] == second
    assert [key["public"] for key in typed("show", party)] == [second]
    with pytest.raises(ConfigError, match="there is no next key yet"):
        typed("rotate", party, "--finish")


def test_a_stolen_key_is_replaced_at_once(folder: Path) -> None:
    party = folder / "bank" / "party.toml"
    first = typed("new", party)["public"]
    replaced = typed("rotate", party, "--now")["public"]
    assert [key["public"] for key in typed("show", party)] == [replaced] != [first]


def test_trusting_another_key_adds_it_or_replaces_the_first(folder: Path) -> None:
    telco = [typed("new", folder / "telco" / "party.toml")["public"]]
    telco.append(typed("rotate", folder / "telco" / "party.toml")["public"])
    bank = folder / "bank" / "party.toml"

    for key in telco:
        typed("trust", bank, "telco", key)
    assert [key["public"] for key in typed("show", bank)] == telco
    typed("trust", bank, "telco", telco[1], "--only")
    assert [key["public"] for key in typed("show", bank)] == telco[1:]


@pytest.mark.parametrize("first", [b"\xf8\x00", b"\xfa\x10", b"\xfb\xe0"])
def test_a_key_that_begins_with_hyphens_is_trusted(folder: Path, first: bytes) -> None:
    key = str(PublicKeys(first.ljust(32, b"s"), b"a" * 32))
    assert key.startswith("-")
    party = folder / "bank" / "party.toml"
    typed("trust", party, "telco", key, "--only")
    assert [key["public"] for key in typed("show", party)] == [key]


def test_a_passphrase_from_the_environment_locks_and_opens(folder: Path) -> None:
    party = folder / "bank" / "party.toml"
    secret = {"FEDMQ_KEYS_PASSPHRASE": "open sesame"}
    typed("new", party, "--passphrase", env=secret)
    with pytest.raises(ConfigError, match="locked with a passphrase"):
        typed("rotate", party)
    typed("rotate", party, env=secret)
    with pytest.raises(ConfigError, match="locked with a passphrase"):
        typed("rotate", party, "--finish")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["bank", "x"], "is no party's public key"),
        (["bank", "--onyl"], "is no party's public key"),
        (["retail", "A" * 86], "'retail' is not among the parties"),
    ],
)
def test_what_cannot_be_trusted(folder: Path, words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        typed("trust", folder / "telco" / "party.toml", *words)


@pytest.mark.parametrize(("words", "only"), [([], False), (["--now"], True)])
def test_whoever_changes_a_key_is_told_what_the_others_type(
    folder: Path, words: list[str], only: bool
) -> None:
    party = folder / "bank" / "party.toml"
    typed("new", party)
    shown = CliRunner().invoke(cli, ["keys", "rotate", str(party), *words]).stdout
    key = typed("show", party)[-1]["public"]
    assert shown.endswith(f"fedmq keys trust PARTY.toml bank {key}{' --only' if only else ''}\n")


def test_keys_are_not_overwritten(folder: Path) -> None:
    typed("new", folder / "bank" / "party.toml")
    with pytest.raises(ConfigError, match="there are keys already"):
        typed("new", folder / "bank" / "party.toml")


def test_the_federation_file_keeps_what_people_wrote(folder: Path) -> None:
    path = folder / "bank" / "federation.toml"
    path.write_text("# ours\n" + path.read_text() + "\n[keys]\n# by telephone, 3 May\n")
    typed("new", folder / "bank" / "party.toml")
    assert "# ours\n" in path.read_text()
    assert "# by telephone, 3 May\nbank = " in path.read_text()


def with_command(folder: Path, *command: str) -> Path:
    """The bank's file, with a command that prints the passphrase."""
    party = folder / "bank" / "party.toml"
    party.write_text(f"keys_passphrase = {json.dumps(command)}\n{party.read_text()}")
    return party


def test_a_command_opens_the_keys(folder: Path) -> None:
    typed(
        "new", folder / "bank" / "party.toml", "--passphrase", env={PASSPHRASE_VARIABLE: "sesame"}
    )
    party = with_command(folder, "echo", "sesame")
    before = typed("show", party)[0]["public"]
    assert typed("rotate", party, env={PASSPHRASE_VARIABLE: ""})["public"] != before


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("echo", "abracadabra"), "the passphrase does not open these keys"),
        (("/no/such/program",), "keys_passphrase: /no/such/program cannot be run: No such file"),
        (("sh", "-c", "echo sealed >&2; exit 2"), "keys_passphrase: sh failed with code 2: sealed"),
        (("true",), "keys_passphrase: true printed 0 lines, not the passphrase alone"),
        (("printf", "a\\nb"), "keys_passphrase: printf printed 2 lines"),
    ],
)
def test_a_command_that_opens_nothing_is_named(
    folder: Path, command: tuple[str, ...], why: str
) -> None:
    typed(
        "new", folder / "bank" / "party.toml", "--passphrase", env={PASSPHRASE_VARIABLE: "sesame"}
    )
    with pytest.raises(ConfigError, match=why):
        typed("rotate", with_command(folder, *command))
