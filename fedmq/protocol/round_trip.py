"""How long does a link take until an acknowledgement is due?"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RoundTrip"]

_SLOWEST = 32_000
"""Bytes a second, a quarter of a Mbit/s: what a link is thought to carry before it is measured."""

# RFC 6298, section 2: alpha, beta and K.
_OF_NEWEST = 1 / 8
_OF_NEWEST_DEVIATION = 1 / 4
_DEVIATIONS = 4


@dataclass(slots=True)
class RoundTrip:
    """Time from the broker's confirm of a message until its acknowledgement, smoothed.

    RFC 6298, with seconds: ``srtt = 7/8 srtt + 1/8 r``, ``rttvar = 3/4 rttvar + 1/4 |srtt - r|``,
    and an acknowledgement is due after ``srtt + 4 rttvar``. A message takes the longer the more
    bytes it has, so these count besides.
    """

    smoothed: float | None = None
    deviation: float = 0.0

    def measure(self, seconds: float) -> None:
        """Take in that the acknowledgement of a message that was sent once took ``seconds``."""
        if self.smoothed is None:
            self.smoothed, self.deviation = seconds, seconds / 2
            return
        error = abs(self.smoothed - seconds)
        self.deviation += _OF_NEWEST_DEVIATION * (error - self.deviation)
        self.smoothed += _OF_NEWEST * (seconds - self.smoothed)

    def due(self, size: int) -> float:
        """Seconds after which a message of ``size`` bytes should be acknowledged."""
        measured = (self.smoothed or 0.0) + _DEVIATIONS * self.deviation
        return measured + size / _SLOWEST
