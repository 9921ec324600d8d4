"""The sums that the active party saw of another party, and the bins that they disclose.

A recording of an encrypting engine holds no key and no gradients. The truth gives the sums and
gradients: the columns, the labels, and each tree's part of the margins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.splits import ROOT, CandidateTable, children, parent, sibling
from fedmq.leakage.attacks.bins_from_sums import (
    MOST_ROWS,
    NodeSums,
    SubsetSums,
    fingerprints,
    followed,
    left_shares,
    linked,
    named_rows,
)
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.labels import LeafWeights
from fedmq.leakage.view import SessionView, TreeView
from fedmq.privacy.masking import splitting_matrix
from fedmq.privacy.registry import ENGINES
from fedmq.protocol.training.candidates import OwnColumns, count_cells, kept_candidates

__all__ = ["bins_from_sums"]

ATTACK = "bins from sums"
# Most candidates whose bits least squares looks for: an even selection of all.
_MOST_CELLS = 20_000_000


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
    values: NDArray[np.float32],
    labels: NDArray[np.float32] | None,
    weights: LeafWeights | None,
    counts: NDArray[np.float32] | None = None,
) -> Iterator[Finding]:
    """Findings from the candidates' sums of ``party``, whose table is ``values``.

    Nothing where sums are hidden, or the gradients are not known: in the recording under ``plain``
    and ``ldp``, else from the ``labels`` and the ``weights`` of leaves with the training's
    parameters. Rows counted ``counts`` (rows,) times; once without.
    """
    if view.terms.sums == "hidden":
        return
    if not any(peer == party for tree in view.trees.values() for peer, _ in tree.exchanged):
        return
    training = ~view.terms.evaluation.numpy()
    bins = BinMatrix.of(values, Cuts.of(values[training], view.terms.max_bin))
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
    yield from _read(trees, party, bins)


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
    # Recordings hold neither oblivious directions nor the rows of the nodes below them.
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


def _read(trees: dict[int, _ShownTree], party: str, bins: BinMatrix) -> Iterator[Finding]:
    """Columns linked from tree to tree by their root sums, and read by least squares."""
    first = next(iter(trees.values()))
    if ROOT not in first.nodes:
        return
    shown = np.flatnonzero(first.known[ROOT])
    # Columns drawn anew for each tree cannot link the trees.
    alike = [
        tree
        for tree in trees.values()
        if ROOT in tree.nodes and np.array_equal(tree.known[ROOT], first.known[ROOT])
    ]
    rows = len(bins.codes)
    limit = max(1, _MOST_CELLS // rows)
    chosen = shown[np.unique(np.linspace(0, len(shown) - 1, min(len(shown), limit)).astype(int))]
    root = first.nodes[ROOT]
    expected = root.left[chosen, 1] / max(1, int(root.pairs[:, 1].sum()))
    nodes: list[NodeSums] = []
    known: list[NDArray[np.bool_]] = []
    links = []
    for tree in alike:
        root = tree.nodes[ROOT]
        match = np.arange(len(chosen))
        if nodes:
            shares = left_shares(rows, nodes, expected, np.stack(known))[root.rows]
            predicted = shares.T @ root.pairs.astype(np.float64)
            match = linked(predicted, root.left[chosen].astype(np.float64))
            links.append(float((match == np.arange(len(chosen))).mean()))
        for number, node in tree.nodes.items():
            nodes.append(NodeSums(node.rows, node.pairs, node.left[chosen][match]))
            known.append(tree.known[number][chosen][match])
    where = f"{len(alike)} trees, {len(nodes)} nodes, {len(chosen)} candidates"
    if links:
        target = f"{party}'s candidates linked across trees"
        yield Finding(ATTACK, target, where, "share", float(np.mean(links)), 1 / len(chosen))
    seen = np.unique(np.concatenate([node.rows for node in nodes]))
    truth = splitting_matrix(bins, seen, first.candidates, chosen) == 1
    shares = truth.mean(axis=0)
    chance = float(np.maximum(shares, 1 - shares).mean())
    target = f"{party}'s candidate bits"
    # Upper bound: all links are known, as more than the root sums may give them.
    rightly = _linked_rightly(alike, chosen)
    for how, held, seen_of in (("", nodes, known), (", all links known", *rightly)):
        guess = left_shares(rows, held, expected, np.stack(seen_of))[seen] > 0.5
        value = float((guess == truth).mean())
        yield Finding(ATTACK, target + how, where, "accuracy", value, chance)


def _linked_rightly(
    trees: Sequence[_ShownTree], chosen: NDArray[np.intp]
) -> tuple[list[NodeSums], list[NDArray[np.bool_]]]:
    """The sums of the ``chosen`` candidates in all nodes, and which of them are known."""
    nodes = [
        NodeSums(node.rows, node.pairs, node.left[chosen])
        for tree in trees
        for node in tree.nodes.values()
    ]
    known = [tree.known[number][chosen] for tree in trees for number in tree.nodes]
    return nodes, known
