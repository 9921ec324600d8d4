"""How are the nodes of a tree numbered? The root is 1, the children of n are 2n and 2n + 1."""

from __future__ import annotations

__all__ = ["ROOT", "children", "depth", "parent", "sibling"]


ROOT = 1


def children(node: int) -> tuple[int, int]:
    """The heap numbers of the left and the right child."""
    return 2 * node, 2 * node + 1


def parent(node: int) -> int:
    """The heap number of the parent; 0 for the root."""
    return node // 2


def sibling(node: int) -> int:
    """The heap number of the parent's other child."""
    return node ^ 1


def depth(node: int) -> int:
    """How many splits stand above ``node``."""
    return node.bit_length() - 1
