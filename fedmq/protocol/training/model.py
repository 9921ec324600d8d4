"""Which trees and margins are there so far? The active party's model, also over attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.callbacks import Callbacks, EarlyStopping
from fedmq.boosting.dart import Dart
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.metrics import metric_of, watched_maximizes
from fedmq.boosting.model.refreshed import refreshed
from fedmq.boosting.model.share import ActiveShare, Withheld
from fedmq.boosting.model.tree import Tree
from fedmq.boosting.node_rows import masked
from fedmq.boosting.objectives.objective import BaseScore, quantile
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable, CategorySet
from fedmq.computation import computation
from fedmq.errors import ConfigError, DataError
from fedmq.privacy.engine import Engine
from fedmq.privacy.plan import Plan, single
from fedmq.protocol.session_records import ActiveTree, all_records
from fedmq.protocol.training.candidates import recorded
from fedmq.protocol.training.terms import ActiveTable

__all__ = [
    "DartRound",
    "ModelBuilder",
    "Residuals",
    "Round",
    "TreeIncrements",
    "dart_margins",
    "derive_gradients",
    "estimate_base_score",
    "refresh_leaves",
]


# Of the largest gradient: the resolution is 2^-40 of it, and float32 has 24 bits.
_NARROWEST = 2.0**-24


@computation("EstimateBaseScore")
def estimate_base_score(params: TrainParams, table: ActiveTable) -> BaseScore:
    """The prediction before the first tree, from the labels of the training rows of ``table``."""
    training = ~table.evaluation
    weight = table.weight
    return (table.objective or objective_of(params)).base_scores(
        table.label[training], None if weight is None else weight[training]
    )


class Round:
    """The ``margin`` at the beginning of a round, and the increments of its trees so far.

    float32 (rows,), or (rows, outputs). The gradients of all trees of the round are taken at its
    beginning.
    """

    def __init__(self, margin: NDArray[np.float32], params: TrainParams) -> None:
        self.margin = margin
        self._params = params
        self._outputs = [params.output_of(tree) for tree in range(params.trees_per_round)]
        """The margin to which each tree of a round adds."""
        self._added: list[NDArray[np.float32]] = []

    @property
    def evaluated(self) -> NDArray[np.float32]:
        """The scored margins, which are those of the round."""
        return self.margin

    @property
    def tree_weights(self) -> tuple[float, ...]:
        """All trees weigh the same."""
        return ()

    def refresh(self) -> Plan[None]:
        """Nothing to do: `add` makes the margins."""
        yield from ()

    def add(self, increments: NDArray[np.float32]) -> None:
        """Add the ``increments`` of the next tree; after the last tree a new round begins.

        (rows,), or (rows, outputs) if leaves are vectors.
        """
        self._added.append(increments)
        if len(self._added) < len(self._outputs):
            return
        columns = self.margin.reshape(len(self.margin), -1).copy()
        # One by one, as XGBoost adds them.
        for first, added in zip(self._outputs, self._added, strict=True):
            vectors = added.reshape(len(added), -1)
            columns[:, first : first + vectors.shape[1]] += vectors
        self.margin = columns.reshape(self.margin.shape)
        self._added = []

    def saved(self) -> NDArray[np.float32]:
        """The checkpoint's content: the margin, beside it the increments of the round's trees.

        float32 (rows,) if a round is one tree with a number in each leaf, otherwise (rows, outputs
        + values per leaf of the trees so far).
        """
        if len(self._outputs) == 1:
            return self.margin
        return np.column_stack((self.margin, *self._added))

    def restore(self, saved: Sequence[NDArray[np.float32] | None]) -> bool:
        """Continue from the checkpoints of all trees; False if the last one is empty.

        The shape of the saved arrays may be lost.
        """
        if not saved:
            return True
        if saved[-1] is None:
            return False
        columns = saved[-1].reshape(len(self.margin), -1)
        outputs, width = self._params.outputs, self._params.vector_outputs
        self.margin = np.ascontiguousarray(columns[:, :outputs]).reshape(self.margin.shape)
        trees = columns[:, outputs:].T.reshape(-1, width, len(columns))
        self._added = [tree.T if width > 1 else tree[0] for tree in trees]
        return True


@dataclass(frozen=True, slots=True, eq=False)
class TreeIncrements:
    """The unweighted increments of a tree by row: ``values[codes]``, float32 (rows,).

    A leaf has one value, so a code of one or two bytes stands for it.
    """

    values: NDArray[np.float32]
    codes: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, increments: NDArray[np.float32]) -> Self:
        """Pack ``increments`` (rows,)."""
        values, codes = np.unique(increments, return_inverse=True)
        return cls(values, codes.astype(np.min_scalar_type(len(values))))


@computation("DartMargins")
def dart_margins(
    first: NDArray[np.float32],
    trees: tuple[TreeIncrements, ...],
    outputs: tuple[int, ...],
    weights: NDArray[np.float32],
    dropped: tuple[int, ...],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The margins with all ``trees``, and without the ``dropped``; of the shape of ``first``.

    ``weights`` and ``outputs``: the weight of each tree, and the margin it adds to. Trees are added
    one by one in float32, as XGBoost adds them.
    """
    whole = first.reshape(len(first), -1).copy()
    without = whole.copy()
    for number, (tree, output) in enumerate(zip(trees, outputs, strict=True)):
        added = (tree.values * weights[number])[tree.codes]
        whole[:, output] += added
        if number not in dropped:
            without[:, output] += added
    shape = first.shape
    return whole.reshape(shape), without.reshape(shape)


