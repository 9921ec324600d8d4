"""What to type next: the last line of a command that went well, on standard error."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["print_next_step"]


def print_next_step(as_json: bool, *words: str | Path, program: str | Path = "fedmq") -> None:
    """Print the command ``PROGRAM WORDS`` as the next one, for people alone."""
    if not as_json:
        click.echo(f"next: {' '.join(map(str, (program, *words)))}", err=True)
