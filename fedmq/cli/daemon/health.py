"""``fedmq health``: for container health checks, which only look at the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument, state_folder
from fedmq.errors import LinkError

__all__ = ["health"]


@click.command(epilog=PARTY_HELP)
@party_argument
@json_option
def health(party: Path, as_json: bool) -> None:
    """Ask whether the daemon of PARTY can serve: exit code 0, 5 without a broker, 7 if it is down.

    It needs no HTTP; for a load balancer there is /health/ready.
    """
    result = request_daemon(state_folder(party), {"do": "health"})
    print_result(result, as_json, _in_words)
    if not result["ready"]:
        raise LinkError("; ".join(result["reasons"]))
    print_next_step(as_json, "status", party)


def _in_words(found: Any) -> str:
    away = [f"{party} answers no questions for scores" for party in found["away"]]
    return "; ".join([*(found["reasons"] or ["ready"]), *away, *found["warnings"]])
