"""``fedmq.audit``: mounts the known attacks on what one party saw, and scores them by the truth."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import TypeAdapter

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.metrics import auc
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LookupTable
from fedmq.boosting.splits import CandidateTable
from fedmq.errors import ConfigError, DataError
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.labels import (
    LeafWeights,
    bare_rows,
    exact_counts,
    label_scores_from_noise,
    labels_from_signs,
    labels_from_spaces,
    leaf_purity,
    positive_shares,
)
from fedmq.leakage.attacks.row_order import (
    Partition,
    best_concordance,
    guessed_columns,
    inferred_orders,
    order_of_people,
    order_of_ranks,
    pairs_judged,
)
from fedmq.leakage.attacks.splitting_matrix import agreement, majority, projected, rounded
from fedmq.leakage.sealed_scores import leaves_from_scores
from fedmq.leakage.shown_sums import OnProgress, bins_from_sums
from fedmq.leakage.told_changes import thresholds_from_changes
from fedmq.leakage.view import SessionView, TreeView
from fedmq.party.data.data_frame import feature_table, party_features
from fedmq.party.data.given_bins import with_bins
from fedmq.party.sessions.observe import Recording
from fedmq.privacy.masking import splitting_matrix

__all__ = ["AuditReport", "audit", "order_from_columns", "order_from_directions"]

_FINDINGS: TypeAdapter[tuple[Finding, ...]] = TypeAdapter(tuple[Finding, ...])
_TEXT: TypeAdapter[str] = TypeAdapter(str)

_KNOWN_SHARE = 0.01
_FEWEST_KNOWN = 20


@dataclass(frozen=True)
class AuditReport:
    """What ``party`` could learn in a ``session`` under ``engine``."""

    party: str
    engine: str
    findings: tuple[Finding, ...]
    session: str = ""

    def table(self) -> str:
        """The findings as a Markdown table."""
        lines = [
            "| attack | target | where | measure | value | chance | verdict |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {finding.attack} | {finding.target} | {finding.where} | {finding.measure} | "
            f"{finding.value:.3f} | {finding.chance:.3f} | "
            f"{'succeeds' if finding.succeeds else 'fails'} |"
            for finding in self.findings
        ]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        findings = [finding.as_dict() for finding in self.findings]
        return {
            "party": self.party,
            "engine": self.engine,
            "session": self.session,
            "findings": findings,
        }

    def dumps(self) -> str:
        """The report as one line of JSON."""
        return json.dumps(self.as_dict())

    @classmethod
    def read(cls, path: Path) -> AuditReport:
        """The report that ``fedmq audit --json`` printed into ``path``; DataError if it is none."""
        try:
            found = json.loads(path.read_bytes())
            party, engine, session = map(
                _TEXT.validate_python, (found["party"], found["engine"], found.get("session", ""))
            )
            return cls(party, engine, _FINDINGS.validate_python(found["findings"]), session)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: is not what fedmq audit --json prints") from None

    def plot(self, path: str | Path) -> None:
        """Draw each attack beside guessing, as an image file.

        Raises:
            ConfigError: matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ConfigError("plots need matplotlib: pip install 'fedmq[audit]'") from None
        figure = Figure(figsize=(8, 1 + 0.45 * len(self.findings)), layout="constrained")
        axes = figure.add_subplot()
        places = np.arange(len(self.findings))[::-1]
        colours = ["tab:red" if finding.succeeds else "tab:green" for finding in self.findings]
        axes.barh(places, [finding.value for finding in self.findings], color=colours)
        chances = [finding.chance for finding in self.findings]
        axes.scatter(chances, places, marker="|", s=300, color="black", label="chance")
        labels = [
            f"{finding.attack}: {finding.target} ({finding.where})" for finding in self.findings
        ]
        axes.set_yticks(places, labels, fontsize=8)
        axes.set_xlim(0, 1)
        axes.set_title(f"What {self.party} can learn under engine {self.engine}", fontsize=10)
        axes.legend(loc="lower left", fontsize=8)
        figure.savefig(path, dpi=120)


