"""``fedmq status``, ``cancel``, ``pause`` and ``resume``: an owner's say in a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedmq.cli.daemon_request import ask_daemon, party_argument_help, state_of
from fedmq.cli.output import json_option, print_result

__all__ = ["cancel", "pause", "resume", "status"]

_PLURAL = {"tree": "trees", "leaf": "leaves"}


@click.command(epilog=party_argument_help)
@click.argument("party", type=click.Path(path_type=Path))
@json_option
def status(party: Path, as_json: bool) -> None:
    """Show the broker connection and the sessions of the daemon of PARTY."""
    print_result(ask_daemon(state_of(party), {"do": "status"}), as_json, _in_words)


@click.command(epilog=party_argument_help)
@click.argument("party", type=click.Path(path_type=Path))
@click.argument("session")
@json_option
def cancel(party: Path, session: str, as_json: bool) -> None:
    """End SESSION at the daemon of PARTY; every party is told."""
    request = {"do": "cancel", "session": session}
    result = ask_daemon(state_of(party), request)
    print_result(result, as_json, lambda done: f"session {done['session']} is cancelled")


@click.command(epilog=party_argument_help)
@click.argument("party", type=click.Path(path_type=Path))
@click.argument("session")
@json_option
def pause(party: Path, session: str, as_json: bool) -> None:
    """Let the training SESSION rest after the tree that grows now, also across restarts."""
    result = ask_daemon(state_of(party), {"do": "pause", "session": session})
    print_result(result, as_json, lambda done: f"session {done['session']} rests after this tree")


@click.command(epilog=party_argument_help)
@click.argument("party", type=click.Path(path_type=Path))
@click.argument("session")
@json_option
def resume(party: Path, session: str, as_json: bool) -> None:
    """Let the paused training SESSION go on."""
    result = ask_daemon(state_of(party), {"do": "resume", "session": session})
    print_result(result, as_json, lambda done: f"session {done['session']} goes on")


def _in_words(result: Any) -> str:
    lines = [
        f"{result['party']} ({result['role']}) in {result['federation']} "
        f"with {', '.join(result['parties'])}",
        f"broker: {result['broker']}",
        f"models: {result['models']}",
    ]
    for each in result["sessions"]:
        total = f" of {each['total']} {_PLURAL[each['unit']]}" if each["total"] else ""
        lines.append(
            f"{each['purpose']} {each['session']} of {each['model']}: {each['done']}{total}, "
            f"{each['meaning']}"
        )
        lines += [f"  {wait}" for wait in each["waiting"]]
    lines += result["idle"]
    kept = {"dead letters": result["dead_letters"], "dropped": result["dropped"]}
    counts = {**{f"refused ({why})": each for why, each in result["refused"].items()}, **kept}
    if any(counts.values()):
        said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        lines.append(f"messages since the start: {said}")
    lines += [result["store"]] if result["store"] else []
    return "\n".join(lines)
