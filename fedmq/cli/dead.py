"""``fedmq dead``: messages that a party could not take, and why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from fedmq.cli.output import json_option, print_next_step, print_result
from fedmq.cli.party_daemon import PARTY_HELP, party_argument
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.control import send_request
from fedmq.party.operations.dead_letters import DeadLetter, DeadLetterBox

__all__ = ["dead"]

letters_argument = click.argument("letters", nargs=-1)
all_option = click.option("--all", "every", is_flag=True, help="Every letter.")


@click.group(epilog=PARTY_HELP)
def dead() -> None:
    """List, show, retry or remove messages that PARTY could not take."""


@dead.command("list", epilog=PARTY_HELP)
@party_argument
@json_option
def list_letters(party: Path, as_json: bool) -> None:
    """List the dead letters of PARTY, the oldest first."""
    found = _for_letters(party, None, None)
    print_result(found, as_json, _lines)
    shown = ("dead show", party, found[0]["letter"]) if found else ("status", party)
    print_next_step(as_json, *shown)


@dead.command(epilog=PARTY_HELP)
@party_argument
@click.argument("letter")
@json_option
def show(party: Path, letter: str, as_json: bool) -> None:
    """Show LETTER: why it died, and its header. Its body stays sealed."""
    [found, *_] = _for_letters(party, (letter,), None)
    print_result(found, as_json, lambda shown: json.dumps(shown, indent=2))
    print_next_step(as_json, "dead requeue", party, letter)


@dead.command(epilog=PARTY_HELP)
@party_argument
@letters_argument
@all_option
@json_option
def drop(party: Path, letters: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Remove LETTERS for good."""

    async def dropped(box: DeadLetterBox, letter: DeadLetter) -> dict[str, Any]:
        await box.drop(letter)
        return {"letter": letter.id}

    done = _for_letters(party, _wanted(letters, every), dropped)
    print_result(done, as_json, lambda _: f"dropped {len(done)}")
    print_next_step(as_json, "dead list", party)


@dead.command(epilog=PARTY_HELP)
@party_argument
@letters_argument
@all_option
@json_option
def requeue(party: Path, letters: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Give LETTERS to the daemon of PARTY again; letters that it refuses again stay."""
    state = PartyFile.read(party)[0].state

    async def redelivered(box: DeadLetterBox, letter: DeadLetter) -> dict[str, Any]:
        answer = [event async for event in send_request(state, letter.request())][-1]["result"]
        if answer["taken"]:
            await box.drop(letter)
        return {"letter": letter.id, **answer}

    done = _for_letters(party, _wanted(letters, every), redelivered)
    print_result(done, as_json, lambda _: "\n".join(map(_outcome, done)) or "no dead letters")
    print_next_step(as_json, "dead list", party)


Act = Callable[[DeadLetterBox, DeadLetter], Awaitable[dict[str, Any]]]


def _for_letters(
    party: Path, wanted: tuple[str, ...] | None, act: Act | None
) -> list[dict[str, Any]]:
    """The results of ``act`` for each wanted letter, or the letters; None means all letters."""

    async def work() -> list[dict[str, Any]]:
        async with DeadLetterBox.opened(*PartyFile.read(party)) as box:
            found = await box.letters(None if wanted is None else frozenset(wanted))
            if act is None:
                return [letter.described() for letter in found]
            return [await act(box, letter) for letter in found]

    return asyncio.run(work())


def _wanted(letters: tuple[str, ...], every: bool) -> tuple[str, ...] | None:
    if bool(letters) == every:
        raise click.UsageError("name letters, or write --all")
    return None if every else letters


def _lines(letters: Any) -> str:
    return "\n".join(map(_line, letters)) or "no dead letters"


def _line(letter: Any) -> str:
    header = letter["header"] or {}
    what = f"{header.get('kind', '?')} from {header.get('sender') or letter['sender'] or '?'}"
    return f"{letter['letter']}  {letter['at'] or '':<25}  {what}: {letter['reason']}"


def _outcome(done: Any) -> str:
    return f"{done['letter']}  " + ("taken" if done["taken"] else f"refused: {done['reason']}")
