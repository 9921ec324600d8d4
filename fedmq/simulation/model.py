"""A model with all its shares in one process: the result of a simulation.

It scores with the daemons' machines, and is stored as one versioned JSON document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator

from fedmq.boosting.callbacks import EvalsLog, evals_log
from fedmq.boosting.gradients import first_margins
from fedmq.boosting.model.owner_splits import OwnerSplits
from fedmq.boosting.model.refreshed import refreshed
from fedmq.boosting.model.share import ActiveShare, PassiveShare, read_document
from fedmq.boosting.model.shown_model import importance, importance_kind
from fedmq.boosting.model.tree import LookupTable
from fedmq.boosting.xgboost_comparison.export import import_xgboost, joint_booster
from fedmq.boosting.xgboost_comparison.pooled_tree import (
    PooledTree,
    joined_values,
    margin_contributions,
    pooled_feature_names,
    walk_pooled,
)
from fedmq.computation import Given
from fedmq.errors import ConfigError, DataError
from fedmq.evaluation.evaluate import ScoredRows, evaluate, kind_of
from fedmq.evaluation.report import Report
from fedmq.leakage.attacks.labels import LeafWeights
from fedmq.party.atomic_file import write_atomically
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.data.data_frame import PartyFeatures, trained_columns
from fedmq.party.telemetry.metrics import Traffic, Volume
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.inference.computations import Scores
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from fedmq.protocol.machine import Machine
from fedmq.simulation.dossier import simulated_dossier
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines
from fedmq.simulation.names_of_xgboost import answering_names_of_xgboost
from fedmq.simulation.tables import ACTIVE, active_table, by_index, column_of_rows, with_queries

if TYPE_CHECKING:
    import xgboost

    from fedmq.evaluation.dossier_page import Dossier
    from fedmq.leakage.audit import AuditReport

__all__ = ["ModelFile", "Sent", "SimulatedModel", "scored"]

_Figure = Annotated[int, Field(ge=0)]


_ELSEWHERE = {
    "apply": "predict(..., pred_leaf=True) has the leaves",
    "best_score": "metrics has it, by set and metric",
    "dump_model": "to_xgboost().dump_model(path) writes it",
    "eval": "evaluate(active=..., label=..., passive=...) has the metrics of other rows",
    "feature_importances_": "get_score('gain') has it",
    "feature_names": "columns has them, by party",
    "feature_types": "to_xgboost().feature_types has them",
    "get_booster": "it is to_xgboost()",
    "get_dump": "to_xgboost().get_dump() has it",
    "get_fscore": "it is get_score()",
    "inplace_predict": "predict(active=..., passive=...) takes tables as they are",
    "load_model": "it is called fedmq.SimulatedModel.load",
    "num_boosted_rounds": "to_xgboost().num_boosted_rounds() has it",
    "num_features": "columns has them, by party",
    "predict_proba": "predict gives probabilities",
    "save_config": "share.params has the parameters",
    "save_model": "it is called save",
    "save_raw": "save(path) writes all shares, and to_xgboost().save_raw() gives XGBoost's model",
    "trees_to_dataframe": "to_xgboost().trees_to_dataframe() has it",
    "update": "fedmq.simulate(..., continue_from=model) goes on",
}
"""XGBoost's names, and what to use here."""


class _Named(type):
    """Answers XGBoost's names on the class, as its instances do."""

    if not TYPE_CHECKING:  # for type checkers every name would exist

        def __getattr__(cls, name: str) -> Any:
            hint = f": {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
            raise AttributeError(f"{cls.__name__} has no {name}{hint}")


