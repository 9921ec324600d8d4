"""The sums that the active party saw of another party, and the bins that they disclose.

A recording of an encrypting engine holds no key and no gradients. The truth gives the sums and
gradients: the columns, the labels, and each tree's part of the margins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, histograms
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.splits import ROOT, CandidateTable, children, parent, sibling
from fedmq.leakage.attacks.bins_from_sums import (
    MOST_ROWS,
    Equations,
    NodeSums,
    SubsetSums,
    fingerprints,
    followed,
    linked,
    named_rows,
    ordered_by_counts,
    shares_left,
)
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.labels import LeafWeights
from fedmq.leakage.view import SessionView, TreeView
from fedmq.privacy.masking import splitting_matrix
from fedmq.privacy.registry import ENGINES
from fedmq.protocol.training.candidates import (
    OwnColumns,
    count_cells,
    kept_candidates,
    shown_order,
)

__all__ = ["OnProgress", "bins_from_sums"]

ATTACK = "bins from sums"
# What is read of long trainings and wide tables: minutes of one core, and 1 GB.
_MOST_EQUATIONS = 2000
_MOST_WEIGHTS = 100_000_000  # of rows in equations
_MOST_CANDIDATES = 400
_MOST_WORK = 5e11  # operations of all readings
_STEPS_ALONE = 300  # in which each candidate is read by itself
_STEPS_TOGETHER = 100  # in which the cuts of a column are
_MOST_BEFORE = 240  # equations from which the sums of the next root are forecast

OnProgress = Callable[[int, int], None]
"""Called with the steps of the longest attack that are done, and their number."""


_Nodes = tuple[list[NodeSums], list[NDArray[np.bool_]]]
"""Nodes, and the candidates that each has shown: bool (candidates,)."""


@dataclass(frozen=True, slots=True, eq=False)
class _ShownTree:
    """The sums of one tree by node, of all its candidates in canonical order.

    ``known`` bool (candidates,), by node: those shown, or derived from shown ones.
    """

    candidates: CandidateTable
    nodes: dict[int, NodeSums]
    known: dict[int, NDArray[np.bool_]]


def bins_from_sums(
    view: SessionView,
    party: str,
    bins: BinMatrix,
    labels: NDArray[np.float32] | None,
    weights: LeafWeights | None,
    counts: NDArray[np.float32] | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[Finding]:
    """Findings from the candidates' sums of ``party``, whose rows are ``bins``.

    Nothing where sums are hidden, or the gradients are not known: in the recording under ``plain``
    and ``ldp``, else from the ``labels`` and the ``weights`` of leaves with the training's
    parameters. Rows counted ``counts`` (rows,) times; once without. Sums are solved together if
    somebody looks ``on_progress``.
    """
    if view.terms.sums == "hidden":
        return
    if not any(peer == party for tree in view.trees.values() for peer, _ in tree.exchanged):
        return
    training = ~view.terms.evaluation.numpy()
    if weights is not None and weights.leaves is not None:
        for number, leaves in enumerate(weights.leaves.T):
            if number in view.trees:
                view.trees[number].place(leaves)
    trees = {
        number: shown
        for number, tree in sorted(view.trees.items())
        if (pairs := _pairs(view, number, tree, labels, weights, counts)) is not None
        and (shown := _shown(view, party, bins, number, tree, pairs)).nodes
    }
    if not trees:
        return
    yield from _named(trees, party, bins, training)
    yield from _tried(trees, party, bins, training)
    yield from _followed(trees, party)
    if on_progress is None:
        return
    keeps_numbers = ENGINES[view.terms.engine].traits.keeps_numbers
    yield from _read(trees, party, bins, keeps_numbers, on_progress)


def _pairs(
    view: SessionView,
    number: int,
    tree: TreeView,
    labels: NDArray[np.float32] | None,
    weights: LeafWeights | None,
    counts: NDArray[np.float32] | None,
) -> NDArray[np.int64] | None:
    """g and h of all rows as they were summed: int64 (rows, 2)."""
    if tree.broadcasts and all("pairs" in piece for piece in tree.broadcasts):
        pairs = np.zeros((view.terms.rows, 2), dtype=np.int64)
        pairs[np.concatenate(tree.carried)] = np.concatenate(
            [piece["pairs"] for piece in tree.broadcasts]
        )
        return pairs
    if labels is None or weights is None or weights.params is None or view.terms.engine == "smm2":
        return None
    if number > weights.values.shape[1]:
        return None
    params = weights.params
    base = objective_of(params).base_margin(weights.base_score)
    margins = np.full(len(labels), base, dtype=np.float32)
    for added in weights.values.T[:number]:
        margins = margins + added
    training = ~view.terms.evaluation.numpy()
    return Gradients.of(margins, labels, training, params, number, counts).pairs


def _shown(
    view: SessionView,
    party: str,
    bins: BinMatrix,
    number: int,
    tree: TreeView,
    pairs: NDArray[np.int64],
) -> _ShownTree:
    drawn = OwnColumns(bins, view.terms).of_tree(number // view.terms.folds)
    candidates = drawn.of_tree
    asked = sorted({node for peer, node in tree.exchanged if peer == party})
    known = _kept(view, party, bins, tree, candidates, asked)
    for node in asked:
        own = np.zeros(len(candidates), dtype=np.bool_)
        own[drawn.places(node)] = True
        known[node] = known[node] & own
    # The sibling of a declined node may give its sums.
    declined = {sibling(node) for node in asked if node != ROOT} - set(asked)
    known |= dict.fromkeys(declined, np.zeros(len(candidates), dtype=np.bool_))
    _derive(known)
    # Under `lattice` recordings do not tell the rows of nodes; leaves may have told them.
    told = sorted(node for node, shown in known.items() if shown.any() and tree.knows(node))
    rows = [tree.carrying(node) for node in told]
    nodes = {
        node: NodeSums(held, pairs[held], candidates.left_sums(sums))
        for node, held, sums in zip(told, rows, histograms(bins, pairs, rows), strict=True)
    }
    return _ShownTree(candidates, nodes, known)


def _kept(
    view: SessionView,
    party: str,
    bins: BinMatrix,
    tree: TreeView,
    candidates: CandidateTable,
    asked: Sequence[int],
) -> dict[int, NDArray[np.bool_]]:
    """The candidates of each node that ``party`` did not merge: bool (candidates,)."""
    everything = np.ones(len(candidates), dtype=np.bool_)
    smallest = view.smallest_cells.get(party, 0)
    if not smallest:
        return dict.fromkeys(asked, everything)
    kept: dict[int, NDArray[np.bool_]] = {}
    if ENGINES[view.terms.engine].traits.hides_rows:
        rows = np.flatnonzero(~view.terms.evaluation.numpy()).astype(np.int32)
        counts = count_cells(bins, candidates, [rows])
        shown = kept_candidates(bins.cuts, candidates, everything, counts, smallest)
        return dict.fromkeys(asked, shown)
    for node in asked:
        family = [node] if node == ROOT else [sibling(node), node]
        if family[0] in kept:
            kept[node] = kept[family[0]]
            continue
        above = everything if node == ROOT else kept[parent(node)]
        counts = count_cells(bins, candidates, [tree.carrying(member) for member in family])
        kept[node] = kept_candidates(bins.cuts, candidates, above, counts, smallest)
    return kept


def _derive(known: dict[int, NDArray[np.bool_]]) -> None:
    """Add derived sums: of a node and its two children, two sums give the third."""
    before = -1
    while (now := sum(int(shown.sum()) for shown in known.values())) != before:
        before = now
        for node in known.keys() & {parent(node) for node in known}:
            family = (node, *children(node))
            for member in family:
                one, other = (known[relative] for relative in family if relative != member)
                known[member] = known[member] | (one & other)


def _named(
    trees: dict[int, _ShownTree], party: str, bins: BinMatrix, training: NDArray[np.bool_]
) -> Iterator[Finding]:
    placed = np.zeros(bins.codes.shape, dtype=np.bool_)
    right = claims = 0
    for tree in trees.values():
        candidates = tree.candidates
        pairs = _neighbours(candidates)
        everything = np.arange(len(candidates))
        for number, node in tree.nodes.items():
            both = tree.known[number][pairs].all(axis=1)
            claimed = [claim for claim in named_rows(node, pairs[both]) if len(claim.pairs)]
            if not claimed:
                continue
            goes_left = splitting_matrix(bins, node.rows, candidates, everything) == 1
            count = goes_left.sum(axis=0)
            for claim in claimed:
                higher, lower = claim.pairs.T
                size = claim.rows.shape[1]
                between = (
                    goes_left[claim.rows, higher[:, None]] & ~goes_left[claim.rows, lower[:, None]]
                )
                true = between.all(axis=1) & (count[higher] - count[lower] == size)
                claims += len(true)
                right += int(true.sum())
                features = np.repeat(candidates.feature[higher[true]], size)
                placed[node.rows[claim.rows[true]].ravel(), features] = True
    where = f"{len(trees)} trees"
    target = f"{party}'s cells between two cuts"
    yield Finding(ATTACK, target, where, "share", float(placed[training].mean()), 0.0)
    if claims:
        target = f"{party}'s rows named in sums"
        yield Finding(ATTACK, target, where, "accuracy", right / claims, 0.0)


def _tried(
    trees: dict[int, _ShownTree], party: str, bins: BinMatrix, training: NDArray[np.bool_]
) -> Iterator[Finding]:
    """Each row's side of a cut, found by trying all sets of a small node's rows."""
    placed = np.zeros(bins.codes.shape, dtype=np.bool_)
    for tree in trees.values():
        candidates = tree.candidates
        for number, node in tree.nodes.items():
            if not 1 < len(node.rows) <= MOST_ROWS:
                continue
            sums, totals = SubsetSums(fingerprints(node.pairs)), fingerprints(node.left)
            known = np.flatnonzero(tree.known[number])
            truth = splitting_matrix(bins, node.rows, candidates, known) == 1
            for candidate, left in zip(known, truth.T, strict=True):
                rows = sums.rows(totals[candidate])
                if rows is not None and left.any() and not left.all():
                    right = np.array_equal(rows, left)
                    placed[node.rows, candidates.feature[candidate]] |= right
    target, where = f"{party}'s cells beside a cut", f"nodes of up to {MOST_ROWS} rows"
    yield Finding(ATTACK, target, where, "share", float(placed[training].mean()), 0.0)


def _neighbours(candidates: CandidateTable) -> NDArray[np.intp]:
    """Pairs of candidates of one column and default direction, that with the larger bin first.

    Differences between other candidates are not sums of the people between two cuts.
    """
    found = [np.empty((0, 2), np.intp)]
    for feature in np.unique(candidates.feature):
        for default_left in (False, True):
            alike = np.flatnonzero(
                (candidates.feature == feature) & (candidates.default_left == default_left)
            )
            alike = alike[np.argsort(candidates.bin[alike])]
            lower, higher = np.triu_indices(len(alike), 1)
            found.append(np.stack((alike[higher], alike[lower]), axis=1))
    return np.concatenate(found)


def _followed(trees: dict[int, _ShownTree], party: str) -> Iterator[Finding]:
    shares, chances = [], []
    for tree in trees.values():
        for number in tree.nodes:
            if any(child not in tree.nodes for child in children(number)):
                continue
            family = (number, *children(number))
            own, *below = (np.flatnonzero(tree.known[member]) for member in family)
            sums = [tree.nodes[member].left for member in family]
            places = followed(sums[0][own], sums[1][below[0]], sums[2][below[1]])
            found = (places >= 0).all(axis=1)
            pairs = np.stack([shown[places[found, child]] for child, shown in enumerate(below)])
            shares.append(float((pairs == own[found]).all(axis=0).sum() / len(own)))
            chances.append(1 / (len(below[0]) * len(below[1])))
    if shares:
        target, where = f"{party}'s candidates followed to children", f"{len(shares)} families"
        value, chance = float(np.mean(shares)), float(np.mean(chances))
        yield Finding(ATTACK, target, where, "share", value, chance)


def _read(
    trees: dict[int, _ShownTree],
    party: str,
    bins: BinMatrix,
    keeps_numbers: bool,
    on_progress: OnProgress,
) -> Iterator[Finding]:
    """Columns read from the sums of all trees together."""
    first = next(iter(trees.values()))
    if ROOT not in first.nodes:  # nor where a party shows no candidate of a root
        return
    rows = len(bins.codes)
    alike = _alike(trees, rows)
    chosen, columns = _chosen(first, alike, rows)
    root = first.nodes[ROOT]
    expected = root.left[chosen, 1] / max(1, int(root.pairs[:, 1].sum()))
    numbered = [np.arange(len(chosen))] * len(alike)
    ticks = _Ticks(on_progress, 0 if keeps_numbers else len(alike))
    where = f"{len(alike)} trees, {len(chosen)} candidates"
    if not keeps_numbers:
        numbered, counted = _own_links(alike, chosen, expected, rows, ticks)
        if len(alike) > 1:
            value = float(np.mean([match == numbered[0] for match in numbered[1:]]))
            target = f"{party}'s candidates linked across trees"
            how = f"{where}, by counts of people" if counted else where
            yield Finding(ATTACK, target, how, "share", value, 1 / len(chosen))
    nodes, known = _in_order(alike, chosen, numbered)
    seen = np.unique(np.concatenate([node.rows for node in nodes]))
    truth = splitting_matrix(bins, seen, first.candidates, chosen) == 1
    equations = Equations.of(rows, nodes, known)
    where = f"{where}, {len(equations.weights) / len(seen):.2g} equations a row"
    chance = float(np.maximum(truth.mean(axis=0), 1 - truth.mean(axis=0)).mean())
    alone = shares_left(
        equations, np.tile(expected, (rows, 1)), steps=_STEPS_ALONE, on_step=ticks.step
    )
    ticks.read(_STEPS_ALONE)
    chains = [chain for chains in columns for chain in chains]
    guess = shares_left(equations, alone, chains, steps=_STEPS_TOGETHER, on_step=ticks.step)
    ticks.read(_STEPS_TOGETHER)
    # Numbers that are kept show columns and the order of their cuts.
    told = guess if keeps_numbers else alone
    value = float(((told[seen] > 0.5) == truth).mean())
    yield Finding(ATTACK, f"{party}'s candidate bits", where, "accuracy", value, chance)
    target = f"{party}'s cells of columns" + ", if columns are known" * (not keeps_numbers)
    right, largest = [], []
    for of_column in (np.concatenate(chains) for chains in columns):
        cells = truth[:, of_column]
        right.append(((guess[np.ix_(seen, of_column)] > 0.5) == cells).all(axis=1).mean())
        largest.append(np.unique(cells, axis=0, return_counts=True)[1].max() / len(seen))
    yield Finding(ATTACK, target, where, "share", float(np.mean(right)), float(np.mean(largest)))


class _Ticks:
    """Tells ``on_progress`` what is done of ``links`` and of both readings."""

    def __init__(self, on_progress: OnProgress, links: int) -> None:
        self._on_progress = on_progress
        self._done, self._until = 0, links
        self._total = links + _STEPS_ALONE + _STEPS_TOGETHER

    def step(self) -> None:
        """A tree is linked, or a step of a reading is done."""
        self._done += 1
        self._on_progress(self._done, self._total)

    def read(self, steps: int) -> None:
        """A reading of at most so many steps is done."""
        self._until += steps
        if self._done < self._until:
            self._done = self._until - 1
            self.step()


def _alike(trees: dict[int, _ShownTree], rows: int) -> list[_ShownTree]:
    """Trees whose roots show the same candidates, as far as their equations can be solved.

    Columns drawn anew for each tree cannot link the trees.
    """
    first = next(iter(trees.values()))
    found: list[_ShownTree] = []
    equations = 0
    for tree in trees.values():
        if ROOT not in tree.nodes or not np.array_equal(tree.known[ROOT], first.known[ROOT]):
            continue
        equations += 2 * len(tree.nodes)
        if found and equations > min(_MOST_EQUATIONS, _MOST_WEIGHTS // rows):
            break
        found.append(tree)
    return found


def _chosen(
    first: _ShownTree, alike: Sequence[_ShownTree], rows: int
) -> tuple[NDArray[np.intp], list[list[NDArray[np.intp]]]]:
    """The candidates to read, as many as there is time for: of an even selection of columns.

    And of each column the places among them of one or two chains of candidates, each of which
    leaves the rows of the one before on its left.
    """
    candidates, shown = first.candidates, np.flatnonzero(first.known[ROOT])
    equations = 2 * sum(len(tree.nodes) for tree in alike)
    work = 4.0 * (_STEPS_ALONE + _STEPS_TOGETHER) * rows * equations
    if any((tree.known[node] != first.known[ROOT]).any() for tree in alike for node in tree.nodes):
        work += 10.0 * equations**3  # the directions of each candidate by itself
    most = max(1, min(_MOST_CANDIDATES, int(_MOST_WORK / work)))
    features = np.unique(candidates.feature[shown])
    number = min(len(features), max(1, most * len(features) // len(shown)))
    features = features[np.linspace(0, len(features) - 1, number).astype(int)]
    shown = shown[np.isin(candidates.feature[shown], features)]
    shown = shown[np.unique(np.linspace(0, len(shown) - 1, min(len(shown), most)).astype(int))]
    columns = []
    for feature in features:
        chains = []
        for default_left in (False, True):
            held = (candidates.feature == feature) & (candidates.default_left == default_left)
            places = np.flatnonzero(held[shown])
            if len(places):
                chains.append(places[np.argsort(candidates.bin[shown[places]])])
        if chains:
            columns.append(chains)
    return shown, columns


def _own_links(
    alike: Sequence[_ShownTree],
    chosen: NDArray[np.intp],
    expected: NDArray[np.float64],
    rows: int,
    ticks: _Ticks,
) -> tuple[list[NDArray[np.intp]], bool]:
    """By tree, which root candidate is taken for each of the first tree's; and if by counts alone.

    Candidates are linked by counts where these tell, else by a forecast from the sums of the first
    tree and of the last ones, as these were linked.
    """
    random = np.random.default_rng(0)
    first = alike[0].nodes[ROOT]
    matches: list[NDArray[np.intp]] = []
    counted = 0
    before: list[_Nodes] = []
    for tree in alike:
        root = tree.nodes[ROOT]
        order = _ordered_by_counts(root, chosen, random)
        start = _ordered_by_counts(first, chosen, random)
        if not matches:
            match = np.arange(len(chosen))
        elif order is not None and start is not None and np.array_equal(root.rows, first.rows):
            match = np.empty(len(chosen), dtype=np.intp)
            match[start] = order
            counted += 1
        else:
            nodes, known = _recent(before)
            equations = Equations.of(rows, nodes, known)
            weights = np.zeros((2, rows))
            weights[:, root.rows] = root.pairs.T
            shown = random.permutation(len(chosen))
            sums = root.left[chosen][shown].astype(np.float64)
            match = shown[linked(equations, expected, weights, sums)]
        matches.append(match)
        before.append(_in_order([tree], chosen, [match]))
        ticks.step()
    return matches, counted == len(alike) - 1


def _recent(before: Sequence[_Nodes]) -> _Nodes:
    """The nodes of the first tree, and of as many of the last ones as a forecast takes."""
    used = list(before[-1:])
    for tree in reversed(before[1:-1]):
        if 2 * sum(len(nodes) for nodes, _ in (before[0], *used, tree)) > _MOST_BEFORE:
            break
        used.insert(0, tree)
    used[:0] = before[: len(before) > 1]
    return [node for nodes, _ in used for node in nodes], [
        own for _, known in used for own in known
    ]


def _ordered_by_counts(
    root: NodeSums, chosen: NDArray[np.intp], random: np.random.Generator
) -> NDArray[np.intp] | None:
    """The ``chosen`` in an order that is the same in all trees, if counts tell it.

    The order in which the owner showed them is drawn anew by its own rule.
    """
    weight = max(1, int(root.pairs[0, 1]))
    shown = shown_order(root.left[chosen, 1] // weight, len(root.rows), random)
    order = ordered_by_counts(NodeSums(root.rows, root.pairs, root.left[chosen][shown]))
    return None if order is None else shown[order]


def _in_order(
    trees: Sequence[_ShownTree],
    chosen: NDArray[np.intp],
    matches: Sequence[NDArray[np.intp]],
) -> _Nodes:
    """The sums of the ``chosen`` candidates in all nodes as ``matches`` has them by tree.

    And which of them are known.
    """
    nodes, known = [], []
    for tree, match in zip(trees, matches, strict=True):
        for number, node in tree.nodes.items():
            nodes.append(NodeSums(node.rows, node.pairs, node.left[chosen[match]]))
            known.append(tree.known[number][chosen[match]])
    return nodes, known
