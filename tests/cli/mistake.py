"""A newcomer's mistake: an edit of a fresh federation's files, what is typed, what is read.

The federation is that of ``fedmq init --example``, with the parties bank and telco.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BANK",
    "CHECK",
    "TELCO",
    "TRAIN",
    "Edit",
    "Mistake",
    "at_top",
    "both",
    "in_data",
    "in_source",
    "nothing",
    "put",
    "remove",
    "table",
    "write",
]

Edit = Callable[[Path], object]

BANK, TELCO = "bank/party.toml", "telco/party.toml"
CHECK = ("data", "check", BANK)
TRAIN = ("train", "bank/train.toml")


@dataclass(frozen=True)
class Mistake:
    """``words`` stand in the one line of the error, which ends with exit code ``code``."""

    name: str
    edit: Edit
    typed: tuple[str, ...]
    code: int
    words: tuple[str, ...]


def nothing(_: Path) -> None:
    """No file is edited."""


def put(file: str, before: str, after: str) -> Edit:
    """Write ``after`` for the first ``before`` in ``file``."""

    def edit(folder: Path) -> None:
        text = (folder / file).read_text()
        assert before in text, (file, before)
        (folder / file).write_text(text.replace(before, after, 1))

    return edit


def write(file: str, content: str | bytes) -> Edit:
    """Make ``content`` all there is in ``file``."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / file).write_bytes(data)


def table(content: str | bytes) -> Edit:
    """Make ``content`` the bank's table; its columns are id, label, age and town."""
    return write("bank/data.csv", content)


def remove(file: str) -> Edit:
    """Remove ``file``."""
    return lambda folder: (folder / file).unlink()


def in_data(line: str) -> Edit:
    """Write ``line`` below ``[data]`` of the bank."""
    return put(BANK, "[data]\n", f"[data]\n{line}\n")


def at_top(line: str) -> Edit:
    """Write ``line`` at the top of the bank's file."""
    return put(BANK, 'state = "state"\n', f'state = "state"\n{line}\n')


def in_source(source: str) -> Edit:
    """Write ``source`` in place of the path of the bank's table."""
    return put(BANK, 'path = "data.csv"', source)


def both(*edits: Edit) -> Edit:
    """All ``edits``, one after the other."""
    return lambda folder: [edit(folder) for edit in edits]
