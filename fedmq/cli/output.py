"""What commands print: JSON for scripts, text and tables for people; errors in one line."""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from fedmq.errors import FedmqError

__all__ = [
    "joined",
    "json_option",
    "print_error",
    "print_next_step",
    "print_result",
    "printable",
    "table",
]

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


def print_next_step(as_json: bool, *words: str | Path, program: str | Path = "fedmq") -> None:
    """Print the command ``PROGRAM WORDS`` as the next one, for people alone."""
    if not as_json:
        click.echo(f"next: {' '.join(map(str, (program, *words)))}", err=True)


# Tables: columns that line up, and a last one that is wrapped where a terminal ends.

_GAP = "  "
_NARROWEST = 20
"""A last column with less room than this goes below its row."""


def printable(text: str) -> str:
    """``text`` with control characters other than line ends escaped: others may have written it."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text
    )


def joined(*parts: str | Text) -> Text:
    """The parts one below the other; what is empty is left out."""
    texts = [part if isinstance(part, Text) else Text(printable(part)) for part in parts]
    return Text("\n").join(text for text in texts if text.plain)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[Sequence[str]] = ()
) -> Text:
    """``rows`` below the names of their ``columns``; numbers stand to the right.

    ``notes``: lines that follow each row. On a terminal the last column is wrapped within it.
    """
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip([*map(str, columns)], *cells, strict=True)]
    right = [
        all(isinstance(row[place], int | float) for row in rows) for place in range(len(columns))
    ]
    room = _room(sum(widths[:-1]) + len(_GAP) * (len(columns) - 1))
    shown = Text()
    shown.append(_line([name.upper() for name in columns], widths, right, None), style="bold")
    for place, row in enumerate(cells):
        shown.append("\n" + _line(row, widths, right, room))
        for note in notes[place] if notes else ():
            shown.append("".join(f"\n{_GAP}{line}" for line in _wrapped(note)), style="dim")
    return shown


def _wrapped(note: str) -> list[str]:
    """``note`` in lines that a terminal holds; words, such as keys, stay whole."""
    room = _room(len(_GAP))
    if room is None:
        return [printable(note)]
    return textwrap.wrap(
        printable(note), max(_NARROWEST, room), break_long_words=False, break_on_hyphens=False
    )


def _room(taken: int) -> int | None:
    """How wide the last column may be beside so many characters; None where it need not wrap."""
    console = Console()
    return max(0, console.width - taken) if console.is_terminal else None


def _line(
    cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], room: int | None
) -> str:
    *before, last = (
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, right, strict=True)
    )
    first, last = "".join(cell + _GAP for cell in before), last.rstrip()
    if room is None or len(last) <= room:
        return (first + last).rstrip()
    if room < _NARROWEST:
        below = textwrap.wrap(last, max(_NARROWEST, len(first) + room - len(_GAP)))
        return "\n".join([first.rstrip(), *(_GAP + line for line in below)])
    lines = textwrap.wrap(last, room)
    return ("\n" + " " * len(first)).join([first + lines[0], *lines[1:]])