class SimulatedModel(metaclass=_Named):
    """All shares: ``share`` is the active party's, ``passive_shares`` the others' by name.

    ``epsilon_spent``: the differential privacy that the training cost; None where the engine has
    none to offer.
    """

    def __init__(
        self,
        share: ActiveShare,
        passive_shares: Sequence[PassiveShare],
        traffic: Traffic,
        epsilon_spent: float | None = None,
    ) -> None:
        self.epsilon_spent = epsilon_spent
        self.share = share
        self.passive_shares = {share.party: share for share in passive_shares}
        self._traffic = traffic

    def __repr__(self) -> str:
        share = self.share
        rounds = len(share.trees) // share.params.trees_per_round
        parties = [
            f"{party}: {len(table.columns)} columns"
            for party, table in zip(share.parties, self._tables(), strict=True)
        ]
        best = [] if share.best_iteration is None else [f"best_iteration={share.best_iteration}"]
        metrics = [f"{name}={value:.6g}" for name, value in share.metrics.items()]
        inside = [share.params.objective, f"{rounds} rounds", *parties, *best, *metrics]
        return f"<SimulatedModel {', '.join(inside)}>"

    if not TYPE_CHECKING:  # for type checkers every name would exist

        def __getattr__(self, name: str) -> Any:
            if name in _ELSEWHERE:
                raise AttributeError(f"SimulatedModel has no {name}: {_ELSEWHERE[name]}")
            return object.__getattribute__(self, name)  # raises what it raised before

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded, (self._file().model_dump_json(), "pickle")

    def save(self, path: str | Path) -> None:
        """Write all shares to ``path``, one JSON document, in place of what is there.

        The file shows every party's column names and thresholds, and the trees.

        Raises:
            DataError: the file cannot be written; nothing is half-written.
        """
        try:
            write_atomically(Path(path), self._file().model_dump_json())
        except OSError as error:
            raise DataError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | Path) -> SimulatedModel:
        """The model that ``save`` wrote to ``path``.

        Raises:
            DataError: the file cannot be read, or is no such model.
        """
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        return _loaded(text, str(path))

    @property
    def traffic(self) -> dict[tuple[str, str], dict[str, Volume]]:
        """Messages and bytes of the training, per (sender, recipient) and message kind."""
        return {pair: dict(kinds) for pair, kinds in self._traffic.volumes.items()}

    @property
    def bytes_sent(self) -> int:
        """All bytes of the training together."""
        return self._traffic.total.bytes

    @property
    def evals_result(self) -> EvalsLog:
        """Each metric after each tree, as XGBoost has it: ``["eval"]["logloss"]``."""
        return evals_log(self.share.history)

    @property
    def metrics(self) -> dict[str, float]:
        """The evaluation of the kept model, by set and metric: ``["eval-logloss"]``.

        With early stopping it is that of ``best_iteration``, not of the last tree that grew.
        """
        return self.share.metrics

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The names of each party's columns, the active party's first.

        A column of categories has one name if it is split by sets, and else one of each category.
        """
        tables = zip(self.share.parties, self._tables(), strict=True)
        return {party: tuple(table.columns) for party, table in tables}

    @property
    def departures(self) -> tuple[str, ...]:
        """Why this is not XGBoost's model on the joined table, in words; empty if it is."""
        return self.share.departures

    @property
    def best_iteration(self) -> int | None:
        """The last tree that predictions use, from 0; None without early stopping."""
        return self.share.best_iteration

    @answering_names_of_xgboost
    def predict(
        self,
        *,
        active: Any,
        passive: Mapping[str, Any],
        output_margin: bool = False,
        pred_contribs: bool = False,
        pred_interactions: bool = False,
        pred_leaf: bool = False,
        iteration_range: tuple[int, int] = (0, 0),
        strict_shape: bool = False,
        base_margin: ArrayLike | None = None,
    ) -> NDArray[np.float32]:
        """Scores of rows that all parties hold: float32 (rows,), in the order of ``active``.

        Rows of pandas tables are matched by their indexes, those of others by position. The index
        of ``active`` may name a person several times.

        Of ``multi:softprob``, and as margins of several classes: (rows, classes).
        A probability for ``binary:logistic``; the raw margin with ``output_margin``. Every party
        answers for its own splits through the daemons' machines. With ``pred_contribs`` what each
        column adds to the margin, as XGBoost has it of `to_xgboost`: (rows, columns + 1), of
        several classes (rows, classes, columns + 1); the last is the bias. ``base_margin``, (rows,)
        or (rows, classes), is where each row starts instead of at the base score, as that of
        ``xgboost.DMatrix``.

        ``pred_interactions``, ``pred_leaf`` and ``strict_shape`` are those of XGBoost's `predict`,
        the first two computed by `to_xgboost`. ``iteration_range`` (first, end) takes the trees of
        these rounds alone; with one of the ``pred_`` it begins with 0.

        Raises:
            ConfigError: ``pred_contribs`` of a model of vector leaves, two of the three ``pred_``,
                rounds that do not exist, or xgboost, where it is needed, is not installed.
            DataError: a table has other columns, or another number of rows, or ``base_margin`` has.
        """
        if not isinstance(passive, Mapping):
            raise DataError("passive: a dict of tables by the parties' names is needed")
        if pred_contribs + pred_interactions + pred_leaf > 1:
            raise ConfigError("predict: pred_contribs, pred_interactions, pred_leaf: take one")
        if iteration_range[0] and (pred_contribs or pred_interactions or pred_leaf):
            raise ConfigError("iteration_range: of leaves and contributions it begins with round 0")
        share = self.share.of_rounds(*iteration_range)
        values, given = self._values(active, passive, base_margin)
        first = None
        if given is not None:
            first = first_margins(given, len(values[0]), share.params.outputs, ACTIVE)
        if pred_leaf or pred_interactions:
            booster = _booster(share, self._tables())
            rows = import_xgboost().DMatrix(
                joined_values(self._tables(), values),
                base_margin=first,
                feature_names=booster.feature_names,
                feature_types=booster.feature_types,
                enable_categorical=True,
            )
            found: NDArray[np.float32] = booster.predict(
                rows,
                pred_leaf=pred_leaf,
                pred_interactions=pred_interactions,
                strict_shape=strict_shape,
            )
            return found
        if pred_contribs:
            found = margin_contributions(share, self._tables(), values, first)
            return found[:, np.newaxis] if strict_shape and found.ndim == 2 else found
        by_party = dict(zip(share.parties, values, strict=True))
        scores = scored(share, self.passive_shares, by_party, given)
        found = scores.margins if output_margin else scores.predictions
        return found[:, np.newaxis] if strict_shape and found.ndim == 1 else found

    @answering_names_of_xgboost
    def evaluate(
        self,
        *,
        active: Any,
        label: ArrayLike,
        passive: Mapping[str, Any],
        samples: int = 200,
        base_margin: ArrayLike | None = None,
    ) -> Report:
        """Metrics with intervals, curves and tables of rows whose ``label`` is known.

        ``label``: (rows,), or (rows, targets), a frame of which names the targets.
        ``samples``: bootstrap samples of the intervals. `fedmq.evaluation.page.html_of` makes a
        page of the report. ``base_margin`` is that of ``predict``.

        Raises:
            ConfigError: scikit-learn is not installed.
            DataError: a table has other columns, there are no rows, or labels of one class only.
        """
        predicted = self.predict(active=active, passive=passive, base_margin=base_margin)
        score = predicted.astype(np.float64)
        known = column_of_rows(label, "label", None).astype(np.float64)
        targets = self.share.params.num_target or 1
        if known.shape != ((len(score), targets) if targets > 1 else (len(score),)):
            several = f", with {targets} labels each" if targets > 1 else ""
            raise DataError(
                f"label has the shape {known.shape}, and there are {len(score)} rows{several}"
            )
        ids = tuple(map(str, range(len(score))))
        rows = ScoredRows(ids, ("given",) * len(score), known, score)
        objective = self.share.params.objective
        return evaluate(
            self.share.model_id,
            kind_of(self.share.params),
            rows,
            {"objective": objective},
            self.share.history,
            samples,
            targets=tuple(map(str, getattr(label, "columns", ()))),
            quantiles=self.share.params.quantiles,
        )

    def dossier(
        self,
        purpose: str = "",
        *,
        report: Report | None = None,
        audits: Sequence[AuditReport] = (),
        label: Sequence[str] = ("label",),
    ) -> Dossier:
        """What a validator asks for, as far as a simulation has it; ``write`` makes a file of it.

        ``report``: of `evaluate`; ``audits``: of `fedmq.audit` on recordings of this training;
        ``label``: what is learned. What is not there is named.
        """
        gains = self.get_score("total_gain")
        return simulated_dossier(self.share, self.columns, gains, purpose, report, audits, label)

    def refreshed(
        self,
        *,
        active: Any,
        label: ArrayLike,
        passive: Mapping[str, Any],
        qid: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        base_margin: ArrayLike | None = None,
        refresh_leaf: bool = True,
    ) -> SimulatedModel:
        """This model with the leaf weights, gains and covers of other rows; splits stay.

        As XGBoost has it with ``process_type = "update"``, ``updater = "refresh"`` and the model's
        parameters; ``refresh_leaf = False`` leaves leaves as they are. The active party computes it
        from the leaf in which each row ends. ``label``, ``qid``, ``weight`` and ``base_margin`` are
        those of ``fedmq.simulate``; leaves are sums of gradients, of quantiles too. The result has
        no history and no ``best_iteration``, and trees after that one are left out.

        Raises:
            ConfigError: XGBoost refreshes no such model: one of DART that has left trees out, of
                vector leaves, or in the arithmetic of 3.4 with monotone constraints.
            DataError: a table has other columns, there are no rows, or labels do not fit.
        """
        others = {party: passive[party] for party in self.share.parties[1:] if party in passive}
        beside = {"label": label, "qid": qid, "weight": weight, "base_margin": base_margin}
        matched = by_index({ACTIVE: active, **others}, beside)
        by_party = dict(matched.tables)
        values, _ = self._values(by_party.pop(ACTIVE), by_party)
        if not len(values[0]):
            raise DataError(f"{ACTIVE}: there are no rows to refresh the model on")
        own = PartyFeatures(values[0], self.share.lookup_table.feature_names)
        given = active_table(
            own,
            self.share.params,
            with_queries(matched.beside["label"], matched.beside["qid"]),
            weight=matched.beside["weight"],
            base_margin=matched.beside["base_margin"],
        )
        if len(given.label) != len(values[0]):
            raise DataError(f"label has {len(given.label)} rows, {ACTIVE} has {len(values[0])}")
        tables = self._tables()
        share = refreshed(
            self.share,
            [walk_pooled(tree, tables, values) for tree in self.share.grown_trees],
            given.label,
            given.weight,
            given.base_margin,
            refresh_leaf=refresh_leaf,
        )
        return SimulatedModel(share, tuple(self.passive_shares.values()), Traffic())

    def leaf_weights(self, *, active: Any, passive: Mapping[str, Any]) -> LeafWeights:
        """What each tree adds to each row, for ``fedmq.audit``; no passive party learns it.

        Raises:
            ConfigError: the model has several classes, or is one of DART.
            DataError: a table has other columns.
        """
        score = self.share.base_score
        if self.share.tree_weights:
            raise ConfigError("leaf_weights: the attacks know trees that add up, not those of dart")
        if isinstance(score, tuple):
            raise ConfigError("leaf_weights: the attacks know one number a row, not classes")
        tables, (values, _) = self._tables(), self._values(active, passive)
        trees, rows = self.share.used_trees, len(values[0])
        per_tree = np.empty((rows, len(trees)), np.float32)
        leaves = np.empty((rows, len(trees)), np.int64)
        shallow = True
        for number, tree in enumerate(trees):
            leaf = walk_pooled(tree, tables, values)
            per_tree[:, number] = tree.weight[leaf]
            heap = tree.heap_numbers()
            shallow &= max(heap) < 1 << 62
            if shallow:
                leaves[:, number] = np.array(heap)[leaf]
        params = self.share.params
        return LeafWeights(
            per_tree,
            float(params.leaf_eta),
            params.reg_lambda,
            score,
            params,
            leaves if shallow else None,
        )

    def get_score(self, importance_type: str = "weight") -> dict[str, float]:
        """The importance of each column that splits a node, as XGBoost has it of `to_xgboost`.

        Columns are named ``party.feature``. ``importance_type``: ``weight``, ``gain``,
        ``total_gain``, ``cover`` or ``total_cover``.

        Raises:
            ConfigError: XGBoost has no such kind.
        """
        kind, trees = importance_kind(importance_type), self.joined_trees()
        names = pooled_feature_names(self.share.parties, self._tables())
        found = importance([tree.tree for tree in trees], [tree.feature for tree in trees], kind)
        return {names[feature]: value for feature, value in found.items()}

    def joined_trees(self) -> list[PooledTree]:
        """The trees with everybody's thresholds: what no party could see alone.

        Those of DART are as they have grown, and ``share.tree_weights`` says what each weighs.
        """
        splits = [OwnerSplits.of(table) for table in self._tables()]
        return [PooledTree.joined(tree, splits) for tree in self.share.grown_trees]

    def to_xgboost(self) -> xgboost.Booster:
        """The joined trees over raw feature values; columns are named ``party.feature``.

        A column of categories that is split by sets is one of XGBoost's, of the codes that
        `joined_values` gives.

        Raises:
            ConfigError: xgboost is not installed.
        """
        return _booster(self.share, self._tables())

    def joined_values(self, *, active: Any, passive: Mapping[str, Any]) -> NDArray[np.float32]:
        """The columns of `to_xgboost`, float32 (rows, columns), of rows that all parties hold.

        A column of categories that is split by sets holds their codes there.

        Raises:
            DataError: a table has other columns.
        """
        return joined_values(self._tables(), self._values(active, passive)[0])

    def _tables(self) -> list[LookupTable]:
        others = (self.passive_shares[party] for party in self.share.parties[1:])
        return [self.share.lookup_table, *(share.lookup_table for share in others)]

    def _values(
        self, active: Any, passive: Mapping[str, Any], base_margin: Any = None
    ) -> tuple[list[NDArray[np.float32]], Any]:
        """The parties' columns in one order of rows, and the margins in that order.

        Raises DataError if they do not fit.
        """
        missing = self.passive_shares.keys() - passive.keys()
        if missing:
            raise DataError(f"passive: the columns of {sorted(missing)[0]} are missing")
        others = {party: passive[party] for party in self.share.parties[1:]}
        beside = {} if base_margin is None else {"base_margin": base_margin}
        matched = by_index({ACTIVE: active, **others}, beside)
        given = matched.tables.values()
        values = [
            trained_columns(data, party, table.feature_names)
            for party, data, table in zip(self.share.parties, given, self._tables(), strict=True)
        ]
        for party, columns in zip(self.share.parties, values, strict=True):
            if len(columns) != len(values[0]):
                raise DataError(f"{party} has {len(columns)} rows, {ACTIVE} has {len(values[0])}")
        return values, matched.beside.get("base_margin")

    def _file(self) -> ModelFile:
        return ModelFile(
            share=self.share,
            passive_shares=tuple(self.passive_shares.values()),
            epsilon_spent=self.epsilon_spent,
            traffic=ModelFile.counted(self._traffic),
        )


