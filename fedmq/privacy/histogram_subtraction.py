"""Only the smaller of two siblings is summed; the larger is the parent less the smaller."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fedmq.boosting.splits import parent, sibling

__all__ = ["Level", "plan_level"]


@dataclass(frozen=True, slots=True)
class Level:
    """The plan for the histograms of a level; nodes by their heap numbers.

    ``summed`` nodes read their rows; ``subtracted`` ones, in pairs (node, its summed sibling), are
    the parent less the sibling.
    """

    summed: tuple[int, ...]
    subtracted: tuple[tuple[int, int], ...]


def plan_level(sizes: Mapping[int, int], known: Collection[int], subtract: bool = True) -> Level:
    """Plan the nodes of ``sizes`` (rows per node), given the nodes whose histograms are kept.

    All nodes read their rows unless ``subtract``.
    """
    summed, subtracted = [], []
    for node, size in sizes.items():
        other = sibling(node)
        larger = other in sizes and (size, node) > (sizes[other], other)
        if subtract and larger and parent(node) in known:
            subtracted.append((node, other))
        else:
            summed.append(node)
    return Level(tuple(summed), tuple(subtracted))
