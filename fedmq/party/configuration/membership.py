"""Parties written into a federation's file and out of it; the rest stays as people wrote it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.federation import Federation
from fedmq.transport.sealing.keys import PublicKeys

__all__ = ["add_party", "remove_party"]

_PASSIVE = re.compile(r"^passive\s*=\s*\[[^\]]*\]", re.MULTILINE)


def add_party(path: Path, party: str, keys: PublicKeys) -> None:
    """Make ``party`` the last passive party, with ``keys``, in the file at ``path``.

    Raises:
        ConfigError: it is one already, or the file cannot be used.
    """
    federation, text = Federation.read(path), _text(path)
    if party in federation.parties:
        raise ConfigError(
            f"{path}: {party} is a party already; give it other keys with: fedmq keys trust"
        )
    if not federation.keys:
        raise ConfigError(f"{path}: no party has keys here; make some with: fedmq keys new")
    text = _with_passive(text, path, [*federation.passive, party])
    _write(path, f"{text.rstrip()}\n{party} = {json.dumps([str(keys)])}\n", federation, party)


def remove_party(path: Path, party: str) -> None:
    """Take the passive ``party`` and its keys out of the file at ``path``.

    Raises:
        ConfigError: it is none, or the file cannot be used.
    """
    federation, text = Federation.read(path), _text(path)
    if party not in federation.passive:
        passive = ", ".join(federation.passive) or "none"
        raise ConfigError(f"{path}: {party} is no passive party; there are: {passive}")
    text = _with_passive(text, path, [name for name in federation.passive if name != party])
    keys = re.compile(rf"^{re.escape(party)}\s*=\s*(\[[^\]]*\]|\"[^\"]*\")[ \t]*\n?", re.MULTILINE)
    _write(path, keys.sub("", text), federation, party)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")


def _with_passive(text: str, path: Path, parties: Sequence[str]) -> str:
    if not _PASSIVE.search(text):
        raise ConfigError(f"{path}: passive: begin a line with it, then try again")
    return _PASSIVE.sub(f"passive = {json.dumps(list(parties))}", text, count=1)


def _write(path: Path, text: str, before: Federation, changed: str) -> None:
    """Write ``text`` if it says what was meant: nothing but ``changed`` differs."""
    try:
        after = Federation.model_validate(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ValueError, ConfigError):
        after = None
    if after is None or _others(after, changed) != _others(before, changed):
        raise ConfigError(f"{path}: passive and [keys]: write a line for each, then try again")
    try:
        write_atomically(path, text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _others(federation: Federation, party: str) -> Any:
    keys = {name: pinned for name, pinned in federation.keys.items() if name != party}
    passive = [name for name in federation.passive if name != party]
    return federation.name, federation.active, passive, keys
