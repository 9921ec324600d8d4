"""How does the label holder read an answer?

``y - [H·s]_0`` is the sum of g and h in their fields, above noise that is rounded away: H is the
candidate's hint, s the secret of the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.lattice.layout import LIMBS, Layout
from fedmq.privacy.lattice.limbs import add_power, carried, signed_field
from fedmq.privacy.lattice.ring import reversed_element
from fedmq.privacy.lattice.sampling import draw_secret
from fedmq.privacy.plan import Values

__all__ = ["DecryptAnswer", "read_answer"]

_HINTS_AT_ONCE = 4


@dataclass(frozen=True, eq=False)
class DecryptAnswer:
    """The numbers of hints that an answer names, uint32 (C,), and its sums: int64 (nodes, C, 2).

    Those of g and h for each node that a query can be about.

    ``hints`` uint32 (hints, limbs, N) as `JoinHints` makes them; ``seed`` is the query's.
    Raises `MessageError` for a malformed answer.
    """

    label: ClassVar[str] = "DecryptAnswer"
    pieces: Sequence[Values]
    hints: NDArray[np.uint32]
    layout: Layout
    seed: bytes = field(repr=False)

    def run(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        layout = self.layout
        numbers, limbs = self.limbs()
        left = np.empty((layout.nodes, len(numbers), 2), np.int64)
        borrowed = np.zeros(len(numbers), np.bool_)  # by a negative number from the field above it
        for node in range(layout.nodes):
            for column, offset in ((1, layout.h_offset(node)), (0, layout.g_offset(node))):
                field = signed_field(limbs, offset, layout.field_bits)
                left[node, :, column] = field + borrowed
                borrowed = field < 0
        return numbers, left

    def limbs(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The numbers of hints, (C,), and what they hid, (6, C), rounded above the noise."""
        numbers, answers = read_answer(self.pieces, len(self.hints))
        sums = answers.T.astype(np.int64)
        sums[LIMBS - self.hints.shape[1] :] -= self._products(numbers).T
        add_power(sums, self.layout.noise_bits - 1)
        return numbers, carried(sums)

    def _products(self, numbers: NDArray[np.uint32]) -> NDArray[np.int64]:
        """[H·s]_0 for these hints: sums of limbs (numbers, limbs)."""
        layout = self.layout
        secret = draw_secret(self.seed, layout.degree, layout.largest_secret)
        turned = reversed_element(secret).astype(np.float64)
        whole = len(numbers) == len(self.hints)
        asked = self.hints if whole else self.hints[numbers]
        products = np.empty((len(numbers), self.hints.shape[1]), np.int64)
        # Memory that was written a moment ago is still in a cache, and no page of it is new.
        hints = np.empty((_HINTS_AT_ONCE, *self.hints.shape[1:]))
        for start in range(0, len(numbers), _HINTS_AT_ONCE):
            part = asked[start : start + _HINTS_AT_ONCE]
            hints[: len(part)] = part
            products[start : start + len(part)] = hints[: len(part)] @ turned
        return products[numbers] if whole else products


def read_answer(
    pieces: Sequence[Values], hints: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Which hint belongs to each candidate, uint32 (C,), and the answers, uint32 (C, 6).

    Raises:
        MessageError: the answer is malformed, or names a hint twice or one that there is not.
    """
    numbers, answers = [], []
    for piece in pieces:
        number, answer = piece.get("numbers"), piece.get("sums")
        if (
            set(piece) != {"numbers", "sums"}
            or not isinstance(number, np.ndarray)
            or not isinstance(answer, np.ndarray)
            or number.dtype != np.uint32
            or answer.dtype != np.uint32
            or number.ndim != 1
            or answer.shape != (len(number), LIMBS)
        ):
            raise MessageError("an answer that is not numbers of hints and sums of six limbs")
        numbers.append(number)
        answers.append(answer)
    if not numbers:
        raise MessageError("an answer without pieces")
    every = np.concatenate(numbers)
    if (every >= hints).any() or len(np.unique(every)) < len(every):
        raise MessageError(f"an answer that names a hint twice, or none of the {hints}")
    return every, np.concatenate(answers)
