"""How does a party ask its owner whether it takes part, before it reads anything?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar

from fedmq.errors import FedmqError, Refused
from fedmq.messages.body import ConsentAwaited
from fedmq.protocol.events import AskOwner, OwnerDecided
from fedmq.protocol.handlers import on
from fedmq.protocol.machine import Machine
from fedmq.protocol.table import ASKS_OWNER

__all__ = ["AsksOwner"]


class AsksOwner(Machine, ABC):
    """A feature holder's machine whose owner may have to agree to what another party asks."""

    asking_state: ClassVar[Enum]
    _consent_within: int
    """Seconds within which the owner answers; 0: nobody is asked."""

    @property
    def awaits_consent(self) -> bool:
        return self.state is self.asking_state

    def _with_consent(self, asked_by: str) -> None:
        """Prepare at once, or after the owner's yes; ``asked_by`` is told that it waits."""
        if self._consent_within:
            self._move(ASKS_OWNER)
            self._emit(AskOwner())
            self._send(asked_by, ConsentAwaited(seconds=self._consent_within))
        else:
            self._prepare()

    @on(OwnerDecided)
    def _on_owner_decided(self, event: OwnerDecided) -> None:
        if event.refusal:
            self._refuse(Refused(event.refusal))
        else:
            self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Nobody has to be asked any more: read this party's own data."""

    @abstractmethod
    def _refuse(self, error: FedmqError) -> None:
        """Take no part, because of ``error``."""
