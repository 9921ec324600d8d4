"""Files of a party's folder: new ones, or in place of older ones; secrets for their owner alone."""

from __future__ import annotations

import os
from pathlib import Path

from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_atomically

__all__ = ["write_private", "write_public"]


def write_private(path: Path, text: str) -> None:
    """Write a new file that its owner alone reads; ConfigError where that fails."""
    _new(path, text, 0o600)


def write_public(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a file, new unless ``replace``; ConfigError where that fails."""
    if not replace:
        _new(path, text, 0o644)
        return
    try:
        write_atomically(path, text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _new(path: Path, text: str, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(file, "w", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
