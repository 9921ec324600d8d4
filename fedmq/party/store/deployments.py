"""The model that each name stands for at this party. It survives restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fedmq.boosting.model.lookup_table import Agreed
from fedmq.boosting.model.served_forest import Chains
from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically
from fedmq.protocol.online.options import Mode

__all__ = ["Deployment", "Deployments"]

_KEPT = 5
"""Former models of a name to which it can be rolled back."""


class Deployment(BaseModel):
    """A model as it is served. ``left`` and ``right`` are its chains here; empty at the active.

    ``agreed``: at the active, to which reasons the other owners agreed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    mode: Mode
    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    agreed: Agreed = Agreed()

    @property
    def chains(self) -> Chains:
        """Which of this party's records follow which."""
        return Chains.of(self.left, self.right)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = 1
    names: dict[str, list[Deployment]] = {}
    """By name, the newest last."""


class Deployments:
    """The deployments by name; the file is written whole or not at all."""

    def __init__(self, path: Path, document: _Document) -> None:
        self._path = path
        self._document = document

    @classmethod
    def read(cls, state: Path) -> Self:
        """The deployments in the folder ``state``; none in a new one.

        Raises:
            DataError: the file is damaged.
        """
        path = state / "deployments.json"
        try:
            return cls(path, _Document.model_validate_json(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls(path, _Document())
        except (OSError, ValidationError):
            raise DataError(f"{path}: cannot be read; move it away and activate again") from None

    def names(self) -> dict[str, Deployment]:
        """The newest deployment of each name."""
        return {name: versions[-1] for name, versions in self._document.names.items()}

    def names_of(self, model: str) -> list[str]:
        """The names that stand for ``model``, or can be rolled back to it."""
        return [
            name
            for name, versions in self._document.names.items()
            if any(version.model == model for version in versions)
        ]

    def before(self, name: str) -> Deployment:
        """The deployment of ``name`` before the newest.

        Raises:
            ConfigError: there is none.
        """
        versions = self._document.names.get(name, [])
        if len(versions) < 2:
            raise ConfigError(f"{name} has no earlier model to go back to")
        return versions[-2]

    def kept(self) -> list[Deployment]:
        """The two newest of every name: passive parties may be asked for both at any time."""
        return [
            deployment for versions in self._document.names.values() for deployment in versions[-2:]
        ]

    def put(self, name: str, deployment: Deployment) -> None:
        """``name`` stands for ``deployment`` from now on; a rollback drops the newer deployment.

        Raises:
            ConfigError: the disk refuses.
        """
        document = self._document.model_copy(deep=True)
        versions = document.names.setdefault(name, [])
        if len(versions) > 1 and versions[-2].model == deployment.model:
            versions.pop()
        if versions and versions[-1].model == deployment.model:
            versions.pop()
        versions.append(deployment)
        del versions[:-_KEPT]
        try:
            write_atomically(self._path, document.model_dump_json())
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}") from None
        self._document = document