def _booster(share: ActiveShare, tables: Sequence[LookupTable]) -> xgboost.Booster:
    return joint_booster(share, [OwnerSplits.of(table) for table in tables])


def _loaded(text: str | bytes, where: str) -> SimulatedModel:
    file = ModelFile.loads(text, where)
    return SimulatedModel(file.share, file.passive_shares, file.volumes(), file.epsilon_spent)


def scored(
    share: ActiveShare,
    passive_shares: Mapping[str, PassiveShare],
    values: Mapping[str, NDArray[np.float32]],
    base_margin: Any = None,
) -> Scores:
    """Margins and predictions of rows; ``values`` float32 (rows, trained features) by party.

    ``base_margin``, (rows,) or (rows, classes): where each row starts, not at the base score.

    Raises:
        DataError: a party has another number of rows, or ``base_margin`` has.
    """
    rows = len(values[ACTIVE])
    first = None
    if base_margin is not None:
        first = first_margins(base_margin, rows, share.params.outputs, ACTIVE)
    machine = ActiveInference(share, values[ACTIVE], base_margin=first)
    machines: dict[str, Machine] = {ACTIVE: machine}
    for party, held in passive_shares.items():
        if len(values[party]) != rows:
            raise DataError(f"{party} has {len(values[party])} rows, {ACTIVE} has {rows}")
        if party in machine.peers:
            asked = Given(PassiveRows(held, values[party], None))
            machines[party] = PassiveInference(ACTIVE, asked)
    if not rows:
        several = share.params.outputs > 1
        nothing = np.empty((0, share.params.outputs) if several else 0, np.float32)
        named = several and share.params.objective == "multi:softmax"
        return Scores(nothing, nothing[:, 0] if named else nothing)

    async def score() -> list[Any]:
        return await run_machines(machines, ThreadPool(), MEMORY, "inference", Traffic())

    scores: Scores = in_own_loop(score())[0]
    return scores


