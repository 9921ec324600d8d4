"""Public keys written into a federation's file; the rest of it stays as people wrote it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_atomically
from fedmq.transport.sealing.keys import PublicKeys

__all__ = ["pin", "pinned"]


def pinned(path: Path) -> dict[str, tuple[PublicKeys, ...]]:
    """The keys in the file by party, also while those of some are still missing.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    try:
        found = _document(path.read_text(encoding="utf-8"), path).get("keys", {})
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    listed = {party: [keys] if isinstance(keys, str) else keys for party, keys in found.items()}
    return {party: tuple(map(PublicKeys.from_text, keys)) for party, keys in listed.items()}


def pin(path: Path, party: str, keys: Sequence[PublicKeys]) -> None:
    """Make ``keys`` the keys of ``party`` in ``[keys]``.

    Raises:
        ConfigError: the file cannot be read or written, or holds the keys in another form.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = _document(text, path)
        names = (document["active"], *document["passive"])
        if party not in names:
            raise ConfigError(f"{path}: {party!r} is not among the parties: {', '.join(names)}")
        edited = _edited(text, party, [str(key) for key in keys])
        if _document(edited, path).get("keys", {}).get(party) != [str(key) for key in keys]:
            raise ConfigError(
                f"{path}: keys.{party}: write it as one line below [keys], then try again"
            )
        write_atomically(path, edited)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be used: {error.strerror}") from None


def _document(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _edited(text: str, party: str, keys: Sequence[str]) -> str:
    line = f"{party} = {json.dumps(list(keys))}"
    lines = text.splitlines()
    if "[keys]" not in lines:
        return "\n".join([*lines, "", "[keys]", line]) + "\n"
    at = lines.index("[keys]") + 1
    while at < len(lines) and not lines[at].startswith("["):
        if re.match(rf"{re.escape(party)}\s*=", lines[at]):
            lines[at] = line
            break
        at += 1
    else:
        while not lines[at - 1].strip():
            at -= 1
        lines.insert(at, line)
    return "\n".join(lines) + "\n"
