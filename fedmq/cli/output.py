"""Output of commands: JSON for scripts, text and tables for people; errors in one line.

And the questions that a command asks at a terminal.
"""

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

from fedmq.errors import ConfigError, FedmqError

__all__ = [
    "asked_for",
    "confirm",
    "joined",
    "json_option",
    "print_error",
    "print_next_step",
    "print_result",
    "printable",
    "table",
]

_PARTY = re.compile(r"\bPARTY(\.toml)?\b(?=[^=]|$)")
"""The placeholder of an unknown party's file in messages; ``PARTY=COUNT`` does not match."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")


def print_result(result: Any, as_json: bool, in_words: Callable[[Any], str | Text]) -> None:
    """Print ``result`` to standard output, in colour on a colour terminal."""
    if as_json:
        click.echo(json.dumps(_with_nulls(result), allow_nan=False))
    else:
        Console().print(joined(in_words(result)), soft_wrap=True, highlight=False)


def _with_nulls(value: Any) -> Any:
    """Replace NaN and infinity, such as the AUC of a single label, by null."""
    if isinstance(value, Mapping):
        return {key: _with_nulls(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_nulls(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_error(error: FedmqError, party: Path | None = None) -> None:
    """Print the error as one line to standard error, with ``party`` for PARTY in its advice."""
    line = " ".join(str(error).split())
    if party is not None:
        line = _PARTY.sub(lambda _: str(party), line)
    print(f"fedmq: {printable(line)}", file=sys.stderr)


def print_next_step(as_json: bool, *words: str | Path, program: str | Path = "fedmq") -> None:
    """Print the command ``PROGRAM WORDS`` as the next step, for people only."""
    if not as_json:
        click.echo(f"next: {' '.join(map(str, (program, *words)))}", err=True)


def confirm(question: str, option: str) -> None:
    """Go on if somebody says yes to ``question``; without a terminal ``option`` says it.

    Raises:
        ConfigError: there is no terminal.
        click.Abort: the answer is no.
    """
    try:
        yes = click.confirm(question, err=True)
    except click.Abort:
        _check_terminal(option)
        raise
    if not yes:
        raise click.Abort


def asked_for(what: str, option: str) -> str:
    """The answer to the question ``what``; without a terminal ``option`` gives it.

    Raises:
        ConfigError: there is no terminal.
        click.Abort: nobody answers.
    """
    try:
        answer: str = click.prompt(what, err=True)
    except click.Abort:
        _check_terminal(option)
        raise
    return answer


def _check_terminal(option: str) -> None:
    if not sys.stdin.isatty():
        click.echo(err=True)
        raise ConfigError(f"nobody answers, for there is no terminal; say it with {option}")


# Tables: aligned columns, the last one wrapped at the terminal's width.

_GAP = "  "
_NARROWEST = 20
"""With less room than this the last column goes below its row."""


def printable(text: str) -> str:
    """``text`` with control characters except line ends escaped: it may come from others."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text
    )


def joined(*parts: str | Text) -> Text:
    """The non-empty parts, one below the other."""
    texts = [part if isinstance(part, Text) else Text(printable(part)) for part in parts]
    return Text("\n").join(text for text in texts if text.plain)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[Sequence[str]] = ()
) -> Text:
    """``rows`` below the names of their ``columns``; numbers are right-aligned.

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
    """``note`` wrapped to the terminal; words, such as keys, stay whole."""
    room = _room(len(_GAP))
    if room is None:
        return [printable(note)]
    return textwrap.wrap(
        printable(note), max(_NARROWEST, room), break_long_words=False, break_on_hyphens=False
    )


def _room(taken: int) -> int | None:
    """The width of the last column beside so many characters; None without wrapping."""
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
