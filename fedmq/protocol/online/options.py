"""In which mode is scored online, how long, and what if nobody answers?

A party's file has these options too: every command reads it, so nothing heavy is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["AskedRows", "Degrade", "Mode", "Timeouts"]

Mode = Literal["hop", "bitmap", "sealed"]
"""``hop``: a party is asked about the records that a row really enters, round by round.
``bitmap``: every party discloses all its directions for a row at once; the active party walks
alone. ``sealed``: the parties multiply what the active party has encrypted, one after the other,
and nobody learns a direction. Files in mode hop are answered by whoever answers online in hop or
bitmap.
"""

Degrade = Literal["fail", "partial", "active_only"]
"""When a party is away: an error; its splits go the likely way; or all other parties' splits do."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedRows:
    """The rows of one request in a batch, and the seconds that the request waits.

    ``explain``: the scores include all directions of the rows, in mode ``bitmap``. In mode
    ``sealed`` all requests of a batch have reasons, or none has. ``base_margin``
    float32 (rows,) or (rows, classes): the start of the rows, instead of the base score.
    """

    start: int
    stop: int
    seconds: float
    explain: bool = False
    base_margin: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """``ask_again``: seconds until a question is repeated; ``away``: until a party is given up.

    None: wait for a party until the requests' own time is over.
    """

    ask_again: float = 0.1
    away: float | None = None