class DartRound:
    """The ``margin`` from which a round's trees grow, and the ``evaluated`` margin of all trees.

    Both float32 (rows,) or (rows, classes), like the ``first`` margin; :meth:`refresh` makes them.
    """

    def __init__(self, first: NDArray[np.float32], params: TrainParams) -> None:
        self.margin = self.evaluated = first
        self._first = first
        self._params = params
        self._dart = Dart(params)
        self._trees: list[TreeIncrements] = []
        self._last = np.empty(0, np.float32)
        self._stale = False

    @property
    def tree_weights(self) -> tuple[float, ...]:
        """The weight of each tree."""
        return tuple(map(float, self._dart.weights))

    def add(self, increments: NDArray[np.float32]) -> None:
        """Add the ``increments`` (rows,) of a tree; after the last tree a new round begins."""
        self._last = increments
        self._trees.append(TreeIncrements.of(increments))
        if len(self._trees) % self._params.trees_per_round == 0:
            self._dart.end_round()
            self._stale = True

    def refresh(self) -> Plan[None]:
        """Make the margins of a new round."""
        if not self._stale:
            return
        weights = self._dart.weights
        trees = tuple(self._trees[: len(weights)])
        outputs = tuple(self._params.output_of(tree) for tree in range(len(trees)))
        self.evaluated, self.margin = yield from single(
            dart_margins.bind(self._first, trees, outputs, np.array(weights), self._dart.dropped)
        )
        self._stale = False

    def saved(self) -> NDArray[np.float32]:
        """The checkpoint's content: the increments of the last tree, float32 (rows,)."""
        return self._last

    def restore(self, saved: Sequence[NDArray[np.float32] | None]) -> bool:
        """Continue from the checkpoints of all trees; False if any is lost."""
        kept = [increments for increments in saved if increments is not None]
        if len(kept) < len(saved):
            return False
        self._trees = [TreeIncrements.of(increments) for increments in kept]
        self._dart = Dart(self._params, len(kept) // self._params.trees_per_round)
        self._stale = True
        return True


class ModelBuilder:
    """Trees, own records, margins (rows, float32) and metrics; ``saved`` by earlier attempts.

    ``callbacks`` decide between rounds whether the training ends.

    Raises:
        ConfigError: early stopping has nothing to watch.
    """

    def __init__(
        self,
        table: ActiveTable,
        params: TrainParams,
        engine: Engine,
        saved: Sequence[ActiveTree] = (),
        callbacks: Callbacks | None = None,
    ) -> None:
        self._callbacks = callbacks or Callbacks()
        self._ended = False
        self.saved = tuple(saved)
        self._table = table
        self._params = params
        self._trees_per_round = params.trees_per_round
        self.total_trees = params.total_trees
        """The largest number of trees."""
        self._leaf_quantiles = (table.objective or objective_of(params)).leaf_quantiles
        self._engine = engine
        self.before: Mapping[str, float] = {}
        """The metrics of the model before the next tree."""
        self._records_before: int
        """The number of records of the finished trees."""
        self.trees: list[Tree] = []
        self.first_margin: NDArray[np.float32]
        """The margin before the first tree: float32 (rows,), or (rows, classes)."""
        self._stopping: EarlyStopping | None = None
        """None before the first score, and if nothing is watched."""
        if params.early_stopping_rounds is not None and not table.evaluation.any():
            raise ConfigError("early_stopping_rounds needs evaluation rows")

    def start(self) -> Plan[None]:
        """Find the prediction before the first tree, and begin without trees."""
        if self._params.base_score is None:
            score = yield from single(estimate_base_score.bind(self._params, self._table))
            self._params = self._params.model_copy(update={"base_score": score})
        self.first_margin = self._first_margin()
        self.rewind(0)

    def rewind(self, trees: int) -> None:
        """Go back to the first ``trees`` saved trees; to none if their margins are lost."""
        kept = self.saved[:trees]
        made = DartRound if self._params.booster == "dart" else Round
        self._round = made(self.first_margin, self._params)
        if not self._round.restore([tree.margin for tree in kept]):
            kept = ()
        self.records = all_records(self._table.features, kept)
        self._records_before = len(self.records)
        self.trees = [saved.tree for saved in kept]
        self._owned = Counter(owner for tree in self.trees for owner in tree.owner.tolist())
        self._history: dict[str, list[float]] = {}
        self._stopping = None
        for number, saved in enumerate(kept[1:], start=1):
            self._remember(number, saved.before)

    def _first_margin(self) -> NDArray[np.float32]:
        if self._table.base_margin is not None:
            return self._table.base_margin
        assert self._params.base_score is not None
        base = objective_of(self._params).first_margin(self._params.base_score)
        return np.full((len(self._table.label), *np.shape(base)), base, dtype=np.float32)

    @property
    def margins(self) -> NDArray[np.float32]:
        """The margins of all trees so far: (rows,), or (rows, classes)."""
        return self._round.evaluated

    def add_metrics(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of the model with its trees so far; ignored before the first tree."""
        if self.trees:
            self.before = metrics
            self._remember(len(self.trees), metrics)
        if metrics:
            self._ask_callbacks(len(self.trees) // self._trees_per_round)

    def derive(self) -> Plan[tuple[Gradients, dict[str, float]]]:
        """The gradients of the next tree, and the metrics of the model so far."""
        yield from self._round.refresh()
        margins = self._round.margin, self._round.evaluated
        derived: tuple[Gradients, dict[str, float]] = yield from single(
            derive_gradients.bind(self._params, *margins, self._table, len(self.trees))
        )
        return derived

    @property
    def next_tree(self) -> int:
        """The number of the next tree, from 0."""
        return len(self.trees)

    @property
    def trees_alone(self) -> int:
        """The number of first trees that are the active party's alone."""
        return self._params.trees_alone

    @property
    def is_complete(self) -> bool:
        """Whether all trees have grown, or early stopping is due."""
        stopped = self._stopping is not None and self._stopping.is_due
        return self._ended or stopped or len(self.trees) == self.total_trees

    def residuals(self) -> Residuals | None:
        """The residuals of labels, if leaves are made of them; None if sums make leaves."""
        if not self._leaf_quantiles:
            return None
        margins = self._round.margin.reshape(len(self._round.margin), -1)
        off = self._table.label.reshape(len(margins), -1) - margins
        first = self._params.output_of(len(self.trees))
        served = slice(first, first + self._params.vector_outputs)
        return Residuals(off[:, served], self._table.weight, self._leaf_quantiles[served])

    def gain_before(self) -> float:
        """What the root of the tree before gained, of the same class; 0 without one."""
        before = len(self.trees) - self._trees_per_round
        return 0.0 if before < 0 else max(0.0, float(self.trees[before].gain[0]))

    def next_records(self, parties: Sequence[str]) -> dict[str, int]:
        """The number of splits of the finished trees, by party: the number of its next record."""
        return {party: self._owned[owner] for owner, party in enumerate(parties)}

    def record(self, candidates: CandidateTable, split: int | CategorySet) -> int:
        """Record a split by one of the own ``candidates``, or by a set; returns the record's id."""
        self.records, record = recorded(self.records, candidates, split)
        return record

    def add(self, tree: Tree, increments: NDArray[np.float32]) -> ActiveTree:
        """Add a finished tree and its ``increments`` of the margins; returns its checkpoint."""
        self._round.add(increments)
        added = self.records.since(self._records_before)
        checkpoint = ActiveTree(
            len(self.trees),
            tree,
            added,
            self.before,
            self._round.saved(),
            self._table.digest,
            adds_alone=self._params.booster == "dart",
        )
        self._records_before = len(self.records)
        self.trees.append(tree)
        self._owned.update(tree.owner.tolist())
        return checkpoint

    def finished(
        self, model: str, parties: tuple[str, ...], withheld: dict[str, Withheld]
    ) -> ActiveShare:
        """The active party's share of the finished model; ``withheld`` by party."""
        return ActiveShare(
            model_id=model,
            lookup_table=self.records,
            parties=parties,
            params=self._params,
            trees=tuple(self.trees),
            best_iteration=(self._stopping or self._callbacks.model).best_iteration,
            history={name: tuple(values) for name, values in self._history.items()},
            withheld=withheld,
            inexact_engine="" if self._engine.traits.exact else self._engine.name,
            tree_weights=self._round.tree_weights,
            lacked_at={
                party: lacked for party, lacked in self._table.lacked_at.items() if party in parties
            },
        )

    def _ask_callbacks(self, rounds: int) -> None:
        if rounds:
            self._ended = self._callbacks.after_round(rounds - 1, self._history)
        if not self.is_complete:
            self._ended = self._callbacks.before_round(rounds, self._history)

    def _remember(self, trees: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._history.setdefault(name, []).append(value)
        if self._params.early_stopping_rounds is not None and metrics:
            watched, score = list(metrics.items())[-1]  # of the last set, as XGBoost does
            if self._stopping is None:
                _, _, name = watched.partition("-")
                self._stopping = EarlyStopping(
                    rounds=self._params.early_stopping_rounds,
                    maximize=watched_maximizes(name, self._params, self._table.metric),
                )
            self._stopping = self._stopping.after(trees // self._trees_per_round - 1, score)


@computation("DeriveGradients")
def derive_gradients(
    params: TrainParams,
    margins: NDArray[np.float32],
    evaluated: NDArray[np.float32],
    table: ActiveTable,
    tree: int,
) -> tuple[Gradients, dict[str, float]]:
    """The gradients of the next tree, and the metrics of the model so far.

    The gradients are those of ``margins``, the metrics those of ``evaluated`` margins. Metrics are
    keyed as XGBoost prints them: ``train-logloss``, ``eval-auc``; early stopping watches the last.
    An incomplete round has no metrics. Raises `DataError` if the labels span more than sums of the
    fixed resolution can keep.
    """
    training = ~table.evaluation
    gradients = Gradients.of(
        margins, table.label, training, params, tree, table.weight, table.objective
    )
    if tree == 0:
        _check_spread(params, margins, table, training)
    if tree % params.trees_per_round:
        return gradients, {}  # the round is not complete
    return gradients, _metrics(params, evaluated, table)


def _metrics(
    params: TrainParams, margins: NDArray[np.float32], table: ActiveTable
) -> dict[str, float]:
    """The metrics of the model with these ``margins`` of all rows, keyed as XGBoost prints them."""
    training = ~table.evaluation
    evaluated = objective_of(params).evaluated(margins)
    # As in XGBoost: a caller's metric takes margins if the objective is a caller's as well.
    shown = evaluated if table.objective is None else margins
    metrics: dict[str, float] = {}
    for name, rows in {"train": training, **table.evaluation_sets}.items():
        label = masked(table.label, rows)
        weight = None if table.weight is None else masked(table.weight, rows)
        predicted = masked(evaluated, rows)
        values = {
            metric: metric_of(metric, params).of(label, predicted, weight)
            for metric in params.eval_metric
        }
        if table.metric is not None:
            values |= table.metric.of(label, masked(shown, rows), weight)
        metrics |= {f"{name}-{metric}": value for metric, value in values.items()}
    return metrics


def _check_spread(
    params: TrainParams,
    margins: NDArray[np.float32],
    table: ActiveTable,
    training: NDArray[np.bool_],
) -> None:
    if table.objective is not None:
        return  # a caller's own objective is responsible for its gradients
    objective = objective_of(params)
    gradients = objective.gradients(margins, table.label, table.weight)
    g = np.abs(gradients[training][..., 0]).reshape(np.count_nonzero(training), -1)
    for output, own in enumerate(g.T):
        summed = g if params.vector_outputs > 1 else own
        most = float(summed.max(initial=0.0))
        usual = float(np.median(own[own > 0])) if own.any() else most
        if usual < most * _NARROWEST:
            what = "label" if table.weight is None else "label or weight"
            which = "" if g.shape[1] == 1 else f" of {params.output_kind} {output}"
            raise DataError(
                f"{what}: a value lies {most:g} from base_score, and half of all values{which} "
                f"within {usual:g}; sums would lose the small values: clip them, or take logarithms"
                + ", or leave multi_strategy at one_output_per_tree"
                * (params.vector_outputs > 1)
            )


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """The residuals of labels, ``values`` float32 (rows, outputs): leaves are their ``quantiles``.

    The outputs are the margins that a tree serves. XGBoost's ``UpdateTreeLeaf``; ``weight``
    (rows,) as in :class:`ActiveTable`.
    """

    values: NDArray[np.float32]
    weight: NDArray[np.float32] | None
    quantiles: tuple[float, ...]

    def leaf_weight(
        self, rows: NDArray[np.int32], eta: np.float32
    ) -> np.float32 | NDArray[np.float32]:
        """What a leaf of ``rows``, at least one, adds: a float32, or float32 (outputs,)."""
        weight = None if self.weight is None else self.weight[rows]
        columns = zip(self.values[rows].T, self.quantiles, strict=True)
        found = np.array([quantile(off, alpha, weight) for off, alpha in columns]) * eta
        return found if len(found) > 1 else found[0]


@computation("RefreshLeaves")
def refresh_leaves(
    share: ActiveShare, leaves: NDArray[np.int32], table: ActiveTable, weighs: bool = True
) -> tuple[ActiveShare, NDArray[np.float32]]:
    """``share`` with leaves weighed anew on ``table``, and the margins of all its rows.

    With ``weighs`` false leaves stay, and gains and covers alone are those of the table.
    ``leaves``: the node of its tree at which each row ends, int32 (rows, trees). The curves are
    those of the refreshed trees, round after round.
    """
    history: dict[str, list[float]] = {}
    margins: list[NDArray[np.float32]] = []

    def after_round(seen: NDArray[np.float32]) -> None:
        margins[:] = [seen]
        for name, value in _metrics(share.params, seen, table).items():
            history.setdefault(name, []).append(value)

    made = refreshed(
        share,
        list(leaves.T),
        table.label,
        table.weight,
        table.base_margin,
        refresh_leaf=weighs,
        learning=~table.evaluation,
        objective=table.objective,
        after_round=after_round,
    )
    curves = {name: tuple(values) for name, values in history.items()}
    return made.model_copy(update={"history": curves}), margins[0]
