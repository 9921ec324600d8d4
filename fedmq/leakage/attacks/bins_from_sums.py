"""The active party reads who stands in which bin from the sums that it decrypts.

It follows the protocol. Gradients of many bits are distinct, so a small sum, or a difference of
two, identifies particular rows. Sums of children add up to their parent's, which links candidates
through a tree in any order. All sums together are equations about the rows left of each candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MOST_ROWS",
    "NodeSums",
    "Placed",
    "SubsetSums",
    "fingerprints",
    "followed",
    "left_shares",
    "linked",
    "named_rows",
]

# A pair as one number modulo 2^64, such that sums of pairs are sums of numbers.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)
# A node of more rows has more sets of 2 than are worth a table; sets of 3 grow with the cube.
_MOST_ROWS = 1200
_MOST_ROWS_OF_THREES = 160
# Directions whose share of the strongest equation is below these limits are left out.
_SMALLEST_EIGENVALUE = 1e-10
_SMALLEST_REST = 1e-7
_MOST_STEPS = 300
MOST_ROWS = 32


@dataclass(frozen=True, slots=True, eq=False)
class NodeSums:
    """The active party's knowledge of a node.

    ``rows`` (n,) carry ``pairs`` int64 (n, 2), g and h; ``left`` int64 (candidates, 2) are the sums
    that were shown, in any order.
    """

    rows: NDArray[np.int32]
    pairs: NDArray[np.int64]
    left: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Claims that of ``pairs`` (claims, 2) of candidates the first has more on its left.

    ``rows`` (claims, size): just these, by their places among the node's rows.
    """

    pairs: NDArray[np.intp]
    rows: NDArray[np.intp]


