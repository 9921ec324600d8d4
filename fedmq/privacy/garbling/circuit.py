"""Which gates does a result need? XOR and NOT, which are free, and AND, which costs 32 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["FALSE", "TRUE", "Circuit", "Gate", "Word"]

Word = list[int]
"""Wires, the lowest bit first."""

FALSE = 0
TRUE = 1


@dataclass(frozen=True, slots=True)
class Gate:
    """XOR or AND of two wires."""

    kind: Literal["xor", "and"]
    left: int
    right: int


class Circuit:
    """Gates that are added one by one; a gate that is there already is not added again.

    A wire is twice the number of its node, and one more where the node's bit is inverted: NOT is no
    gate. Node 0 is the constant; other nodes are inputs or gates.
    """

    def __init__(self) -> None:
        self.inputs: dict[str, list[int]] = {}
        self.outputs: dict[str, Word] = {}
        self.gates: dict[int, Gate] = {}
        self._nodes: dict[Gate, int] = {}
        self._count = 1

    def input(self, name: str, bits: int) -> Word:
        """A word that is given from outside."""
        self.inputs[name] = list(range(self._count, self._count + bits))
        self._count += bits
        return [2 * node for node in self.inputs[name]]

    def output(self, name: str, word: Word) -> None:
        """Name a word that is a result."""
        self.outputs[name] = list(word)

    def xor(self, left: int, right: int) -> int:
        inverted = (left ^ right) & 1
        left, right = sorted((left & ~1, right & ~1))
        if left == right:
            return inverted
        if left == FALSE:
            return right | inverted
        return self._gate("xor", left, right) | inverted

    def both(self, left: int, right: int) -> int:
        """AND."""
        left, right = sorted((left, right))
        if left == FALSE or left ^ right == 1:
            return FALSE
        if left in (TRUE, right):
            return right
        return self._gate("and", left, right)

    def inverse(self, wire: int) -> int:
        """NOT."""
        return wire ^ 1

    def either(self, left: int, right: int) -> int:
        """OR."""
        return self.both(left ^ 1, right ^ 1) ^ 1

    def any_of(self, wires: Sequence[int]) -> int:
        """Whether one of them is set: a tree of ORs."""
        rest = list(wires) or [FALSE]
        while len(rest) > 1:
            pairs = [rest[start : start + 2] for start in range(0, len(rest), 2)]
            rest = [self.either(pair[0], pair[-1]) for pair in pairs]
        return rest[0]

    def _gate(self, kind: Literal["xor", "and"], left: int, right: int) -> int:
        gate = Gate(kind, left, right)
        if gate not in self._nodes:
            self._nodes[gate] = self._count
            self.gates[self._count] = gate
            self._count += 1
        return 2 * self._nodes[gate]
