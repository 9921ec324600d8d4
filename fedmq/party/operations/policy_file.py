"""The party file with one more entry of ``[[policy.approved]]``; all else stays as it is."""

from __future__ import annotations

import contextlib
import difflib
from dataclasses import dataclass
from pathlib import Path

from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.standing_consent import StandingConsent
from fedmq.party.configuration.toml_file import parse_toml
from fedmq.party.consent.standing import toml_of

__all__ = ["PolicyChange"]


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """The text of the party file at ``path`` ``before``, and the ``entry`` that it gets."""

    path: Path
    before: str
    entry: str

    @classmethod
    def adding(cls, path: Path, standing: StandingConsent) -> PolicyChange:
        """The change by which ``standing`` is agreed to; comments and order of the file stay.

        Raises:
            ConfigError: the file cannot be read, or has no place for it.
        """
        try:
            before = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        change = cls(path, before, toml_of(standing))
        change._check(standing)
        return change

    @property
    def after(self) -> str:
        """The text with the entry at its end."""
        return f"{self.before.rstrip()}\n\n{self.entry}"

    @property
    def diff(self) -> str:
        """What changes, as ``diff -u`` shows it."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            self.path.name,
            self.path.name,
            n=0,  # what stands around may be secret, such as a password
        )
        return "".join(lines)

    def write(self) -> None:
        """Replace the file; ConfigError with what to write by hand if the daemon cannot."""
        try:
            mode = self.path.stat().st_mode & 0o777
            write_atomically(self.path, self.after, mode)
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot be written by the daemon: {error.strerror}; write these "
                "lines at its end by hand, then send the daemon SIGHUP:\n"
                f"{self.entry.rstrip()}"
            ) from None

    def _check(self, standing: StandingConsent) -> None:
        """ConfigError unless the file reads as it did, with ``standing`` at the end."""
        kept = parse_toml(self.before, self.path, PartyFile)
        wanted = kept.policy.model_copy(update={"approved": (*kept.policy.approved, standing)})
        with contextlib.suppress(ConfigError):
            changed = parse_toml(self.after, self.path, PartyFile)
            if changed == kept.model_copy(update={"policy": wanted}):
                return
        raise ConfigError(
            f"{self.path}: has no place for [[policy.approved]]; write it by hand: "
            f"{' '.join(self.entry.split())}"
        )
