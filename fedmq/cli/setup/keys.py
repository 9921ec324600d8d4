"""``fedmq keys``: the keys that seal messages between the parties."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument
from fedmq.cli.setup.daemon_reload import taken_up
from fedmq.cli.table import table
from fedmq.errors import ConfigError
from fedmq.party.configuration.federation import pin, pinned
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.toml_file import read_toml
from fedmq.party.identity import private_keys
from fedmq.party.identity.private_keys import PASSPHRASE_VARIABLE, KeyRing
from fedmq.transport.sealing.keys import PrivateKeys, PublicKeys

__all__ = ["ask_passphrase", "keys"]


def ask_passphrase() -> str:
    """The passphrase, from the environment or from whoever sits at the terminal."""
    if PASSPHRASE_VARIABLE in os.environ or not sys.stdin.isatty():
        return private_keys.passphrase_from_environment()
    answer: str = click.prompt("Passphrase of the private keys", hide_input=True, err=True)
    return answer


def _new_passphrase(wanted: bool) -> str | None:
    if not wanted:
        return None
    if PASSPHRASE_VARIABLE in os.environ:
        return os.environ[PASSPHRASE_VARIABLE]
    prompt = "New passphrase of the private keys"
    answer: str = click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True)
    return answer


locked_option = click.option(
    "--passphrase",
    "locked",
    is_flag=True,
    help=f"Lock the file with a passphrase, from {PASSPHRASE_VARIABLE} or the terminal.",
)


@click.group(epilog=PARTY_HELP)
def keys() -> None:
    """Make, show, change and trust the keys that seal messages between the parties."""


@keys.command(epilog=PARTY_HELP)
@party_argument
@locked_option
@json_option
def new(party: Path, locked: bool, as_json: bool) -> None:
    """Make the keys of PARTY, and pin the public ones in its federation file."""
    config = read_toml(party, PartyFile)
    if config.keys.exists():
        raise ConfigError(
            f"{config.keys}: there are keys already; change them with: fedmq keys rotate"
        )
    ring = KeyRing(config.party, PrivateKeys.generate())
    private_keys.write(config.keys, ring, _new_passphrase(locked))
    pin(config.federation, config.party, [ring.current.public])
    print_result(_described(config.party, ring.current.public), as_json, _to_send)
    print_next_step(as_json, "keys show", party)


@keys.command(epilog=PARTY_HELP)
@party_argument
@json_option
def show(party: Path, as_json: bool) -> None:
    """Show the public keys that PARTY has pinned, its own among them, with fingerprints.

    Compare a fingerprint by telephone: both sides read the same eight groups.
    """
    config = read_toml(party, PartyFile)
    pins = pinned(config.federation)
    result = [_described(name, key) for name, found in pins.items() for key in found]
    print_result(result, as_json, _pinned)
    print_next_step(as_json, "run" if result else "keys new", party)


@keys.command(epilog=PARTY_HELP)
@party_argument
@click.option("--finish", is_flag=True, help="The others trust the next key: sign with it.")
@click.option("--now", is_flag=True, help="The key is stolen: use another, drop the old one.")
@locked_option
@json_option
def rotate(party: Path, finish: bool, now: bool, locked: bool, as_json: bool) -> None:
    """Change the keys of PARTY in two steps, so that no message is refused meanwhile.

    First: rotate makes the next key, or shows it again; send it to the others, who trust it. Then:
    rotate --finish, and new sessions are signed with it. What is still sealed to the old key is
    opened until the next change. A running daemon takes it up at once.
    """
    config = read_toml(party, PartyFile)
    passphrase = ask_passphrase() if private_keys.is_locked(config.keys) else None
    ring = private_keys.read(config.keys, config.party, lambda: passphrase or "")
    if now:
        ring = KeyRing(config.party, PrivateKeys.generate())
    else:
        ring = ring.advanced() if finish else ring.prepared()
    private_keys.write(config.keys, ring, passphrase or _new_passphrase(locked))
    signing = ring.current.public
    newest = ring.next.public if ring.next else signing
    pin(config.federation, config.party, list(dict.fromkeys([signing, newest])))
    result = _reloaded(config, _described(config.party, newest))
    print_result(result, as_json, partial(_to_send, only=now or finish))
    if now or finish:
        print_next_step(as_json, "keys show", party)
    else:
        print_next_step(as_json, "keys rotate", party, "--finish")


# Every 64th public key begins with a hyphen, and must not count as short options.
@keys.command(
    epilog=PARTY_HELP,
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
)
@party_argument
@click.argument("peer")
@click.argument("public")
@click.option("--only", is_flag=True, help="Forget the keys that were trusted before.")
@json_option
def trust(party: Path, peer: str, public: str, only: bool, as_json: bool) -> None:
    """Pin the key PUBLIC of the party PEER, as its owner's fedmq keys show printed it.

    Compare the fingerprint with the owner first. A running daemon takes it up at once; sessions
    that run keep the keys they began with.
    """
    config = read_toml(party, PartyFile)
    key = PublicKeys.from_text(public)
    if peer == config.party:
        raise ConfigError(f"{peer} is this party itself; use: fedmq keys new, or rotate")
    before = () if only else pinned(config.federation).get(peer, ())
    pin(config.federation, peer, [*(old for old in before if old != key), key])
    print_result(_reloaded(config, _described(peer, key)), as_json, _with_daemon)
    print_next_step(as_json, "keys show", party)


def _reloaded(config: PartyFile, result: dict[str, Any]) -> dict[str, Any]:
    """``result``, and whether a running daemon has taken up the change."""
    return {**result, "daemon": taken_up(config)}


def _described(party: str, key: PublicKeys) -> dict[str, Any]:
    return {"party": party, "public": str(key), "fingerprint": key.fingerprint}


def _pinned(found: Any) -> str | Text:
    if not found:
        return "no keys yet"
    # A line of its own for each public key, which nothing wraps: it is copied from here.
    keys_below = [[key["public"]] for key in found]
    rows = [(key["party"], key["fingerprint"]) for key in found]
    return table(("party", "fingerprint, and the public key below"), rows, keys_below)


def _line(key: Any) -> str:
    return f"{key['party']:<12} {key['fingerprint']}  {key['public']}"


def _with_daemon(key: Any) -> str:
    return "\n".join([_line(key), *([key["daemon"]] if "daemon" in key else [])])


def _to_send(key: Any, only: bool = False) -> str:
    command = f"fedmq keys trust PARTY.toml {key['party']} {key['public']}"
    if only:
        return f"{_with_daemon(key)}\nThe others forget the old one:\n  {command} --only"
    return (
        f"{_with_daemon(key)}\n"
        "The others pin it, once they have heard the fingerprint from you:\n"
        f"  {command}"
    )