class Sent(BaseModel):
    """What one party sent to another in the training, of one kind of message."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sender: str
    recipient: str
    kind: str
    messages: _Figure
    bytes: _Figure


class ModelFile(BaseModel):
    """The document. The parties of a federation would keep its shares apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    format: Literal["fedmq.simulated-model"] = "fedmq.simulated-model"
    version: Annotated[int, Field(strict=True)] = 1
    share: ActiveShare
    passive_shares: tuple[PassiveShare, ...]
    epsilon_spent: float | None
    traffic: tuple[Sent, ...]

    @field_validator("version")
    @classmethod
    def _known(cls, version: int) -> int:
        if version != 1:
            raise ValueError(
                f"version {version} is unknown; this fedmq reads version 1, so use the fedmq that "
                "wrote the file"
            )
        return version

    @classmethod
    def loads(cls, text: str | bytes, where: str) -> ModelFile:
        """The document in ``text``.

        Raises:
            DataError: this fedmq cannot read it; the text begins with ``where``, a file.
        """
        return read_document(cls, text, where, "model")

    @staticmethod
    def counted(traffic: Traffic) -> tuple[Sent, ...]:
        """``traffic`` in the form of the document."""
        return tuple(
            Sent(
                sender=sender,
                recipient=recipient,
                kind=kind,
                messages=volume.messages,
                bytes=volume.bytes,
            )
            for (sender, recipient), kinds in traffic.volumes.items()
            for kind, volume in kinds.items()
        )

    def volumes(self) -> Traffic:
        """The traffic of the training."""
        traffic = Traffic()
        for sent in self.traffic:
            volume = Volume(sent.messages, sent.bytes)
            traffic.volumes[sent.sender, sent.recipient][sent.kind] = volume
        return traffic
