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

_ROWS_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class DecryptAnswer:
    """Of each answer the numbers of the hints that it names, uint32 (C,), and the sums.

    The latter are int64 (nodes, C, 2): of g and h for each node that a query can be about.

    ``answers`` are the pieces of each; ``hints`` uint32 (hints, limbs, N) as `JoinHints` makes
    them; ``seeds`` are those of the queries. Raises `MessageError` for a malformed answer.
    """

    label: ClassVar[str] = "DecryptAnswer"
    answers: Sequence[Sequence[Values]]
    hints: NDArray[np.uint32]
    layout: Layout
    seeds: Sequence[bytes] = field(repr=False)

    def run(self) -> list[tuple[NDArray[np.uint32], NDArray[np.int64]]]:
        return [(numbers, self._left(limbs)) for numbers, limbs in self.limbs()]

    def _left(self, limbs: NDArray[np.uint32]) -> NDArray[np.int64]:
        layout = self.layout
        count = limbs.shape[-1]
        left = np.empty((layout.nodes, count, 2), np.int64)
        borrowed = np.zeros(count, np.bool_)  # by a negative number from the field above it
        for node in range(layout.nodes):
            for column, offset in ((1, layout.h_offset(node)), (0, layout.g_offset(node))):
                field = signed_field(limbs, offset, layout.field_bits)
                left[node, :, column] = field + borrowed
                borrowed = field < 0
        return left

    def limbs(self) -> list[tuple[NDArray[np.uint32], NDArray[np.uint32]]]:
        """The numbers of hints, (C,), and what they hid, (6, C), rounded above the noise."""
        read = [read_answer(pieces, len(self.hints)) for pieces in self.answers]
        named = np.unique(np.concatenate([numbers for numbers, _ in read]))
        products = self._products(named)
        found = []
        for of_answer, (numbers, answers) in enumerate(read):
            sums = answers.T.astype(np.int64)
            places = np.searchsorted(named, numbers)
            sums[LIMBS - self.hints.shape[1] :] -= products[places, :, of_answer].T
            add_power(sums, self.layout.noise_bits - 1)
            found.append((numbers, carried(sums)))
        return found

    def _products(self, numbers: NDArray[np.uint32]) -> NDArray[np.int64]:
        """[H·s]_0 for these hints and the secrets of all answers: limbs (numbers, limbs, answers).

        Hints are large: they are read, and become numbers of 64 bits, once for all answers.
        """
        layout = self.layout
        turned = np.empty((layout.degree, len(self.seeds)))
        for of_answer, seed in enumerate(self.seeds):
            secret = draw_secret(seed, layout.degree, layout.largest_secret)
            turned[:, of_answer] = reversed_element(secret)
        asked = self.hints if len(numbers) == len(self.hints) else self.hints[numbers]
        rows = asked.reshape(-1, layout.degree)
        products = np.empty((len(rows), len(self.seeds)), np.int64)
        # Memory that was written a moment ago is still in a cache, and no page of it is new.
        hints = np.empty((_ROWS_AT_ONCE, layout.degree))
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            hints[: len(part)] = part
            products[start : start + len(part)] = hints[: len(part)] @ turned
        return products.reshape(*asked.shape[:-1], len(self.seeds))


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
