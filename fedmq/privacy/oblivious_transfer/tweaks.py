"""How is no hash taken twice under one number? A range hands each of its numbers out once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tweaks"]


class Tweaks:
    """The numbers from ``start`` to before ``stop`` that nobody has used yet.

    A session begins with all of them. Both parties take as many for the same things in the same
    order, and so need not send them. After a crash a session begins anew with a new secret.
    """

    def __init__(self, start: int = 0, stop: int = 2**64) -> None:
        self._next = start
        self._stop = stop

    @property
    def start(self) -> int:
        """The first of them."""
        return self._next

    @property
    def left(self) -> int:
        """So many have not been used."""
        return self._stop - self._next

    def take(self, count: int) -> Tweaks:
        """The next ``count`` numbers, which are no longer among these."""
        self._check(count)
        self._next += count
        return Tweaks(self._next - count, self._next)

    def spend(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` numbers for one use: uint64 (count,). None may be left after it."""
        self._check(count)
        if count != self.left:
            raise ValueError(f"{count} of {self.left} tweaks are used: take so many first")
        numbers = np.arange(count, dtype=np.uint64) + np.uint64(self._next)
        self._next += count
        return numbers

    def _check(self, count: int) -> None:
        if count > self.left:
            raise ValueError(f"{count} tweaks are needed where {self.left} are left")
