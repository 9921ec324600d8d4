"""``fedmq audit-log``, ``transcript`` and ``trace``: what is on file about sessions.

An audit log holds requests and answers. A transcript proves how a party trained. A trace shows when
each party computed, sent and waited.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedmq.accountability.certificate import check_certificate
from fedmq.accountability.transcript_file import TranscriptFile, export
from fedmq.accountability.verification import verify as verified
from fedmq.cli.output import json_option, print_next_step, print_result
from fedmq.cli.party_daemon import PARTY_HELP, party_argument, state_folder
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.audit_log import AuditLog, AuditSearch, question_logs
from fedmq.party.store.certificates import Certificate
from fedmq.party.telemetry.timeline import JoinedTrace, check_writable, read_trace, write_trace

__all__ = ["audit_log", "trace", "transcript"]

online_option = click.option(
    "--online", is_flag=True, help="The log of online scores, with ids as keyed hashes, by day."
)

_CHAIN = ("number", "at", "event", "peer", "session", "attempt", "previous")


@click.group("audit-log", epilog=PARTY_HELP)
def audit_log() -> None:
    """Read and verify the audit log of PARTY: questions to it, and its answers."""


@audit_log.command("list", epilog=PARTY_HELP)
@party_argument
@online_option
@click.option("--event", default="", help="Only entries of this event, such as asked.")
@click.option("--peer", default="", help="Only entries about this party.")
@click.option("--text", default="", help="Only entries that contain these words.")
@json_option
def list_entries(
    party: Path, online: bool, event: str, peer: str, text: str, as_json: bool
) -> None:
    """List the entries, the oldest first."""
    search = AuditSearch(event, peer, text)
    logs = _logs(party, online)
    entries = [entry for log in logs for entry in log.entries() if search.finds(entry)]
    print_result(entries, as_json, lambda _: "\n".join(map(_line, entries)) or "nothing yet")
    print_next_step(as_json, "audit-log verify", party, *["--online"] * online)


@audit_log.command(epilog=PARTY_HELP)
@party_argument
@online_option
@json_option
def verify(party: Path, online: bool, as_json: bool) -> None:
    """Verify that no entry was changed, removed or inserted.

    Keep the printed hash elsewhere: without it, nobody can see that the last entries are gone.
    With --online there is one per day.
    """
    days = [_verified(log) for log in _logs(party, online)]
    print_result(
        days if online else days[0],
        as_json,
        lambda _: "\n".join(_unbroken(day, online) for day in days) or "nothing yet",
    )


def _logs(party: Path, online: bool) -> list[AuditLog]:
    state = state_folder(party)
    return question_logs(state) if online else [AuditLog(state)]


def _verified(log: AuditLog) -> dict[str, Any]:
    entries, last = log.verified()
    return {"file": log.path.name, "entries": entries, "hash": last}


def _unbroken(log: Mapping[str, Any], named: bool) -> str:
    name = f"{log['file']}: " if named else ""
    return f"{name}{log['entries']} entries, unbroken up to {log['hash']}"


def _line(entry: Any) -> str:
    details = ", ".join(f"{key} {value}" for key, value in entry.items() if key not in _CHAIN)
    whose = f"{entry['peer']} {entry['session']}: " if "peer" in entry else ""
    return f"{entry['at']}  {whose}{entry['event']}: {details}"


# fedmq transcript: a party's proof of a training, for an auditor.

_ExistingFile = click.Path(exists=True, dir_okay=False, path_type=Path)
_federation_option = click.option(
    "--federation",
    "federation_file",
    type=_ExistingFile,
    required=True,
    help="The federation file, with the parties' public keys.",
)


@click.group("transcript", epilog=PARTY_HELP)
def transcript() -> None:
    """Export the transcript of a training for an auditor, or verify a transcript."""


@transcript.command("export", epilog=PARTY_HELP)
@party_argument
@click.argument("session")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; PARTY-SESSION.transcript when left out.",
)
@json_option
def export_transcript(party: Path, session: str, output: Path | None, as_json: bool) -> None:
    """Write the transcript of SESSION into a file, for an auditor alone.

    That of a passive party holds its table and the secrets of that training; that of the label
    holder holds what the others have signed, and no data.
    """
    config, _ = PartyFile.read(party)
    path = output or Path(f"{config.party}-{session}.transcript")
    size = export(config.state, config.party, session, path)
    print_result({"file": str(path), "bytes": size}, as_json, lambda _: f"{path}: {size:,} bytes")
    print_next_step(as_json, "transcript verify", path, "--federation", config.federation)


@transcript.command("verify")
@click.argument("shown", type=_ExistingFile)
@_federation_option
@click.option(
    "--signed", type=_ExistingFile, help="The active party's transcript of the same session."
)
@json_option
def verify_transcript(
    shown: Path, federation_file: Path, signed: Path | None, as_json: bool
) -> None:
    """Replay what a party has SHOWN: prove every answer honest, or name the first that was not.

    Without --signed only the active party's signatures among the messages bind the party.
    """
    held = None if signed is None else TranscriptFile.read(signed)
    federation = Federation.read(federation_file)
    verdict = verified(TranscriptFile.read(shown), federation, held)
    print_result(verdict.as_dict(), as_json, _lines)


@transcript.command("verify-certificate")
@click.argument("certificate", type=_ExistingFile)
@_federation_option
@json_option
def verify_certificate(certificate: Path, federation_file: Path, as_json: bool) -> None:
    """Verify the CERTIFICATE that a party garbled a false circuit.

    The active party keeps one in its state folder, in certificates, where covert = 2 or more
    catches a passive party. It holds no data: anybody may verify it.
    """
    found = check_certificate(Certificate.read(certificate), Federation.read(federation_file))
    print_result(found, as_json, _convicted)


def _convicted(found: Any) -> str:
    return (
        f"{found['party']} garbled a false circuit: session {found['session']}, attempt "
        f"{found['attempt']}, parcel {found['parcel']} of copy {found['copy']} of "
        f"{found['copies']} is not what the seed gives that it has signed"
    )


def _lines(verdict: Any) -> str:
    lines = [
        f"{verdict['party']}: {verdict['answers']} answers in {verdict['trees']} trees are those "
        f"that its table gives ({verdict['rows']:,} rows, columns "
        f"{', '.join(verdict['columns'])}; engine {verdict['engine']}, "
        f"{verdict['attempts']} attempts)",
        f"signed by both sides: {verdict['signed']} of {verdict['trees']} trees",
    ]
    if verdict["thin_trees"]:
        lines.append(
            f"not made again: the sums of {verdict['thin_trees']} trees, whose gradients were left "
            "out by lot; their records and directions were"
        )
    return "\n".join(lines)


# fedmq trace: timelines of sessions.


@click.group()
def trace() -> None:
    """Merge timelines of sessions."""


@trace.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; see ui.perfetto.dev.",
)
@json_option
def join(files: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Merge the timelines of one session, one FILE from each party's owner.

    Messages then show as arrows from party to party.
    """
    check_writable(output)
    joined = JoinedTrace.of([(str(file), read_trace(file)) for file in files])
    write_trace(joined.document, output)
    result = {
        "parties": list(joined.parties),
        "arrows": joined.arrows,
        "clocks_differ_by_seconds": round(joined.early, 6),
    }
    print_result(result, as_json, _in_words)
    print_next_step(as_json, output, "at ui.perfetto.dev", program="open")


def _in_words(result: Any) -> str:
    words = f"{', '.join(result['parties'])}: {result['arrows']} messages from one to another"
    if not result["arrows"]:
        words += "; are the files of the same session?"
    if result["clocks_differ_by_seconds"]:
        words += (
            f"; clocks differ by {result['clocks_differ_by_seconds']:.6f} s at least: "
            "something arrived before it left"
        )
    return words
