"""The active party reads who stands in which bin from the sums that it decrypts.

It follows the protocol. Gradients of many bits are distinct, so a small sum, or a difference of
two, identifies particular rows. Sums of children add up to their parent's, which links candidates
through a tree in any order; a forecast of each sum, with its uncertainty, links them from tree to
tree. All sums together are equations about the rows left of each candidate, and each row is wholly
left or wholly right: a third of as many equations as rows, or fewer, is enough to solve them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MOST_ROWS",
    "Equations",
    "NodeSums",
    "Placed",
    "SubsetSums",
    "fingerprints",
    "followed",
    "linked",
    "named_rows",
    "ordered_by_counts",
    "shares_left",
]

# A pair as one number modulo 2^64, such that sums of pairs are sums of numbers.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)
# A node of more rows has more sets of 2 than are worth a table; sets of 3 grow with the cube.
_MOST_ROWS = 1200
_MOST_ROWS_OF_THREES = 160
# Directions whose share of the strongest equation is below this limit are left out.
_SMALLEST_EIGENVALUE = 1e-10
_LEAST_VARIANCE = 1e-4  # of a row's side, where nearly all stand on one
_LEAST_REST = 1e-12
_MOST_SURPRISE = 1e9
_SOLVED = 1e-6
_LOOKS = 25  # steps between two looks at whether whole shares solve the equations
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


@dataclass(frozen=True, slots=True, eq=False)
class Equations:
    """What the sums of nodes say of the rows left of each candidate; an equation for each g and h.

    ``weights`` float64 (equations, rows), each of length 1: what a row adds. ``sums`` (equations,
    candidates), and which of them are ``shown``, bool of the same shape.
    """

    weights: NDArray[np.float64]
    sums: NDArray[np.float64]
    shown: NDArray[np.bool_]

    @classmethod
    def of(
        cls, rows: int, nodes: Sequence[NodeSums], shown: Sequence[NDArray[np.bool_]]
    ) -> Equations:
        """Of ``nodes`` of a table of ``rows``, and the candidates that each has ``shown``.

        All nodes have their candidates in one order.
        """
        candidates = len(nodes[0].left)
        weights = np.zeros((2 * len(nodes), rows))
        sums = np.zeros((2 * len(nodes), candidates))
        for number, node in enumerate(nodes):
            for channel in range(2):
                held = node.pairs[:, channel].astype(np.float64)
                length = max(float(np.linalg.norm(held)), 1.0)
                weights[2 * number + channel, node.rows] = held / length
                sums[2 * number + channel] = node.left[:, channel] / length
        return cls(weights, sums, np.repeat(np.stack(shown), 2, axis=0))

    def alike(self) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.intp]]]:
        """Candidates that the same equations are about: these (equations,), and the candidates."""
        kinds, kind = np.unique(self.shown, axis=1, return_inverse=True)
        for number, held in enumerate(kinds.T):
            yield held, np.flatnonzero(kind.ravel() == number)


def linked(
    before: Equations,
    expected: NDArray[np.float64],
    weights: NDArray[np.float64],
    shown: NDArray[np.float64],
) -> NDArray[np.intp]:
    """By candidate, which of the sums ``shown`` (candidates, 2) of a new node is taken for its own.

    ``weights`` (2, rows): g and h of the node's rows, else 0. Rows are taken as independent, left
    of a candidate with the probability ``expected`` (candidates,); given the equations ``before``,
    a sum then has a mean and a covariance (conditioning of a normal distribution). A tree changes
    g by the weight of a leaf times h, so one direction of (g, h) is forecast to a few rows. The
    likeliest assignment of all is taken.
    """
    among = weights @ weights.T
    own = weights @ before.weights.T
    products = before.weights @ before.weights.T
    spread = np.maximum(expected * (1 - expected), _LEAST_VARIANCE)
    surprise = np.empty((len(expected), len(shown)))
    for held, candidates in before.alike():
        values, vectors = _directions(products[np.ix_(held, held)])
        seen = own[:, held] @ vectors
        likely = expected[candidates]
        whole = before.weights[held].sum(axis=1)
        missing = before.sums[np.ix_(held, candidates)] - whole[:, None] * likely
        mean = weights.sum(axis=1)[:, None] * likely + (seen / values) @ (vectors.T @ missing)
        rest = among - (seen / values) @ seen.T
        rest = (rest + rest.T) / 2 + _LEAST_REST * np.diag(np.maximum(np.diag(among), 1.0))
        apart = shown[None] - mean.T[:, None]
        distance = np.einsum("abi,ij,abj->ab", apart, np.linalg.inv(rest), apart)
        doubt = np.log(max(float(np.linalg.det(rest)), np.finfo(float).tiny))
        variance = spread[candidates, None]
        surprise[candidates] = distance / variance + 2 * np.log(variance) + doubt
    return _assigned(np.nan_to_num(surprise, nan=_MOST_SURPRISE, posinf=_MOST_SURPRISE))


def _assigned(cost: NDArray[np.float64]) -> NDArray[np.intp]:
    """The cheapest assignment of columns to lines: (lines,), by shortest paths (Kuhn and Munkres).

    ``cost`` (lines, columns) has as many columns as lines.
    """
    size = len(cost)
    of_line, of_column = np.zeros(size), np.zeros(size + 1)
    line_at = np.full(size + 1, -1)
    for line in range(size):
        line_at[size] = line  # begins at a column that does not exist
        column = size
        least = np.full(size, np.inf)
        came_from = np.full(size, size)
        used = np.zeros(size + 1, dtype=np.bool_)
        while line_at[column] >= 0:
            used[column] = True
            at = line_at[column]
            open_ = ~used[:size]
            reduced = cost[at] - of_line[at] - of_column[:size]
            better = open_ & (reduced < least)
            least[better], came_from[better] = reduced[better], column
            step = float(least[open_].min())
            of_line[line_at[used]] += step
            of_column[used] -= step
            least[open_] -= step
            column = int(np.flatnonzero(open_)[np.argmin(least[open_])])
        while column != size:
            line_at[column] = line_at[came_from[column]]
            column = int(came_from[column])
    match = np.empty(size, dtype=np.intp)
    match[line_at[:size]] = np.arange(size)
    return match


def ordered_by_counts(node: NodeSums) -> NDArray[np.intp] | None:
    """The candidates of ``node`` in one order for all nodes of the same rows; None if h varies.

    Where h is the same for all rows, sums of h are counts. Owners show candidates that part the
    rows into the same two counts in XGBoost's order, whatever else is drawn.
    """
    weight = node.pairs[:, 1]
    if not len(weight) or weight[0] <= 0 or (weight != weight[0]).any():
        return None
    left = node.left[:, 1] // weight[0]
    return np.argsort(np.minimum(left, len(node.rows) - left), kind="stable")


def shares_left(
    equations: Equations,
    start: NDArray[np.float64],
    columns: Sequence[NDArray[np.intp]] = (),
    *,
    steps: int = 300,
    on_step: Callable[[], None] = lambda: None,
) -> NDArray[np.float64]:
    """How much of each row goes left of each candidate, 0 to 1: float64 (rows, candidates).

    A point where all equations hold and no share is beyond 0 and 1, by Douglas and Rachford's
    method of two projections, from ``start`` (rows, candidates) on. ``columns``: candidates of a
    column from left to right, if they are known; a row left of a cut is then left of all later
    ones. It ends early where the nearest whole shares solve the equations, or stay as they are.
    ``on_step`` is called once a step.
    """
    solved = [
        (held, candidates, *_directions(_products(equations.weights[held])))
        for held, candidates in equations.alike()
    ]

    def solution(point: NDArray[np.float64]) -> NDArray[np.float64]:
        missing = equations.sums - equations.weights @ point
        weights = np.zeros_like(missing)
        for held, candidates, values, vectors in solved:
            part = np.ix_(held, candidates)
            weights[part] = vectors @ ((vectors.T @ missing[part]) / values[:, None])
        nearest: NDArray[np.float64] = point + equations.weights.T @ weights
        return nearest

    def possible(point: NDArray[np.float64]) -> NDArray[np.float64]:
        if columns:
            point = _nested(point, columns)
        return point.clip(0, 1)

    point = solution(start)
    before = np.zeros_like(point, dtype=np.bool_)
    for step in range(1, steps + 1):
        inside = possible(point)
        on_step()
        if step % _LOOKS == 0:
            whole = inside > 0.5
            missing = equations.sums - equations.weights @ whole
            if (
                np.abs(missing[equations.shown]).max(initial=0.0) < _SOLVED
                or (whole == before).all()
            ):
                break
            before = whole
        point += solution(2 * inside - point) - inside
    return possible(point)


def _products(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return weights @ weights.T


def _directions(
    products: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues and eigenvectors of the directions that equations determine."""
    values, vectors = np.linalg.eigh(products)
    kept = values > _SMALLEST_EIGENVALUE * max(values.max(initial=0.0), np.finfo(float).tiny)
    return values[kept], vectors[:, kept]


