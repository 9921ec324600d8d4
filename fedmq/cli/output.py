"""The output of commands: a line of JSON for scripts, text for people; errors in one line."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from fedmq.cli.table import joined, printable
from fedmq.errors import FedmqError

__all__ = ["json_option", "print_error", "print_result"]

_PARTY = re.compile(r"\bPARTY(\.toml)?\b(?=[^=]|$)")
"""How messages name a party's file that they do not know; ``PARTY=COUNT`` is something else."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")


def print_result(result: Any, as_json: bool, in_words: Callable[[Any], str | Text]) -> None:
    """Print ``result`` to standard output, in colour where it is a terminal that shows colours."""
    if as_json:
        click.echo(json.dumps(_with_nulls(result), allow_nan=False))
    else:
        Console().print(joined(in_words(result)), soft_wrap=True, highlight=False)


def _with_nulls(value: Any) -> Any:
    """Floats that are no numbers, such as the AUC of a single label, become null."""
    if isinstance(value, Mapping):
        return {key: _with_nulls(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_nulls(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_error(error: FedmqError, party: Path | None = None) -> None:
    """Print the error as one line to standard error, with ``party`` for PARTY in what to do."""
    line = " ".join(str(error).split())
    if party is not None:
        line = _PARTY.sub(lambda _: str(party), line)
    print(f"fedmq: {printable(line)}", file=sys.stderr)
