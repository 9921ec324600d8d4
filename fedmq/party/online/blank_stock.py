"""Which ciphertexts are made before anybody asks? Encryptions of nothing, to put leaves into.

Most of an encryption does not depend on what is encrypted. While nobody waits it is done ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from fedmq.privacy.sealed_scores.ciphertexts import Blank
from fedmq.protocol.sealed_sums import SealedModel
from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["BlankStock"]

_MOST = 16  # 130 kB each


class BlankStock:
    """Blanks of the secret that was sealed with last; ``is_idle`` says when there is time for more.

    Each is handed out once.
    """

    def __init__(self, executor: Executor, is_idle: Callable[[], bool]) -> None:
        self._executor = executor
        self._is_idle = is_idle
        self._model: SealedModel | None = None
        self._blanks: list[Blank] = []
        self._making = BackgroundTasks()
        self._closed = False

    def take(self, model: SealedModel) -> list[Blank]:
        """As many as a question of one ciphertext uses on its way, or as there are."""
        if self._model is None or model.secret != self._model.secret:
            self._model, self._blanks = model, []
        count = len(model.chain)
        taken, self._blanks = self._blanks[:count], self._blanks[count:]
        return taken

    def refill(self) -> None:
        """Make some more, one after the other, while there is time."""
        if (
            self._model is not None
            and self._needs_more()
            and all(task.done() for task in self._making)
        ):
            self._making.spawn(self._make(), name="blanks")

    async def close(self) -> None:
        """Make no more."""
        self._closed = True
        await self._making.close()

    def _needs_more(self) -> bool:
        return (
            not self._closed
            and self._model is not None
            and len(self._blanks) < _MOST
            and self._is_idle()
        )

    async def _make(self) -> None:
        loop = asyncio.get_running_loop()
        while self._needs_more() and (model := self._model) is not None:
            blank = await loop.run_in_executor(self._executor, model.blank)
            if model is self._model:
                self._blanks.append(blank)
