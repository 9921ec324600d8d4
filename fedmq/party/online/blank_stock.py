"""Which ciphertexts are made before anybody asks? Encryptions of nothing, to put leaves into.

Most of an encryption does not depend on what is encrypted. While nobody waits it is done ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future

from fedmq.privacy.sealed_scores.ciphertexts import Blank
from fedmq.protocol.sealed_sums import SealedModel

__all__ = ["BlankStock"]

_MOST = 16  # 130 kB each


class BlankStock:
    """Blanks of the model that was scored with last; ``is_idle`` says when there is time for more.

    Each is handed out once.
    """

    def __init__(self, executor: Executor, is_idle: Callable[[], bool]) -> None:
        self._executor = executor
        self._is_idle = is_idle
        self._model: SealedModel | None = None
        self._blanks: list[Blank] = []
        self._making = False

    def take(self, model: SealedModel) -> list[Blank]:
        """As many as a question of one ciphertext uses on its way, or as there are."""
        if model is not self._model:
            self._model, self._blanks = model, []
        count = len(model.chain)
        taken, self._blanks = self._blanks[:count], self._blanks[count:]
        return taken

    def refill(self) -> None:
        """Make some more, one after the other, while there is time."""
        model = self._model
        if model is None or self._making or len(self._blanks) >= _MOST or not self._is_idle():
            return
        self._making = True
        loop = asyncio.get_running_loop()

        def made(done: Future[Blank]) -> None:
            if not done.cancelled():
                loop.call_soon_threadsafe(self._add, model, done.result())

        self._executor.submit(model.blank).add_done_callback(made)

    def _add(self, model: SealedModel, blank: Blank) -> None:
        self._making = False
        if model is self._model:
            self._blanks.append(blank)
        self.refill()