def audit(
    recording: Recording | str | Path,
    *,
    label: ArrayLike | None = None,
    passive: Mapping[str, Any] | None = None,
    leaf_weights: LeafWeights | None = None,
    weight: ArrayLike | None = None,
    lookup_tables: Mapping[str, LookupTable] | None = None,
    share: ActiveShare | None = None,
    active: Any = None,
    known: float = _KNOWN_SHARE,
    seed: int = 0,
    solve: bool = True,
    on_progress: OnProgress = lambda _done, _total: None,
    column_bins: Mapping[str, Mapping[str, Any]] | None = None,
) -> AuditReport:
    """Mount the known attacks on what one party saw in a training, and score them by the truth.

    Args:
        recording: of one party, or its file: what ``simulate(..., record=folder)`` or a daemon with
            ``recordings`` wrote.
        label: the labels (rows,), which a passive party's attacks are scored by; of the active
            party's attacks *bins from sums* needs them, except under ``plain`` and ``ldp``.
        passive: passive parties' features by name, which the active party's attacks are scored by;
            rows in the session's order.
        leaf_weights: of the session's rows, from ``SimulatedModel.leaf_weights``: adds what a
            passive party could learn of the labels if these were disclosed to it as well. The
            active party's *bins from sums* needs them beside the labels.
        weight: (rows,) how often each row counted in the training, if not all counted once; *bins
            from sums* then needs it beside the labels.
        lookup_tables: passive parties' splits by name, as in ``SimulatedModel.passive_shares``:
            adds what the active party learns from the directions of all rows (mode ``bitmap``), and
            what more if these parties show which splits share a column (``explain = "column"``).
        share: the active party's share of the model, ``SimulatedModel.share``, with its features
            ``active``: adds what scores in mode ``sealed`` tell of leaves, and what answers to
            ``fedmq changes`` tell of thresholds; needs ``lookup_tables``.
        known: the share of labels that a passive party is supposed to know beforehand.
        seed: chooses them.
        solve: whether *bins from sums* solves all sums together, which may take minutes.
        on_progress: called with the steps of that which are done, and their number, for each
            passive party.
        column_bins: how passive parties cut single columns, if they say it, as in ``simulate``.

    Raises:
        DataError: the recording is none, or the truth does not fit it.
        ConfigError: the truth that this party's attacks need is missing.
    """
    if not isinstance(recording, Recording):
        recording = Recording.read(Path(recording))
    view = SessionView(recording)
    if view.terms.folds > 1:
        raise ConfigError("a cross-validation: audit a training of one model")
    if view.terms.outputs > 1:
        raise ConfigError(
            f"a training with {view.terms.outputs} outputs a tree (multi_output_tree): the attacks "
            "know one g and h a row; audit a training of one class against the rest"
        )
    if view.by_sets:
        raise ConfigError(
            f"columns of {sorted(view.by_sets)[0]} were split by sets of categories: the attacks "
            "know cuts; audit a training without max_cat_to_onehot"
        )
    if view.is_active:
        if not passive:
            raise ConfigError(f"{view.party} holds the label: give the passive parties' features")
        tables = {party: _table(party, data, view) for party, data in passive.items()}
        strange = [party for party in lookup_tables or {} if party not in tables]
        if strange:
            raise ConfigError(f"lookup_tables: the features of {strange[0]} are missing")
        own = None if label is None else _labels(label, view)
        counts = None if weight is None else _weights(weight, view)
        if leaf_weights is not None and len(leaf_weights.values) != view.terms.rows:
            raise DataError(
                f"leaf weights of {len(leaf_weights.values)} rows for {view.terms.rows} rows"
            )
        bins = _bins(view, passive, column_bins)
        found = itertools.chain(
            _active_attacks(view, tables, bins),
            *(order_from_directions(view, party, values) for party, values in tables.items()),
            *(
                bins_from_sums(
                    view,
                    party,
                    bins[party],
                    own,
                    leaf_weights,
                    counts,
                    on_progress if solve else None,
                )
                for party in tables
            ),
            *(
                order_from_columns(party, tables[party], table)
                for party, table in (lookup_tables or {}).items()
            ),
            _served_model(view, share, active, tables, lookup_tables or {}),
        )
    else:
        if label is None:
            raise ConfigError(f"{view.party} holds no label: give the labels to score attacks by")
        labels = _labels(label, view)
        found = itertools.chain(
            _passive_attacks(view, labels, known, seed),
            _disclosed_weights(view, leaf_weights, labels),
        )
    session = recording.envelopes[0].header.session
    return AuditReport(view.party, view.terms.engine, tuple(found), session)


