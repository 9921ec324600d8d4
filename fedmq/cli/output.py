"""What commands print: one line of JSON for scripts, plain text for people; errors in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from fedmq.errors import FedmqError

__all__ = ["json_option", "print_error", "print_result", "printable"]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")


def print_result(result: Any, as_json: bool, in_words: Callable[[Any], str]) -> None:
    """Print ``result`` to standard output."""
    click.echo(json.dumps(result) if as_json else printable(in_words(result)))


def print_error(error: FedmqError) -> None:
    """Print the error as one line to standard error."""
    line = " ".join(str(error).split())
    print(f"fedmq: {printable(line)}", file=sys.stderr)


def printable(text: str) -> str:
    """``text`` with control characters escaped, line ends aside: some of it is others' words."""
    return "".join(
        each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text
    )
