"""How are nodes asked about without saying which rows stand in them, and how is an answer read?

Row by row its g and h are encrypted, 0 where a row stands elsewhere: ``b_j = a_j·s + e_j + u_j``
for each block of rows, and ``b' = a'·s + e'`` for the masks, with a fresh secret s (Regev, STOC
2005; Lyubashevsky, Peikert and Regev, EUROCRYPT 2010). The a_j are not sent, and
low bits that noise would drown are rounded away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import Inexact, MessageError
from fedmq.privacy.engine import SizeLimit
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.lattice.machine_query import Encrypting, can_encrypt, spread_pairs
from fedmq.privacy.lattice.parameters import (
    LIMB_BITS,
    LIMBS,
    Layout,
    add_power,
    add_shifted,
    carried,
    field_at,
    signed_field,
)
from fedmq.privacy.lattice.ring import (
    PublicElements,
    Transform,
    coefficients,
    draw_secret,
    errors_in,
    reversed_element,
    transformed,
)
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Values
from fedmq.privacy.random_stream import Stream

__all__ = [
    "DecryptAnswer",
    "EncryptNode",
    "QueryPart",
    "ReadShares",
    "pieces_of_query",
    "query_limit",
    "read_answer",
    "read_query",
    "shares_at",
]

_HALF = LIMB_BITS // 2
_WORD = 64


@dataclass(frozen=True, eq=False)
class EncryptNode:
    """A query about nodes, of ``rows`` each, in pieces: the numbers of all rows, then the masks'.

    Makes all ``pieces``, or those of these numbers. Nodes are ``layout.nodes`` at most, and no
    row stands in two. Rows are ascending. ``pairs`` int64 (all rows, 2). ``seed`` must never
    encrypt anything else: two queries under one secret disclose their difference. ``people`` int32
    (all rows,): where several rows are of one person, the number of each one's; a query then holds
    a sum for each person, who may stand in several nodes.
    """

    label: ClassVar[str] = "EncryptNode"
    pairs: NDArray[np.int64]
    rows: Sequence[NDArray[np.integer]]
    public: PublicElements
    layout: Layout
    seed: bytes = field(repr=False)
    pieces: range | None = None
    people: NDArray[np.int32] | None = None

    def run(self) -> list[Values]:
        layout = self.layout
        secret = transformed(draw_secret(self.seed, layout.degree, layout.largest_secret))
        every = _elements(layout)
        asked = every if self.pieces is None else [every[piece] for piece in self.pieces]
        return [self._encrypted(elements, secret) for elements in asked]

    def _encrypted(self, elements: range, secret: Transform) -> Values:
        """These elements of the query."""
        layout = self.layout
        held = _numbers(elements, layout)
        limbs = np.empty((layout.sent_limbs, held.stop - held.start), np.uint32)
        at_once = Encrypting(layout, secret) if can_encrypt(layout) else None
        for element in elements:  # one at a time stays in a cache
            own = _numbers(range(element, element + 1), layout)
            words = self._errors(element).words(layout.degree)
            pairs = self._pairs_of(own, at_once is not None)
            if at_once is not None:
                found = at_once(self.public.every[element], words, pairs)
            else:
                found = self._numbers_of(self.public.every[element] * secret, words, pairs)
            limbs[:, own.start - held.start : own.stop - held.start] = found[
                :, : own.stop - own.start
            ]
        return _packed(limbs, layout)

    def _numbers_of(
        self, product: Transform, words: NDArray[np.uint64], pairs: NDArray[np.int64]
    ) -> NDArray[np.uint32]:
        """The numbers of an element: uint32 (sent limbs, N)."""
        layout = self.layout
        sums = coefficients(product)
        sums[0] += errors_in(words)
        for node in range(layout.nodes):
            g, h = pairs[2 * node : 2 * node + 2]
            add_shifted(sums, h, layout.h_offset(node))
            add_shifted(sums, g, layout.g_offset(node))
        if layout.dropped_bits:  # round the low bits away
            add_power(sums, layout.dropped_bits - 1)
        return carried(sums)[LIMBS - layout.sent_limbs :]

    def _pairs_of(self, within: slice, at_once: bool) -> NDArray[np.int64]:
        """g and h of each node by numbers ``within`` a query, 0 elsewhere: (2 * nodes, N)."""
        layout = self.layout
        pairs = np.zeros((2 * layout.nodes, layout.degree), np.int64)
        within = slice(within.start, min(within.stop, layout.rows))
        for node, rows in enumerate(self.rows):
            of_node = pairs[2 * node : 2 * node + 2]
            if self.people is None:
                # For numbers of another dtype NumPy would convert all rows.
                ends = np.array([within.start, within.stop], rows.dtype)
                held = rows[slice(*np.searchsorted(rows, ends))]
                held = held - rows.dtype.type(within.start)
                if at_once:
                    spread_pairs(of_node, self.pairs[within], held, layout)
                else:
                    of_node[:, held] = self.pairs[within][held].T
            else:
                people = self.people[rows]
                here = (people >= within.start) & (people < within.stop)
                places = people[here] - within.start
                for column, values in zip(of_node, self.pairs[rows[here]].T, strict=True):
                    np.add.at(column, places, values)
        return pairs

    def _errors(self, element: int) -> Stream:
        of = "of masks" if element == self.layout.blocks else f"{element}"
        return Stream(self.seed, f"fedmq lattice error {of}")


def _elements(layout: Layout) -> list[range]:
    """The ring elements of each piece of a query: blocks of rows, then masks."""
    count, number_bytes = layout.blocks + 1, LIMB_BITS // 8 * layout.sent_limbs
    most = max(1, LARGEST_PIECE_BYTES // (number_bytes * layout.degree))
    return [range(start, min(start + most, count)) for start in range(0, count, most)]


def _numbers(elements: range, layout: Layout) -> slice:
    """The places of neighbouring elements' numbers within a query."""
    first = min(elements.start * layout.degree, layout.rows)
    if elements.stop > layout.blocks:
        return slice(first, layout.rows + layout.degree)
    return slice(first, min(elements.stop * layout.degree, layout.rows))


