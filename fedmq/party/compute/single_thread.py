"""How many threads does linear algebra take? One for each computation: the pool knows the cores.

Left alone, BLAS starts a thread per core for a product of milliseconds. They go on spinning after
it, on the cores that the event loop and the broker want.
"""

from __future__ import annotations

import threading
from functools import cache
from types import TracebackType

from threadpoolctl import ThreadpoolController

__all__ = ["SINGLE_THREAD"]


@cache
def _libraries() -> ThreadpoolController:
    """Those that this process has loaded; finding them takes milliseconds."""
    return ThreadpoolController()


class _SingleThread:
    """A context in which BLAS uses one thread; several threads may be in it at once.

    When the last one leaves, the rest of the process has its own number again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


SINGLE_THREAD = _SingleThread()