def _served_model(
    view: SessionView,
    share: ActiveShare | None,
    active: Any,
    tables: Mapping[str, NDArray[np.float32]],
    lookup_tables: Mapping[str, LookupTable],
) -> Iterator[Finding]:
    if (share is None) != (active is None):
        raise ConfigError("the served model: give the share and the active party's features")
    if share is None:
        return iter(())
    own = _table(view.party, active, view)
    return itertools.chain(
        leaves_from_scores(share, own, tables, lookup_tables),
        thresholds_from_changes(share, own, tables, lookup_tables),
    )


def _labels(label: ArrayLike, view: SessionView) -> NDArray[np.float32]:
    labels = np.asarray(label, dtype=np.float32)
    if labels.shape != (view.terms.rows,):
        raise DataError(f"{labels.size} labels for a session of {view.terms.rows} rows")
    if not np.isin(labels, (0, 1)).all():
        raise DataError(
            "labels: the attacks know 0 and 1; of several classes audit one against the rest, a "
            "training of binary:logistic by whether a row is of the class"
        )
    return labels


def _weights(weight: ArrayLike, view: SessionView) -> NDArray[np.float32]:
    weights = np.asarray(weight, dtype=np.float32)
    if weights.shape != (view.terms.rows,):
        raise DataError(f"{weights.size} weights for a session of {view.terms.rows} rows")
    return weights


def _table(party: str, data: Any, view: SessionView) -> NDArray[np.float32]:
    values, _ = feature_table(data, party)
    if len(values) != view.terms.rows:
        raise DataError(f"{party} has {len(values)} rows, the session had {view.terms.rows}")
    return values


def _bins(
    view: SessionView,
    passive: Mapping[str, Any],
    given: Mapping[str, Mapping[str, Any]] | None,
) -> dict[str, BinMatrix]:
    """All rows of each passive party in the bins of the training."""
    own = {party: places for party, places in (given or {}).items() if party != "active"}
    tables = with_bins({party: party_features(data, party) for party, data in passive.items()}, own)
    training = ~view.terms.evaluation.numpy()
    binned = {}
    for party, table in tables.items():
        places = {table.names.index(name): bins for name, bins in table.bins.items()}
        cuts = Cuts.of(table.values[training], view.terms.max_bin, places)
        binned[party] = BinMatrix.of(table.values, cuts)
    return binned


# A passive party can learn labels


def _passive_attacks(
    view: SessionView, labels: NDArray[np.float32], known_share: float, seed: int
) -> Iterator[Finding]:
    training = ~view.terms.evaluation.numpy()
    base = _base_rate(labels[training])
    trees = sorted(view.trees.items())
    spaces = [[rows[training[rows]] for rows in tree.spaces.values()] for _, tree in trees]
    for which, some in (("first tree", spaces[:1]), ("later trees", spaces[1:])):
        if some:
            value = float(np.mean([leaf_purity(nodes, labels) for nodes in some]))
            yield Finding("majority", "label", f"nodes seen, {which}", "purity", value, base)
    random = np.random.default_rng(seed)
    count = max(_FEWEST_KNOWN, int(known_share * training.sum()))
    known = np.zeros(len(labels), dtype=np.bool_)
    known[random.permutation(np.flatnonzero(training))[:count]] = True
    attacked = training & ~known
    if spaces and attacked.any():
        scores = labels_from_spaces(spaces, known, labels)
        where = f"all trees, {count} labels known"
        value = _auc(labels[attacked], scores[attacked])
        yield Finding("nodes shared", "label", where, "AUC", value, 0.5)
    yield from _disclosed_gradients(view, trees, labels)
    yield from _masked_gradients(trees, labels, view.party)