def _nested(point: NDArray[np.float64], columns: Sequence[NDArray[np.intp]]) -> NDArray[np.float64]:
    """The nearest shares (rows, candidates) that never fall within a column."""
    most = max(map(len, columns))
    values = np.full((len(columns), len(point), most), np.inf)
    for number, column in enumerate(columns):
        values[number, :, : len(column)] = point[:, column]
    rising = _never_falling(values.reshape(-1, most)).reshape(values.shape)
    nested = point.copy()
    for number, column in enumerate(columns):
        nested[:, column] = rising[number, :, : len(column)]
    return nested


def _never_falling(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest values (rows, cuts) that never fall from cut to cut: isotonic regression.

    Neighbours that fall are pooled until none do, in all rows at once.
    """
    rows, cuts = values.shape
    everyone = np.arange(rows)
    sums, counts = np.zeros((rows, cuts)), np.zeros((rows, cuts), dtype=np.intp)
    last = np.full(rows, -1)  # pool of each row
    for cut in range(cuts):
        last += 1
        sums[everyone, last], counts[everyone, last] = values[:, cut], 1
        falling = everyone[last > 0]
        while len(falling):
            pool = last[falling]
            one, other = sums[falling, pool - 1], sums[falling, pool]
            falls = one * counts[falling, pool] > other * counts[falling, pool - 1]
            falling, pool = falling[falls], pool[falls]
            for held in (sums, counts):
                held[falling, pool - 1] += held[falling, pool]
                held[falling, pool] = 0
            last[falling] -= 1
            falling = falling[last[falling] > 0]
    means = sums / np.maximum(counts, 1)
    nearest: NDArray[np.float64] = np.repeat(means.ravel(), counts.ravel()).reshape(rows, cuts)
    return nearest


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
