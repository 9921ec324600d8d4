"""A party's files, and their parts that a running daemon reloads when they change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.identity.private_keys import Passphrase, passphrase_from_environment
from fedmq.party.identity.sealer import Sealer, sealer_of

__all__ = ["PartyFiles"]


@dataclass(frozen=True, slots=True)
class PartyFiles:
    """The party file at ``path``, the federation file, and the keys that both point to."""

    path: Path
    config: PartyFile
    federation: Federation
    sealer: Sealer
    passphrase: Passphrase

    @classmethod
    def read(cls, path: Path, passphrase: Passphrase = passphrase_from_environment) -> PartyFiles:
        """Read all files; ``passphrase`` is asked for if the private keys are locked.

        Raises:
            ConfigError: naming file and key.
        """
        config, federation = PartyFile.read(path)
        return cls(path, config, federation, sealer_of(config, federation, passphrase), passphrase)

    def read_again(self) -> PartyFiles:
        """Read the same files again; errors as for ``read``."""
        return self.read(self.path, self.passphrase)

    def needs_restart(self, newer: PartyFiles) -> list[str]:
        """The keys that differ in ``newer`` and need a restart of the daemon."""
        names = self.config.changed_keys(newer.config)
        same = (self.federation.name, self.federation.active) == (
            newer.federation.name,
            newer.federation.active,
        )
        if "federation" not in names and not same:
            names.append("federation")
        return names

    def reloaded(self, newer: PartyFiles) -> PartyFiles:
        """These files with the passive parties, all keys and the policy of ``newer``.

        Raises:
            ConfigError: only one of the two seals messages.
        """
        self.sealer.reload(newer.sealer)
        parties = {"passive": newer.federation.passive, "keys": newer.federation.keys}
        return replace(
            self,
            config=self.config.model_copy(update={"policy": newer.config.policy}),
            federation=self.federation.model_copy(update=parties),
        )
