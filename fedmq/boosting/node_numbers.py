"""How the nodes of a tree are numbered."""

from __future__ import annotations

__all__ = ["ROOT", "children", "depth"]


ROOT = 1


def children(node: int) -> tuple[int, int]:
    """The heap numbers of the left and the right child."""
    return 2 * node, 2 * node + 1


def depth(node: int) -> int:
    """How many splits stand above ``node``."""
    return node.bit_length() - 1
