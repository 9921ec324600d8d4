"""Which trees and margins has the model of each fold of a cross-validation so far?

The models grow in turns, a tree each, so that all complete a round together. Then the means over
the folds are known, and early stopping watches them (``xgb.cv``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.callbacks import EarlyStopping
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.metrics import watched_maximizes
from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.share import Withheld
from fedmq.boosting.model.tree import LookupTable, Tree
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable, CategorySet
from fedmq.privacy.engine import Engine
from fedmq.privacy.plan import Plan
from fedmq.protocol.session_records import ActiveTree
from fedmq.protocol.training.model import ModelBuilder, Residuals
from fedmq.protocol.training.terms import ActiveTable

__all__ = ["FoldModels"]

Metrics = Mapping[str, float]


class FoldModels:
    """Like :class:`ModelBuilder`, with one model per fold of ``table``.

    Trees are numbered over all models: number ``n`` is tree ``n // folds`` of fold ``n % folds``.
    """

    def __init__(
        self,
        table: ActiveTable,
        params: TrainParams,
        engine: Engine,
        saved: Sequence[ActiveTree] = (),
    ) -> None:
        self.saved = tuple(saved)
        self.folds = len(table.folds)
        self._table = table
        self._params = params
        alone = params.model_copy(update={"early_stopping_rounds": None})
        self._models = [
            ModelBuilder(table.of_fold(fold), alone, engine, saved[number :: self.folds])
            for number, fold in enumerate(table.folds)
        ]
        self.next_tree = 0
        self._metrics: list[Metrics | None] = []
        """The metrics of each fold's model after the last common round; None until derived."""
        self._rounds: list[Sequence[Metrics]] = []
        """The metrics of all folds, after each round."""
        self._stopping: EarlyStopping | None = None

    @property
    def total_trees(self) -> int:
        """The trees of all models together."""
        return self._params.total_trees * self.folds

    @property
    def trees_alone(self) -> int:
        """The number of first trees that are the active party's alone."""
        return self._params.trees_alone * self.folds

    @property
    def _model(self) -> ModelBuilder:
        """The model whose turn it is."""
        return self._models[self.next_tree % self.folds]

    @property
    def _round_trees(self) -> int:
        return self._params.trees_per_round * self.folds

    def start(self) -> Plan[None]:
        """Find the prediction before the first tree of each model, and begin without trees."""
        for model in self._models:
            yield from model.start()
        self.rewind(0)

    def rewind(self, trees: int) -> None:
        """Go back to the first ``trees`` saved trees; to none if any of their margins are lost."""
        for fold, model in enumerate(self._models):
            model.rewind(len(range(fold, trees, self.folds)))
        if sum(model.next_tree for model in self._models) < trees:
            self.rewind(0)
            return
        self.next_tree = trees
        self._rounds, self._stopping = [], None
        complete = trees // self._round_trees
        for number in range(1, complete):
            self._remember([self._before(fold, number) for fold in range(self.folds)])
        begun = [tree < trees for tree in self._first_trees(complete)]
        self._metrics = [
            self._before(fold, complete) if known else None for fold, known in enumerate(begun)
        ]

    def _first_trees(self, number: int) -> range:
        """The first tree of each fold in round ``number``, from 0."""
        return range(number * self._round_trees, number * self._round_trees + self.folds)

    def _before(self, fold: int, number: int) -> Metrics:
        """The metrics of a fold before round ``number``, saved with the round's first tree."""
        return self.saved[self._first_trees(number)[fold]].before

    def derive(self) -> Plan[tuple[Gradients, dict[str, float]]]:
        """The gradients of the next tree, and the figures of the last round."""
        due, gradients = self.next_tree % self.folds, None
        for fold, model in enumerate(self._models):
            if fold != due and self._metrics[fold] is not None:
                continue
            derived, metrics = yield from model.derive()
            if self._metrics[fold] is None:
                self._metrics[fold] = metrics
            if fold == due:
                gradients = replace(derived, tree=self.next_tree)
        assert gradients is not None
        return gradients, {name: figures[-1] for name, figures in self._figures(self._known)}

    @property
    def _known(self) -> list[Sequence[Metrics]]:
        """The metrics of all folds after the last round alone; empty before the first."""
        known = [metrics for metrics in self._metrics if metrics is not None]
        return [known] if self.next_tree >= self._round_trees else []

    def add_metrics(self, _: Metrics) -> None:
        """Add the metrics of the last round, unless known; the next tree begins with them."""
        if len(self._rounds) < self.next_tree // self._round_trees:
            self._remember(self._known[0])
        metrics = self._metrics[self.next_tree % self.folds]
        within_round = self.next_tree % self._round_trees >= self.folds
        self._model.before = {} if within_round or metrics is None else metrics

    def _remember(self, metrics: Sequence[Metrics]) -> None:
        self._rounds.append(metrics)
        rounds, name = self._params.early_stopping_rounds, list(metrics[0])[-1]
        if rounds is None:
            return
        if self._stopping is None:
            _, _, watched = name.partition("-")
            maximize = watched_maximizes(watched, self._params, self._table.metric)
            self._stopping = EarlyStopping(rounds=rounds, maximize=maximize)
        score = dict(self._figures([metrics]))[f"{name}-mean"][0]
        self._stopping = self._stopping.after(len(self._rounds) - 1, score)

    @staticmethod
    def _figures(rounds: Sequence[Sequence[Metrics]]) -> list[tuple[str, tuple[float, ...]]]:
        """Mean and deviation of each metric over the folds, by round."""
        figures = []
        for name in rounds[0][0] if rounds else ():
            values = np.array([[metrics[name] for metrics in folds] for folds in rounds])
            figures.append((f"{name}-mean", tuple(values.mean(axis=1).tolist())))
            figures.append((f"{name}-std", tuple(values.std(axis=1).tolist())))
        return figures

    @property
    def is_complete(self) -> bool:
        """Whether all trees have grown, or early stopping is due."""
        return self._is_due or self.next_tree == self.total_trees

    @property
    def _is_due(self) -> bool:
        return self._stopping is not None and self._stopping.is_due

    def residuals(self) -> Residuals | None:
        """The residuals of the model whose turn it is."""
        return self._model.residuals()

    def gain_before(self) -> float:
        """What the root of the tree before gained, of the model whose turn it is."""
        return self._model.gain_before()

    def next_records(self, parties: Sequence[str]) -> dict[str, int]:
        """The number of splits in the finished trees of all models, by party."""
        owned: Counter[str] = Counter(dict.fromkeys(parties, 0))
        for model in self._models:
            owned.update(model.next_records(parties))
        return dict(owned)

    @property
    def records(self) -> LookupTable:
        """The active party's own records, of the model whose turn it is."""
        return self._model.records

    def record(self, candidates: CandidateTable, split: int | CategorySet) -> int:
        """Record a split by one of the own ``candidates``, or by a set; returns the record's id."""
        return self._model.record(candidates, split)

    def add(self, tree: Tree, increments: NDArray[np.float32]) -> ActiveTree:
        """Add a finished tree and its ``increments`` of the margins; returns its checkpoint."""
        checkpoint = self._model.add(tree, increments)
        checkpoint = replace(checkpoint, number=self.next_tree, folds=self.folds)
        self.next_tree += 1
        if self.next_tree % self._round_trees == 0:
            self._metrics = [None] * self.folds
        return checkpoint

    def finished(
        self, name: str, parties: tuple[str, ...], _: Mapping[str, Withheld]
    ) -> CrossValidated:
        """The result of the cross-validation; early stopping ends the figures at the best round."""
        best = self._stopping.best_iteration if self._stopping is not None else None
        end = len(self._rounds) if best is None or not self._is_due else best + 1
        return CrossValidated(
            name=name,
            parties=parties,
            folds=self.folds,
            params=self._params,
            figures=dict(self._figures(self._rounds[:end])),
            rounds=len(self._rounds),
            best_iteration=best,
        )