def _disclosed_weights(
    view: SessionView, disclosed: LeafWeights | None, labels: NDArray[np.float32]
) -> Iterator[Finding]:
    if disclosed is None:
        return
    if len(disclosed.values) != len(labels):
        raise DataError(f"leaf weights of {len(disclosed.values)} rows for {len(labels)} labels")
    training = ~view.terms.evaluation.numpy()
    disclosed = replace(disclosed, values=disclosed.values[training])
    labels = labels[training]
    trees = range(disclosed.values.shape[1])
    for which, some in (("first tree", trees[:1]), ("later trees", trees[1:])):
        if some:
            exact = float(np.mean([exact_counts(disclosed, tree, labels) for tree in some]))
            target = "positives of a leaf, counted"
            yield Finding("leaf weights, if told", target, which, "share", exact, 0.0)
            scores = np.sum([positive_shares(disclosed, tree) for tree in some], axis=0)
            yield Finding("leaf weights, if told", "label", which, "AUC", _auc(labels, scores), 0.5)


def _disclosed_gradients(
    view: SessionView, trees: Sequence[tuple[int, TreeView]], labels: NDArray[np.float32]
) -> Iterator[Finding]:
    disclosed = [
        (
            np.concatenate(tree.carried),
            np.concatenate([piece["pairs"] for piece in tree.broadcasts])[:, 0],
        )
        for _, tree in trees
        if tree.broadcasts and all("pairs" in piece for piece in tree.broadcasts)
    ]
    for which, some in (("first tree", disclosed[:1]), ("all trees", disclosed)):
        if some:
            rows = np.unique(np.concatenate([rows for rows, _ in some]))
            scores = label_scores_from_noise(view.terms.rows, some)[rows]
            value = _auc(labels[rows], scores)
            yield Finding("gradients told", "label", which, "AUC", value, 0.5)
            hits = float(((scores > 0) == (labels[rows] == 1)).mean())
            base = _base_rate(labels[rows])
            yield Finding("gradients told", "label", which, "accuracy", hits, base)


def _masked_gradients(
    trees: Sequence[tuple[int, TreeView]], labels: NDArray[np.float32], party: str
) -> Iterator[Finding]:
    for number, tree in trees[:1]:
        for (peer, node), exchanged in sorted(tree.exchanged.items()):
            matrices = exchanged.matrices(asked="w", answered="z")
            if peer != party or matrices is None:
                continue
            hidden, vectors = matrices
            rows, where = tree.carrying(node), f"tree {number}, node {node}"
            guess = labels_from_signs(hidden[:, 0])
            hits = float((guess == (labels[rows] == 1)).mean())
            yield Finding("sign of W", "label", where, "accuracy", hits, _base_rate(labels[rows]))
            bare = float(bare_rows(vectors).mean())
            yield Finding("sparse null space", "g", where, "share", bare, 0.0)


# The active party can learn features


def _active_attacks(
    view: SessionView,
    tables: Mapping[str, NDArray[np.float32]],
    bins: Mapping[str, BinMatrix],
) -> Iterator[Finding]:
    for party, values in tables.items():
        yield from _splits_recovered(view, party, bins[party])
        splits, orders = _orders(view, party)
        judged = [best_concordance(ranks, values) for ranks in orders]
        if judged:
            sorted_right, apart = max(judged)
            where = f"{splits} splits seen, best of {len(judged)} orders"
            target = f"{party}'s order of rows"
            yield Finding("partitions", target, where, "accuracy", sorted_right, 0.5)
            yield Finding("partitions", f"{target}, pairs told apart", where, "share", apart, 0.0)


