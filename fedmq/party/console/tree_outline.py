"""A tree as an outline: a line a node, each below its parent, with branches drawn in front."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["outline"]


def outline(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The nodes as `tree_nodes` has them, in the order of an outline.

    Each has its ``level``, the ``side`` of its parent on which it stands (empty for the root), and
    ``branches``, which is drawn in front of it.
    """
    return list(_lines(nodes))


def _lines(nodes: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    waiting: list[tuple[int, str, str, int]] = [(0, "", "", 0)] if nodes else []
    while waiting:
        place, side, before, level = waiting.pop()
        node = nodes[place]
        last = side == "right"
        branches = before + ("" if not side else "└─ " if last else "├─ ")
        yield {**node, "level": level, "side": side, "branches": branches}
        if "left" in node:
            inner = before + ("" if not side else "   " if last else "│  ")
            waiting.append((node["right"], "right", inner, level + 1))
            waiting.append((node["left"], "left", inner, level + 1))
