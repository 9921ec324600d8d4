"""``fedmq status``, ``cancel``, ``pause`` and ``resume``: the sessions of a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument, state_folder

__all__ = ["cancel", "pause", "resume", "status"]

_PLURAL = {"tree": "trees", "leaf": "leaves"}


@click.command(epilog=PARTY_HELP)
@party_argument
@json_option
def status(party: Path, as_json: bool) -> None:
    """Show the broker connection and the sessions of the daemon of PARTY."""
    print_result(request_daemon(state_folder(party), {"do": "status"}), as_json, _in_words)


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("session")
@json_option
def cancel(party: Path, session: str, as_json: bool) -> None:
    """End SESSION at the daemon of PARTY; every party is told."""
    request = {"do": "cancel", "session": session}
    result = request_daemon(state_folder(party), request)
    print_result(result, as_json, lambda done: f"session {done['session']} is cancelled")


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("session")
@json_option
def pause(party: Path, session: str, as_json: bool) -> None:
    """Let the training SESSION rest after the tree that grows now, also across restarts."""
    result = request_daemon(state_folder(party), {"do": "pause", "session": session})
    print_result(result, as_json, lambda done: f"session {done['session']} rests after this tree")


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("session")
@json_option
def resume(party: Path, session: str, as_json: bool) -> None:
    """Let the paused training SESSION go on."""
    result = request_daemon(state_folder(party), {"do": "resume", "session": session})
    print_result(result, as_json, lambda done: f"session {done['session']} goes on")


def _in_words(result: Any) -> str:
    lines = [
        f"{result['party']} ({result['role']}) in {result['federation']} "
        f"with {', '.join(result['parties'])}",
        f"broker: {result['broker']}",
        f"models: {result['models']}",
    ]
    for session in result["sessions"]:
        total = f" of {session['total']} {_PLURAL[session['unit']]}" if session["total"] else ""
        lines.append(
            f"{session['purpose']} {session['session']} of {session['model']}: "
            f"{session['done']}{total}, {session['meaning']}"
        )
        lines += [f"  {wait}" for wait in session["waiting"]]
    lines += result["idle"]
    counts = {f"refused ({reason})": count for reason, count in result["refused"].items()}
    counts |= {"dead letters": result["dead_letters"], "dropped": result["dropped"]}
    if any(counts.values()):
        shown = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        lines.append(f"messages since the start: {shown}")
    lines += [f"no keys with {peer}: {why}" for peer, why in result["refusals"].items()]
    if result["store"]:
        lines.append(result["store"])
    return "\n".join(lines)
