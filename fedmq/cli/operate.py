"""``fedmq status``, ``history``, ``health`` and ``console``: how a daemon is."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, kept_for, party_argument, state_folder
from fedmq.errors import DaemonError, LinkError
from fedmq.party.operations.control import request_daemon

__all__ = ["console", "health", "history", "status"]

_PLURAL = {"tree": "trees", "leaf": "leaves", "id": "ids"}


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("session", required=False)
@json_option
def status(party: Path, session: str | None, as_json: bool) -> None:
    """Show the broker connection and the sessions of the daemon of PARTY, or SESSION in detail."""
    if session is not None:
        found = request_daemon(state_folder(party), {"do": "sessions", "session": session})
        if not found:
            raise DaemonError(f"session {session} does not run here; see: fedmq status PARTY")
        print_result(found[0], as_json, _closely)
        print_next_step(as_json, "status", party)
        return
    result = request_daemon(state_folder(party), {"do": "status"})
    print_result(result, as_json, _status_in_words)
    print_next_step(as_json, *_next(result, party))


@click.command(epilog=PARTY_HELP)
@party_argument
@json_option
def history(party: Path, as_json: bool) -> None:
    """List the ended sessions that PARTY still stores, the oldest first."""
    found = request_daemon(state_folder(party), {"do": "history"})
    print_result(found, as_json, lambda _: _ended(found) or "no session has ended yet")
    print_next_step(as_json, "status", party)


def _status_in_words(result: Any) -> Text:
    until = result["certificate_until"]
    head = [
        f"{result['party']} ({result['role']}) in {result['federation']} "
        f"with {', '.join(result['parties'])}",
        f"broker: {result['broker']}",
        f"certificate: until {until[:10]}" if until else "",
        f"models: {result['models']}",
    ]
    return joined(*head, _running(result["sessions"]), _ended(result["ended"]), *_notes(result))


def _next(result: Any, party: Path) -> tuple[str | Path, ...]:
    """The suggested next command: running sessions, the models, or a first training."""
    if result["asked"]:
        return "inbox", party
    live = [session for session in result["sessions"] if session["ended"] is None]
    training = next((found for found in live if found["purpose"] == "training"), None)
    if training is not None and result["role"] == "active":
        return "follow", party, training["session"]
    if live:
        return "status", party
    if result["models"]:
        return "models list", party
    if result["role"] == "active":
        return "train", party.with_name("train.toml")
    return "data check", party


def _running(sessions: Sequence[Any]) -> str | Text:
    live = [session for session in sessions if session["ended"] is None]
    rows = [
        (found["session"], found["purpose"], found["model"], _done(found), found["meaning"])
        for found in live
    ]
    waits = [session["waiting"] for session in live]
    columns = ("session", "purpose", "model", "done", "state")
    return table(columns, rows, waits) if rows else "no session runs"


def _closely(session: Any) -> Text:
    head = f"{session['purpose']} of {session['model']}: {_done(session)}, {session['meaning']}"
    left = session["seconds_left"]
    pace = "" if left is None else f"about {left:.0f} s left at this pace"
    rows = [
        (
            row["party"],
            f"{row['messages_sent']:,}",
            f"{row['bytes_sent']:,}",
            f"{row['messages_received']:,}",
            f"{row['bytes_received']:,}",
        )
        for row in session["traffic"]
    ]
    owed = (session["activity"] or {}).get("owed", {})
    waits = [
        f"{party} owes an answer to {question['kind']} for {question['seconds']:.0f} s"
        for party, question in owed.items()
        if question["seconds"] >= 1
    ]
    columns = ("party", "messages sent", "bytes sent", "messages received", "bytes received")
    return joined(head, pace, *session["waiting"], *waits, table(columns, rows))


def _done(session: Any) -> str:
    if not session["total"]:
        return str(session["done"])
    return f"{session['done']}/{session['total']} {_PLURAL[session['unit']]}"


def _ended(sessions: Sequence[Any]) -> str | Text:
    rows = [
        (
            session["session"],
            session["purpose"],
            session["model"],
            session["ended"].replace("T", " ")[:19],
            session["reason"] or "finished",
        )
        for session in sessions
    ]
    return table(("session", "purpose", "model", "ended", "outcome"), rows) if rows else ""


def _notes(result: Any) -> list[str]:
    lines = list(result["idle"])
    if result["asked"]:
        lines.append(f"waiting for your consent: {result['asked']}; see: fedmq inbox")
    if result["answered"]:
        answered = result["answered"]
        most = "" if answered["most"] is None else f" of {answered['most']:,g}"
        lines.append(
            f"answered about the {answered['rows']:,} most queried rows: "
            f"{answered['sums_per_row']:,}{most} sums per row"
        )
    if periods := result.get("retention"):  # of no daemon of an earlier version
        lines.append(f"kept for at most: {kept_for(periods)}")
    drift = result["drift"]
    lines += [
        f"{found['column']} of model {found['model']} drifts: its population stability index over "
        f"the last {found['rows']:,} people is {found['index']:.2f}"
        for found in drift["columns"]
        if found["alarm"]
    ]
    lines += [f"{party} says that its columns drift" for party in drift["parties"]]
    counts = {f"refused ({reason})": count for reason, count in result["refused"].items()}
    counts |= {"dead letters": result["dead_letters"], "dropped": result["dropped"]}
    if any(counts.values()):
        shown = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        lines.append(f"messages since the start: {shown}")
    lines += [f"no keys with {peer}: {why}" for peer, why in result["refusals"].items()]
    return [*lines, result["store"], *result["warnings"]]


# fedmq health: for container health checks, which read only the exit code.


@click.command(epilog=PARTY_HELP)
@party_argument
@json_option
def health(party: Path, as_json: bool) -> None:
    """Ask whether the daemon of PARTY can serve: exit code 0, 5 without a broker, 7 if it is down.

    It needs no HTTP; for a load balancer there is /health/ready.
    """
    result = request_daemon(state_folder(party), {"do": "health"})
    print_result(result, as_json, _health_in_words)
    if not result["ready"]:
        raise LinkError("; ".join(result["reasons"]))
    print_next_step(as_json, "status", party)


def _health_in_words(found: Any) -> str:
    away = [f"{party} answers no questions for scores" for party in found["away"]]
    return "; ".join([*(found["reasons"] or ["ready"]), *away, *found["warnings"]])


# fedmq console: the pages of a daemon in a browser.


@click.command(epilog=PARTY_HELP)
@party_argument
@click.option(
    "--role",
    "roles",
    multiple=True,
    default=("approver", "operator"),
    show_default=True,
    type=click.Choice(["viewer", "approver", "operator"]),
    help="A permission besides looking; repeat for several.",
)
@click.option("--who", help="The name in the audit log; the user's name when left out.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@json_option
def console(
    party: Path, roles: tuple[str, ...], who: str | None, no_browser: bool, as_json: bool
) -> None:
    """Open the console of the daemon of PARTY in a browser.

    The address that is printed signs in one person, once and within five minutes. The party's file
    needs console = true under [http].
    """
    request = {"do": "console", "roles": list(roles), "who": who or getpass.getuser()}
    result = request_daemon(state_folder(party), request)
    print_result(result, as_json, _console_in_words)
    if not (no_browser or as_json):
        import webbrowser  # no other command needs it

        webbrowser.open(result["address"])


def _console_in_words(opened: Any) -> str:
    whom = f"{opened['who']} ({', '.join(opened['roles'])})"
    minutes = opened["seconds"] / 60
    return f"{opened['address']}\nThe address signs in {whom}, once, within {minutes:.0f} minutes."
