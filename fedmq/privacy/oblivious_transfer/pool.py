"""How are transfers made ahead of what is chosen? With random choices, of which some are turned.

Beaver, "Precomputing Oblivious Transfer" (CRYPTO 1995). A transfer of a random choice becomes that
of a real one by a bit: whether they differ. So one extension serves all transfers of a level.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.extension import (
    Extended,
    ExtensionReceiver,
    ExtensionSender,
    Tweaks,
)

__all__ = ["PoolReceiver", "PoolSender", "turned_bytes"]


class PoolReceiver:
    """The choosing party's rows of ``count`` transfers; ``message`` is for the other party."""

    def __init__(self, receiver: ExtensionReceiver, count: int, tweaks: Tweaks) -> None:
        drawn = np.frombuffer(secrets.token_bytes(-(-count // 8)), np.uint8)
        self._choices = np.unpackbits(drawn, count=count).astype(np.bool_)
        self.message, self._rows = receiver.extend(self._choices, tweaks)

    def choose(self, choices: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        """Which of the next transfers are turned, for the other party, and their rows.

        uint8 (bytes,), and uint64 (n, 2) of ``choices`` (n,).
        """
        count = len(choices)
        if count > len(self._rows):
            raise ValueError(f"{count} transfers of a pool of {len(self._rows)}")
        turned = np.packbits(choices ^ self._choices[:count])
        rows, self._rows = self._rows[:count], self._rows[count:]
        self._choices = self._choices[count:]
        return turned, rows


class PoolSender:
    """The rows of the party that never learns the choices.

    Raises `MessageError` as `ExtensionSender.extend` does.
    """

    def __init__(
        self, sender: ExtensionSender, message: Extended, count: int, tweaks: Tweaks
    ) -> None:
        self._rows = sender.extend(message, count, tweaks)
        self._secret = sender.secret

    def take(self, turned: NDArray[np.uint8], count: int) -> NDArray[np.uint64]:
        """The rows of the next ``count`` transfers: uint64 (count, 2)."""
        if count > len(self._rows):
            raise MessageError(f"{count} transfers of a pool of {len(self._rows)}")
        bits = np.unpackbits(turned, count=count).astype(np.bool_)
        rows, self._rows = self._rows[:count], self._rows[count:]
        return rows ^ np.where(bits[:, np.newaxis], self._secret, np.uint64(0))


def turned_bytes(count: int) -> int:
    """Bytes that say which of ``count`` transfers are turned."""
    return -(-count // 8)