def query_limit(layout: Layout) -> SizeLimit:
    """The size of the pieces of `EncryptNode`."""
    number_bytes = LIMB_BITS // 8 * layout.sent_limbs - _HALF // 8 * layout.sends_half
    return SizeLimit(pieces_of_query(layout), (layout.rows + layout.degree) * number_bytes)


def _packed(limbs: NDArray[np.uint32], layout: Layout) -> Values:
    """Limbs (sent limbs, n) as they travel."""
    if not layout.sends_half:
        return {"limbs": limbs}
    return {"limbs": limbs[1:], "half": (limbs[0] >> _HALF).astype(np.uint16)}


@dataclass(frozen=True, eq=False)
class QueryPart:
    """Neighbouring pieces of a query as their recipient adds them up.

    ``rows`` uint32 (sent limbs, rows) are the numbers of the rows from ``first`` on; ``masks``
    (sent limbs, N), or (sent limbs, 0) where the last piece is not among them.
    """

    first: int
    rows: NDArray[np.uint32]
    masks: NDArray[np.uint32]


def pieces_of_query(layout: Layout) -> int:
    """The number of pieces that `EncryptNode` makes."""
    return len(_elements(layout))


def read_query(pieces: Sequence[Values], layout: Layout, first: int = 0) -> QueryPart:
    """The ``pieces`` of `EncryptNode` from piece ``first`` on, checked.

    Raises:
        MessageError: they are not of ``layout``.
    """
    parts = [
        _numbers(elements, layout) for elements in _elements(layout)[first : first + len(pieces)]
    ]
    if not parts or len(parts) != len(pieces):
        raise MessageError(
            f"a query of {first + len(pieces)} pieces, not {pieces_of_query(layout)}"
        )
    held = slice(parts[0].start, parts[-1].stop)
    limbs = np.empty((layout.sent_limbs, held.stop - held.start), np.uint32)
    for piece, part in zip(pieces, parts, strict=True):
        _read(piece, layout, limbs[:, part.start - held.start : part.stop - held.start])
    rows = min(held.stop, layout.rows) - held.start
    return QueryPart(held.start, limbs[:, :rows], limbs[:, rows:])


def _read(piece: Values, layout: Layout, into: NDArray[np.uint32]) -> None:
    """Put the limbs of ``piece`` into uint32 (sent limbs, count)."""
    half = layout.sends_half
    shape = (len(into) - half, into.shape[1])
    limbs, halves = piece.get("limbs"), piece.get("half")
    if (
        set(piece) != ({"limbs", "half"} if half else {"limbs"})
        or not isinstance(limbs, np.ndarray)
        or limbs.dtype != np.uint32
        or limbs.shape != shape
    ):
        raise MessageError(f"a piece of a query that is not limbs: uint32 {shape}")
    into[int(half) :] = limbs
    if not half:
        return
    if not isinstance(halves, np.ndarray) or halves.dtype != np.uint16 or halves.shape != shape[1:]:
        raise MessageError(f"a piece of a query whose half limbs are not uint16 {shape[1:]}")
    np.left_shift(halves, _HALF, out=into[0], dtype=np.uint32)


# How does the active party read an answer?
#
# ``y - [H·s]_0`` is the sum of g and h in their fields, above noise that is rounded away: H is the
# candidate's hint, s the secret of the query.


_ROWS_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class DecryptAnswer:
    """The sums of each answer, and the numbers of the hints that it names, uint32 (C,).

    Sums are int64 (nodes, C, 2): g and h for each node that a query can be about.

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
        """The numbers of hints, (C,), and decrypted numbers, (6, C), rounded above the noise."""
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


@dataclass(frozen=True, eq=False)
class ReadShares:
    """Each answer's numbers of hints, uint32 (C,), and the active party's shares (C, 2).

    Raises:
        MessageError: an answer is malformed.
        Inexact: a share is in doubt; no other one is ever wrong.
    """

    label: ClassVar[str] = "ReadShares"
    answers: DecryptAnswer

    def run(self) -> list[tuple[NDArray[np.uint32], Shares]]:
        layout = self.answers.layout
        return [(numbers, shares_at(limbs, layout)) for numbers, limbs in self.answers.limbs()]


def shares_at(limbs: NDArray[np.uint32], layout: Layout) -> Shares:
    """The fields of numbers (6, C) as shares.

    Below them is a uniform number from 0 to 2^noise - 1, plus errors of `Layout.largest_error` at
    most. Where this sum leaves the room, it is wrong by one in h, and stands as near to an end.

    Raises:
        Inexact: a number stands so near to an end of the room below fields.
    """
    below = field_at(limbs, layout.noise_bits - _WORD)  # the highest bits of the room
    near = np.uint64(layout.largest_error >> (layout.noise_bits - _WORD))
    if ((below <= near) | (~below <= near)).any():
        raise Inexact(
            "engine 'lattice': a hidden sum is in doubt, which happens to one of 2^36 by chance; "
            "train anew"
        )
    mask = Field(layout.field_bits).mask
    fields = [field_at(limbs, offset) & mask for offset in (layout.g_offset(0), layout.h_offset(0))]
    return np.stack(fields, axis=-1)


def read_answer(
    pieces: Sequence[Values], hints: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Which hint belongs to each candidate, uint32 (C,), and the answers, uint32 (C, 6).

    Raises:
        MessageError: the answer is malformed, or names a hint twice or an unknown hint.
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
