"""Who sent how much of what to whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from fedmq.messages.envelope import Header

__all__ = ["Traffic", "Volume"]


@dataclass(slots=True)
class Volume:
    """A number of messages and their bytes on the wire."""

    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Traffic:
    """Volumes per (sender, recipient) and message kind."""

    volumes: dict[tuple[str, str], dict[str, Volume]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Volume))
    )

    def count(self, header: Header, size: int) -> None:
        """Add one message of ``size`` bytes."""
        volume = self.volumes[header.sender, header.recipient][header.kind]
        volume.messages += 1
        volume.bytes += size

    @property
    def total(self) -> Volume:
        """Everything together."""
        return _sum([volume for kinds in self.volumes.values() for volume in kinds.values()])

    def between(self, sender: str, recipient: str) -> Volume:
        """What ``sender`` sent to ``recipient``, of all kinds."""
        return _sum(self.volumes.get((sender, recipient), {}).values())


def _sum(volumes: Collection[Volume]) -> Volume:
    return Volume(
        sum(volume.messages for volume in volumes), sum(volume.bytes for volume in volumes)
    )
