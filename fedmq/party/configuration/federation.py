"""``federation.toml``: who takes part. The same file at every party.

Parties and public keys are written into it; the rest stays as people wrote it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fedmq.errors import ConfigError
from fedmq.messages.fields import PartyName
from fedmq.party.atomic_file import write_atomically, write_whole
from fedmq.party.configuration.toml_file import Section, read_toml
from fedmq.transport.sealing.keys import PublicKeys

__all__ = ["Federation", "add_party", "pin", "pinned", "remove_party"]

_PASSIVE = re.compile(r"^passive\s*=\s*\[[^\]]*\]", re.MULTILINE)


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _key(text: str) -> str:
    try:
        return str(PublicKeys.from_text(text))
    except ConfigError as error:
        raise ValueError(str(error)) from None


Pinned = Annotated[
    tuple[Annotated[str, AfterValidator(_key)], ...], BeforeValidator(_listed), Field(min_length=1)
]


class Federation(Section):
    """The federation's name, its active party, and the others in the order that decides ties."""

    file = "federation file"

    name: PartyName
    """The federation's name; it is part of every queue's name on the broker. Names, of parties too,
    are a small letter and up to 31 small letters, digits, ``_`` or ``-``."""
    active: PartyName
    """The party that holds the label."""
    passive: tuple[PartyName, ...]
    """The other parties. Of two equally good splits, the earlier party's is taken."""
    keys: Mapping[PartyName, Pinned] = Field(default_factory=dict)
    """Every party's public keys; more than one while a party changes its own."""

    @model_validator(mode="after")
    def _distinct_parties(self) -> Self:
        if len(set(self.parties)) < len(self.parties):
            raise ValueError("passive: a party is named twice")
        if self.keys and set(self.keys) != set(self.parties):
            odd = min(set(self.keys) ^ set(self.parties))
            what = (
                "no such party"
                if odd in self.keys
                else "this party has no keys here; pin them with: fedmq keys trust"
            )
            raise ValueError(f"keys.{odd}: {what}")
        return self

    @classmethod
    def read(cls, path: Path) -> Federation:
        """Raises ConfigError naming file and key."""
        return read_toml(path, cls)

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active one first."""
        return (self.active, *self.passive)

    def partners(self, wanted: Sequence[str] | None) -> tuple[str, ...]:
        """The passive parties among ``wanted``, in the federation's order; all for None.

        Raises:
            ConfigError: one of them is no passive party.
        """
        if wanted is None:
            return self.passive
        odd = [party for party in wanted if party not in self.passive]
        if odd:
            raise ConfigError(
                f"parties: {odd[0]!r} is not among the passive parties {', '.join(self.passive)}"
            )
        return tuple(party for party in self.passive if party in wanted)

    def are_members(self, parties: Sequence[str]) -> bool:
        """Whether ``parties`` are some of the federation's, the active one and then the others."""
        return list(parties) == [party for party in self.parties if party in parties] and (
            self.active in parties
        )

    def pinned(self, party: str) -> tuple[PublicKeys, ...]:
        """The public keys of ``party``, the newest last; none where messages are not sealed."""
        return tuple(PublicKeys.from_text(key) for key in self.keys.get(party, ()))


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
    write_whole(path, text)


def _others(federation: Federation, party: str) -> Any:
    keys = {name: pinned for name, pinned in federation.keys.items() if name != party}
    passive = [name for name in federation.passive if name != party]
    return federation.name, federation.active, passive, keys


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
