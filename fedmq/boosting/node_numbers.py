"""How are nodes numbered? As in a heap: node n has the children 2n and 2n + 1."""

from __future__ import annotations

__all__ = ["ROOT", "children", "depth", "parent", "sibling"]


ROOT = 1


def children(node: int) -> tuple[int, int]:
    """The heap numbers of the left and the right child."""
    return 2 * node, 2 * node + 1


def parent(node: int) -> int:
    """The heap number of the node above ``node``, which is not the root."""
    return node // 2


def sibling(node: int) -> int:
    """The heap number of the other child of the parent of ``node``, which is not the root."""
    return node ^ 1


def depth(node: int) -> int:
    """How many splits stand above ``node``."""
    return node.bit_length() - 1