def fingerprints(pairs: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Pairs (..., 2) of g and h as one number each, modulo 2^64; those of sums are sums."""
    with np.errstate(over="ignore"):
        found: NDArray[np.uint64] = (pairs.astype(np.uint64) * _FACTORS).sum(
            axis=-1, dtype=np.uint64
        )
    return found


def named_rows(node: NodeSums, pairs: NDArray[np.intp]) -> Iterator[Placed]:
    """Differences of two sums that are made by one set of 1, 2 or 3 of the node's rows.

    ``pairs`` (pairs, 2) are the candidates to compare, the one further right first. A difference
    that several sets make names nobody. A node of more than 1,200 rows is left out; sets of 3 are
    tried in nodes of up to 160. One `Placed` for each size of sets.
    """
    n = len(node.rows)
    if not 1 < n <= _MOST_ROWS or not len(pairs):
        return
    own, shown = fingerprints(node.pairs), fingerprints(node.left)
    values, members = zip(*_sets(own, n), strict=True)
    sums = np.concatenate(values)
    order = np.argsort(sums, kind="stable")
    ordered = sums[order]
    with np.errstate(over="ignore"):
        differences = shown[pairs[:, 0]] - shown[pairs[:, 1]]
    apart = differences != 0
    pairs, differences = pairs[apart], differences[apart]
    first = np.searchsorted(ordered, differences, "left")
    unique = np.searchsorted(ordered, differences, "right") - first == 1
    pairs, found = pairs[unique], order[first[unique]]
    start = 0
    for value, rows in zip(values, members, strict=True):
        here = (found >= start) & (found < start + len(value))
        yield Placed(pairs[here], rows[:, found[here] - start].T)
        start += len(value)


def _sets(own: NDArray[np.uint64], n: int) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.intp]]]:
    """Fingerprints of sets of rows, and the rows (size, sets)."""
    yield own, np.arange(n)[None]
    one, two = np.triu_indices(n, 1)
    with np.errstate(over="ignore"):
        yield own[one] + own[two], np.stack((one, two))
        if 3 <= n <= _MOST_ROWS_OF_THREES:
            pair, third = np.nonzero(two[:, None] < np.arange(n))
            threes = np.stack((one[pair], two[pair], third))
            yield own[threes].sum(axis=0, dtype=np.uint64), threes


def followed(
    parent: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.intp]:
    """By candidate of the parent, its places among those of the two children: (candidates, 2).

    A sum of the parent, int64 (candidates, 2), is that of one candidate of each child; -1 where
    none fits, or several do.
    """
    whole, low, high = (fingerprints(sums) for sums in (parent, left, right))
    with np.errstate(over="ignore"):
        together = (low[:, None] + high[None, :]).ravel()
    order = np.argsort(together, kind="stable")
    ordered = together[order]
    first = np.searchsorted(ordered, whole, "left")
    unique = np.searchsorted(ordered, whole, "right") - first == 1
    found = order[np.minimum(first, len(order) - 1)] if len(order) else first
    places = np.stack(np.divmod(found, max(1, len(high))), axis=1)
    return np.where(unique[:, None], places, -1)


def linked(predicted: NDArray[np.float64], shown: NDArray[np.float64]) -> NDArray[np.intp]:
    """By predicted root sum (candidates, 2), the sum shown (candidates, 2) that is taken for it.

    The nearest pair first, then the nearest of the rest.
    """
    spread = np.maximum(shown.std(axis=0), np.finfo(float).tiny)
    distance = (((predicted[:, None] - shown[None]) / spread) ** 2).sum(axis=2)
    match = np.full(len(predicted), -1)
    taken = np.zeros(len(shown), dtype=np.bool_)
    for pair in np.argsort(distance, axis=None, kind="stable").tolist():
        one, other = divmod(pair, len(shown))
        if match[one] < 0 and not taken[other]:
            match[one], taken[other] = other, True
    return match


def left_shares(
    rows: int,
    nodes: Sequence[NodeSums],
    expected: NDArray[np.float64],
    shown: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """By least squares, how likely each row goes left of each candidate: (rows, candidates).

    The sums of each node are two equations about every candidate that it has ``shown``, bool
    (nodes, candidates), in the same order in all ``nodes``; ``expected`` (candidates,) is the share
    of the rows that goes left where they say nothing.
    """
    equations = np.zeros((2 * len(nodes), rows))
    sums = np.zeros((2 * len(nodes), len(expected)))
    for number, node in enumerate(nodes):
        for channel in range(2):
            held = node.pairs[:, channel].astype(np.float64)
            length = max(float(np.linalg.norm(held)), 1.0)
            equations[2 * number + channel, node.rows] = held / length
            sums[2 * number + channel] = node.left[:, channel] / length
    products = equations @ equations.T
    missing = sums - equations.sum(axis=1)[:, None] * expected
    known = np.repeat(shown, 2, axis=0)
    weights = _solved(products, missing, known)
    shares: NDArray[np.float64] = expected + equations.T @ weights
    return shares


def _solved(
    products: NDArray[np.float64], missing: NDArray[np.float64], known: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Weights (equations, candidates) of the ``known`` equations of each, the others 0.

    By eigenvectors where all are known, else by conjugate gradients (Hestenes and Stiefel, 1952),
    which stop before weakly determined directions count.
    """
    if known.all():
        values, vectors = np.linalg.eigh(products)
        kept = values > _SMALLEST_EIGENVALUE * max(values.max(initial=0.0), np.finfo(float).tiny)
        solved: NDArray[np.float64] = (vectors[:, kept].T @ missing) / values[kept, None]
        return vectors[:, kept] @ solved
    weights = np.zeros_like(missing)
    rest = np.where(known, missing, 0.0)
    direction, squares = rest.copy(), (rest**2).sum(axis=0)
    enough = _SMALLEST_REST**2 * np.maximum(squares, np.finfo(float).tiny)
    for _ in range(_MOST_STEPS):
        moved = np.where(known, products @ direction, 0.0)
        curvature = (direction * moved).sum(axis=0)
        open_ = (squares > enough) & (curvature > 0)
        if not open_.any():
            break
        step = np.where(open_, squares / np.where(open_, curvature, 1.0), 0.0)
        weights += step * direction
        rest -= step * moved
        before, squares = squares, np.where(open_, (rest**2).sum(axis=0), squares)
        direction = rest + np.where(open_, squares / np.where(open_, before, 1.0), 0.0) * direction
    return weights


class SubsetSums:
    """The sums of all sets of up to 32 rows, whose gradients are ``own`` uint64 (rows,).

    Gradients and sums are fingerprints modulo 2^64.
    """

    def __init__(self, own: NDArray[np.uint64]) -> None:
        if len(own) > MOST_ROWS:
            raise ValueError(f"{len(own)} rows, all sets of {MOST_ROWS} can be tried")
        self._rows = len(own)
        self._half = len(own) // 2
        first, self._second = _all_sums(own[: self._half]), _all_sums(own[self._half :])
        self._order = np.argsort(first, kind="stable")
        self._first = first[self._order]

    def rows(self, total: np.uint64) -> NDArray[np.bool_] | None:
        """The one set with this sum, bool (rows,); None where there is none, or more than one."""
        with np.errstate(over="ignore"):
            wanted = total - self._second
        begin = np.searchsorted(self._first, wanted, "left")
        count = np.searchsorted(self._first, wanted, "right") - begin
        if count.sum() != 1:
            return None
        place = int(np.argmax(count))
        low, high = int(self._order[begin[place]]), place
        bits = low | high << self._half
        return (bits >> np.arange(self._rows) & 1).astype(np.bool_)


def _all_sums(own: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sums of all sets, by the number whose bits they are: uint64 (2^n,)."""
    sums = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for value in own:
            sums = np.concatenate((sums, sums + value))
    return sums