def order_from_directions(
    view: SessionView, party: str, values: NDArray[np.float32]
) -> Iterator[Finding]:
    """By column, the order of rows that winners and directions alone tell: no sum is read.

    ``values`` (rows, features) are the party's. Directions are those of the rows of a split's node.
    """
    splits, orders = _orders(view, party)
    if not splits:
        return
    for feature, column in enumerate(values.T):
        yield Finding(
            "directions alone",
            f"{party}'s order of rows by column {feature}",
            f"{splits} splits of {len(view.trees)} trees",
            "share",
            order_of_ranks(orders, column),
            0.0,
        )


def _orders(view: SessionView, party: str) -> tuple[int, list[NDArray[np.float64]]]:
    """The number of splits of ``party`` that are seen, and the orders of rows that they make."""
    parts = [
        Partition(rows, left)
        for tree in view.trees.values()
        for (owner, _), (rows, left) in tree.parts.items()
        if owner == party
    ]
    return len(parts), inferred_orders(view.terms.rows, parts)


def _splits_recovered(view: SessionView, party: str, bins: BinMatrix) -> Iterator[Finding]:
    candidates = CandidateTable.of(bins.cuts)
    for number, tree in sorted(view.trees.items())[:1]:
        for (peer, node), exchanged in sorted(tree.exchanged.items()):
            matrices = exchanged.matrices(asked="z", answered="w")
            if peer != party or matrices is None:
                continue
            vectors, hidden = matrices
            rows = tree.carrying(node)
            truth = splitting_matrix(bins, rows, candidates, np.arange(len(candidates))) == 1
            chance = majority(truth)
            where, target = f"tree {number}, node {node}", f"{party}'s splitting matrix"
            for attack, guess in (
                ("rounding W", rounded(hidden)),
                ("known null space", projected(hidden, vectors)),
            ):
                value = agreement(guess, truth)
                yield Finding(attack, target, where, "accuracy", value, chance)


def _base_rate(labels: NDArray[np.float32]) -> float:
    share = float(labels.mean()) if len(labels) else 0.5
    return max(share, 1 - share)


def _auc(labels: NDArray[np.float32], scores: NDArray[np.float64]) -> float:
    value = auc(labels, scores.astype(np.float32))
    return 0.5 if np.isnan(value) else value


def order_from_columns(
    party: str, values: NDArray[np.float32], table: LookupTable
) -> Iterator[Finding]:
    """The attack with the directions of all rows alone, and with the columns shown as well.

    ``values`` (rows, features) are the party's, ``table`` holds its splits.

    Raises:
        DataError: the columns are not those of the table.
    """
    if values.shape[1] != len(table.feature_names):
        raise DataError(
            f"{party} has {values.shape[1]} columns, and its lookup table "
            f"{len(table.feature_names)}"
        )
    if not len(table):
        return
    rows = np.arange(len(values))
    left = np.stack(
        [
            table.directions(values, rows, np.full(len(rows), record))
            for record in range(len(table))
        ],
        axis=1,
    )
    guessed, truth = guessed_columns(left), table.feature.astype(np.int64)
    used = np.unique(truth).tolist()
    where = f"{len(table)} splits of {len(used)} columns, all directions seen"
    right, chance = pairs_judged(guessed, truth)
    yield Finding(
        "columns guessed", f"{party}'s splits of a column", where, "accuracy", right, chance
    )
    target = f"{party}'s order of rows, mean of columns"
    for attack, columns in (("columns guessed", guessed), ("columns shown", truth)):
        told = [order_of_people(left, columns, values[:, feature]) for feature in used]
        yield Finding(attack, target, where, "share", float(np.mean(told)), 0.0)
