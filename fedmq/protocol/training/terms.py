"""What is a training about, and may it begin?

The table of each side, the parameters' constraints on its columns, and the resulting terms. Then
the acceptance of each passive party, and the trees from which a training may continue: those of an
earlier attempt, or of an earlier model.

Parameters name the active party's own columns, and another party's as ``party.column``. Interaction
constraints may also name groups of columns that an owner's file defines, and ``*``, all of them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, ColumnBins, Cuts
from fedmq.boosting.gradients import most_value_bits
from fedmq.boosting.model.fallbacks import fallback_name
from fedmq.boosting.model.refreshed import check_refreshable
from fedmq.boosting.model.share import WITHHELD_NOTHING, ActiveShare, Withheld
from fedmq.boosting.node_rows import masked
from fedmq.boosting.objectives.custom import CustomMetric
from fedmq.boosting.objectives.objective import Objective
from fedmq.boosting.objectives.registry import OBJECTIVES
from fedmq.boosting.params import TrainParams
from fedmq.computation import computation
from fedmq.errors import (
    ConfigError,
    DataError,
    Inconsistent,
    MessageError,
    OldState,
    ProtocolError,
    Refused,
)
from fedmq.messages.array import Bitmap, Payload, pack_payload, payload_bytes, unpack_payload
from fedmq.messages.codec import pack_body
from fedmq.messages.training import (
    MOST_ROWS,
    MainTraining,
    SelectedColumns,
    SessionAccept,
    TrainingOpen,
)
from fedmq.privacy.engine import Engine, SizeLimit
from fedmq.privacy.plan import Values
from fedmq.protocol.session_records import NOBODY, PassiveTree, RowSet

__all__ = [
    "ALL_COLUMNS",
    "SCORED",
    "Acceptances",
    "ActiveTable",
    "ColumnConstraints",
    "Fold",
    "KeptConstraints",
    "MainModel",
    "PassiveTable",
    "TrainingTerms",
    "bin_table",
    "binned_places",
    "category_places",
    "columns_by_sets",
    "continuing",
    "kept_constraints",
    "opening_of_main",
    "refreshing",
    "terms_digest",
]


SCORED = "test"
"""The name of a fold's set of rows to score, as in ``xgb.cv``."""
_ALIGN = "find the people that all share with: fedmq align"


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """A fold of a cross-validation: rows to learn from, and rows to score, both bool (rows,)."""

    learning: NDArray[np.bool_]
    scored: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ActiveTable:
    """The active party's rows, in the common order.

    ``values`` float32 (rows, features), NaN is missing; ``label`` float32 (rows,), or (rows, 2)
    for bounds of times; ``evaluation`` bool (rows,): rows that are scored but not learned from, and
    ``evaluation_sets``: their division, by default all of them as "eval"; ``weight`` float32
    (rows,): the weight of each row; ``base_margin`` float32 (rows,): the start of each row instead
    of the base score; ``objective`` and ``metric``: a caller's own, the objective in place of the
    one in the parameters. None of them leaves this party.
    ``held_out_ids``: the ids of the rows of ``evaluation``, for evaluating the model; with
    ``folds`` the ids of all other rows.
    ``alignment``: the digest of the common rows, empty if rows are matched by position; it is that
    of the stored alignment ``alignment_name``, if there is one. ``digest`` identifies this table,
    and never leaves its party; empty if no session outlives a crash.
    ``signs``: 1 or -1 for columns that may only raise the prediction, or only lower it.
    ``column_groups``: columns by group name, for interaction constraints.
    ``folds``: a model is trained and scored for each fold, in place of one model of all rows; no
    fold contains rows of ``evaluation``.
    ``category_columns``: the features of each column of categories, 1 if a row has the category,
    otherwise 0. ``lacked_at``: how many people of the alignment a passive party lacks; parties that
    lack nobody are left out. ``lacking`` bool (rows,): which people it lacks, where that is known.
    ``bins``: how single columns are cut, where their owner says it.
    ``person`` int32 (rows,): where people have several rows here, the number of each row's; passive
    parties hold a row for each person, in the order of these numbers. ``selected``: which
    columns of a passive party take part; all of those that are left out.
    Raises `DataError` for more rows than a training takes, or if a person is both learned from and
    held out.
    """

    values: NDArray[np.float32]
    features: tuple[str, ...]
    label: NDArray[np.float32]
    evaluation: NDArray[np.bool_]
    alignment: str = ""
    alignment_name: str = ""
    digest: str = ""
    signs: Mapping[str, int] = field(default_factory=dict)
    weight: NDArray[np.float32] | None = None
    base_margin: NDArray[np.float32] | None = None
    objective: Objective | None = None
    metric: CustomMetric | None = None
    evaluation_sets: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    held_out_ids: tuple[str, ...] = ()
    column_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folds: tuple[Fold, ...] = ()
    category_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lacked_at: Mapping[str, int] = field(default_factory=dict)
    lacking: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    person: NDArray[np.int32] | None = None
    selected: Mapping[str, SelectedColumns] = field(default_factory=dict)
    bins: Mapping[str, ColumnBins] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.evaluation_sets and self.evaluation.any():
            object.__setattr__(self, "evaluation_sets", {"eval": self.evaluation})
        if len(self.label) > MOST_ROWS:
            raise DataError(
                f"{len(self.label):,} rows; a training takes at most {MOST_ROWS:,}: draw a sample"
            )
        if self.person is not None:
            parted = [self.evaluation, *self.evaluation_sets.values()]
            parted += [side for fold in self.folds for side in (fold.learning, fold.scored)]
            if any((self.of_people(rows)[self.person] != rows).any() for rows in parted):
                raise DataError(
                    "evaluation: rows of one person are held out, and others of the same are not; "
                    "hold out all rows of a person, or none"
                )

    @property
    def people(self) -> int:
        """How many rows a passive party holds: one for each person."""
        return len(self.label) if self.person is None else int(self.person.max(initial=-1)) + 1

    @property
    def most_rows_of_a_person(self) -> int:
        """The most rows of one person here."""
        return 1 if self.person is None else int(np.bincount(self.person).max())

    def people_of(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Whose each of ``rows`` is."""
        return rows if self.person is None else self.person[rows]

    def of_people(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of whom a row is among ``rows``, bool (rows,): bool (people,)."""
        if self.person is None:
            return rows
        found = np.zeros(self.people, np.bool_)
        found[self.person[rows]] = True
        return found

    @property
    def fold_count(self) -> int:
        """The number of models that grow on the table: at least 1."""
        return max(1, len(self.folds))

    def of_fold(self, fold: Fold) -> Self:
        """The table that trains the model of ``fold``."""
        return replace(
            self,
            evaluation=~fold.learning,
            evaluation_sets={SCORED: fold.scored},
            held_out_ids=(),
            folds=(),
        )

    def check_engine(self, engine: Engine) -> None:
        """Raise `ConfigError` if ``engine`` cannot train on these rows."""
        if self.person is not None and not engine.traits.hides_rows:
            raise ConfigError(
                f"engine {engine.name}: people have several rows, so that one may stand in several "
                "nodes, and this engine shows passive parties who stands in which: take engine = "
                '"lattice"'
            )
        if self.objective is not None and not engine.traits.takes_weights:
            raise ConfigError(
                f"engine {engine.name}: obj may give larger gradients than the engine supports"
            )
        if self.weight is not None and not engine.traits.takes_weights:
            raise ConfigError(
                f"engine {engine.name}: weights make gradients larger than the engine "
                "supports; leave weight out"
            )


@dataclass(frozen=True, slots=True)
class PassiveTable:
    """A passive party's rows, in the common order.

    ``values`` float32 (rows, features), NaN is missing; ``alignment``, ``digest``, ``signs``,
    ``column_groups``, ``category_columns`` and ``bins`` as in :class:`ActiveTable`; ``row_set``:
    the row set for counting answered sums, None if they are not counted. ``people``: a hash of each
    row's id, uint64 (rows,), to be compared with those of earlier sessions, None if they are not;
    ``NOBODY`` for a person whom this party lacks.
    """

    values: NDArray[np.float32]
    features: tuple[str, ...]
    alignment: str = ""
    digest: str = ""
    row_set: RowSet | None = None
    signs: Mapping[str, int] = field(default_factory=dict)
    column_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    category_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    people: NDArray[np.uint64] | None = None
    bins: Mapping[str, ColumnBins] = field(default_factory=dict)

    @property
    def lacks_people(self) -> bool:
        """Whether the party lacks people of the alignment."""
        return self.people is not None and bool((self.people == NOBODY).any())

    @property
    def repeats_people(self) -> bool:
        """Whether the active party has several rows of a person."""
        if self.people is None:
            return False
        held = self.people[self.people != NOBODY]
        return len(np.unique(held)) < len(held)

    def check(
        self, party: str, peer: str, terms: TrainingOpen, saved: Sequence[PassiveTree]
    ) -> None:
        """Raise `Refused` unless ``party`` can train with ``peer`` and continue ``saved``."""
        rows = len(self.values)
        if terms.alignment_name and terms.alignment != self.alignment:
            raise Refused(
                f"alignment {terms.alignment_name!r} of {party} is another one than that of "
                f"{peer}; make it anew with: fedmq align"
            )
        if terms.rows != rows or terms.evaluation.count != rows:
            raise Refused(
                f"the rows do not match: {party} holds {rows}, {peer} {terms.rows}; {_ALIGN}"
            )
        if terms.alignment != self.alignment:
            raise Refused(
                f"the ids do not match: {party} and {peer} hold {rows} rows each, "
                f"but not the same ids; {_ALIGN}"
            )
        if (problem := _too_many_bins(party, self.bins, terms.max_bin)) is not None:
            raise Refused(problem)
        for tree in saved:
            if tree.records.feature_names != self.features:
                raise Refused(f"the columns of {party} have changed since the session began")
            if tree.table and tree.table != self.digest:
                raise Refused(
                    f"the table of {party} has other values than when the session began, so "
                    "the session has ended; train anew with: fedmq train"
                )


@computation("BinTable")
def bin_table(
    values: NDArray[np.float32],
    training: NDArray[np.bool_],
    max_bin: int,
    category_columns: Sequence[Sequence[int]] = (),
    by_sets: int | None = None,
    given: Mapping[int, ColumnBins] = MappingProxyType({}),
) -> BinMatrix:
    """Cuts over the training rows of ``values`` (rows, features), and all rows as bins.

    ``category_columns``: the features of columns of categories; sets split a column in which
    ``by_sets`` categories occur; None: no column. ``given``: as in `Cuts.of`.
    """
    cuts = Cuts.of(masked(values, training), max_bin, given)
    return BinMatrix.of(values, cuts.by_sets(category_columns, by_sets))


def category_places(table: ActiveTable | PassiveTable) -> Mapping[str, tuple[int, ...]]:
    """The feature indices of each column of categories, ascending."""
    places = {name: place for place, name in enumerate(table.features)}
    columns = {
        column: tuple(sorted(places[name] for name in names if name in places))
        for column, names in table.category_columns.items()
    }
    return {column: held for column, held in columns.items() if held}


def binned_places(table: ActiveTable | PassiveTable) -> Mapping[int, ColumnBins]:
    """What the owner says of its features' bins, by their indices, as `Cuts.of` takes it."""
    return {
        place: table.bins[name] for place, name in enumerate(table.features) if name in table.bins
    }


def _too_many_bins(party: str, bins: Mapping[str, ColumnBins], max_bin: int) -> str | None:
    """Why ``party`` cannot cut its columns as given; it names no column, for others read it."""
    most = max((len(of) + 1 for of in bins.values() if isinstance(of, tuple)), default=0)
    if most <= max_bin:
        return None
    return (
        f"{party} has given a column {most} bins (bins in its [data]), and max_bin = {max_bin}: "
        f"train with max_bin = {most} or more"
    )


def columns_by_sets(table: ActiveTable | PassiveTable, cuts: Cuts) -> dict[str, tuple[int, ...]]:
    """The columns that ``cuts`` of ``table`` split by sets, in the form of a `LookupTable`."""
    chosen = {}
    for column, held in category_places(table).items():
        if held in cuts.category_columns:
            occurring = cuts.categories(held)
            chosen[column] = (*occurring, *sorted(set(held) - set(occurring)))
    return chosen


ALL_COLUMNS = "*"


class ColumnConstraints:
    """The constraints of a training of ``party`` with ``peers``, over its own ``table``.

    Raises:
        ConfigError: a column does not exist, or ``engine`` cannot keep a constraint.
    """

    def __init__(
        self,
        party: str,
        peers: Sequence[str],
        table: ActiveTable,
        params: TrainParams,
        engine: Engine,
    ) -> None:
        self._party = party
        self._table = table
        self._asked: dict[str, dict[str, int]] = {name: {} for name in (party, *peers)}
        for name, sign in params.monotone_constraints.items():
            owner, column = self._owner(name, "monotone_constraints")
            if sign:
                self._asked[owner][column] = sign
        self._together = self._parted(params.interaction_constraints)
        self.signs = _signs(party, table.features, table.signs, self._asked[party])
        """The signs of the own columns: int8 (columns,)."""
        self.interactions = _interactions(party, table, self._together[party])
        """The interaction constraints of the own columns, as bits: uint64 (columns,)."""
        if params.max_cat_to_onehot is not None:
            _check_categories(party, table, self.signs, self.interactions)
        if self.signs.any() and not engine.keeps_constraints:
            raise ConfigError(f"engine {engine.name} keeps no monotone constraint of {party}")

    def hold(self, signed: Sequence[str]) -> bool:
        """Whether some column is under a monotone constraint, here or at ``signed`` peers."""
        return bool(signed) or bool(self.signs.any())

    def opening(self, peer: str, terms: TrainingOpen) -> TrainingOpen:
        """The ``terms`` for ``peer``, with nothing about the columns of other parties."""
        asked = {
            "signs": self._asked[peer],
            "together": self._together[peer],
            "selected": self._table.selected.get(peer),
        }
        return terms.model_copy(update=asked)

    def _parted(
        self, constraints: Sequence[Sequence[str | int]]
    ) -> dict[str, tuple[tuple[str, ...], ...]]:
        """The names in each interaction constraint, by party."""
        named = [
            [self._owner(name, "interaction_constraints") for name in constraint]
            for constraint in constraints
        ]
        return {
            party: tuple(
                tuple(name for owner, name in constraint if owner == party) for constraint in named
            )
            for party in self._asked
        }

    def _owner(self, name: str | int, parameter: str) -> tuple[str, str]:
        own = self._table.features
        if isinstance(name, int):
            if not 0 <= name < len(own):
                raise ConfigError(
                    f"{parameter}: {self._party} has {len(own)} columns, and no number {name}; "
                    "write another party's column as party.column"
                )
            return self._party, own[name]
        if name in own or (parameter == "interaction_constraints" and self._is_group(name)):
            return self._party, name
        party, _, column = name.partition(".")
        if column and party in self._asked and party != self._party:
            return party, column
        raise ConfigError(
            f"{parameter}: {self._party} has no column {name!r}; write another party's column "
            "as party.column"
        )

    def _is_group(self, name: str) -> bool:
        """Whether ``name`` is a group of own columns, or an own column of categories."""
        categories = any(feature.startswith(f"{name}=") for feature in self._table.features)
        return categories or name in (ALL_COLUMNS, *self._table.column_groups)


def _signs(
    party: str, columns: Sequence[str], own: Mapping[str, int], asked: Mapping[str, int]
) -> NDArray[np.int8]:
    """The sign of each of the ``columns`` of ``party``: int8 (columns,).

    ``own``: the signs of its file. ``asked``: the signs of the training's parameters.

    Raises:
        ConfigError: a column does not exist, or has two signs.
    """
    signs = np.zeros(len(columns), np.int8)
    for where, named in (("monotone", own), ("monotone_constraints", asked)):
        for column, sign in named.items():
            place = _place(party, columns, column, where)
            if signs[place] == -sign:
                raise ConfigError(
                    f"{where}: column {column!r} has sign {sign}, and {-sign} in the file of "
                    f"{party}"
                )
            signs[place] = sign
    return signs


def _interactions(
    party: str, table: ActiveTable | PassiveTable, constraints: Sequence[Sequence[str]]
) -> NDArray[np.uint64]:
    """The ``constraints`` that hold each column of ``party``, as bits: uint64 (columns,).

    Raises:
        ConfigError: a column or group does not exist, or a column has the name of a group.
    """
    columns = table.features
    groups: dict[str, Sequence[str]] = {ALL_COLUMNS: columns, **table.column_groups}
    bits = np.zeros(len(columns), np.uint64)
    for number, names in enumerate(constraints):
        for name in names:
            if name in groups and name in columns:
                raise ConfigError(f"column_groups: {party} has a column {name!r}, too")
            where = "column_groups" if name in groups else "interaction_constraints"
            for column in groups.get(name, (name,)):
                bits[_places(party, columns, column, where)] |= np.uint64(1 << number)
    return bits


def _check_categories(
    party: str,
    table: ActiveTable | PassiveTable,
    signs: NDArray[np.int8],
    interactions: NDArray[np.uint64],
) -> None:
    """Raise `ConfigError` if constraints separate categories of a column split by sets."""
    for column, held in category_places(table).items():
        places = list(held)
        if signs[places].any():
            raise ConfigError(
                f"monotone_constraints: {column!r} of {party} holds categories, which "
                "max_cat_to_onehot splits by sets: a set neither rises nor falls"
            )
        if len(np.unique(interactions[places])) > 1:
            raise ConfigError(
                f"interaction_constraints: {column!r} of {party} holds categories, which "
                "max_cat_to_onehot splits by sets: name the column, not some of them"
            )


def _places(party: str, columns: Sequence[str], column: str, where: str) -> list[int]:
    """The index of ``column``; for a column of categories, the index of each category."""
    categories = [
        place for place, feature in enumerate(columns) if feature.startswith(f"{column}=")
    ]
    if column not in columns and categories:
        return categories
    return [_place(party, columns, column, where)]


def _place(party: str, columns: Sequence[str], column: str, where: str) -> int:
    if column not in columns:
        raise ConfigError(f"{where}: {party} trains with no column {column!r}")
    return columns.index(column)


@dataclass(frozen=True, slots=True, eq=False)
class KeptConstraints:
    """A passive party's constraints: ``signs`` int8 and ``interactions`` uint64 (columns,).

    ``count``: the number of the training's interaction constraints.
    """

    signs: NDArray[np.int8]
    interactions: NDArray[np.uint64]
    count: int


def kept_constraints(
    party: str, table: PassiveTable, terms: TrainingOpen, engine: Engine
) -> KeptConstraints:
    """The constraints that ``party`` keeps on its columns; Refused if it cannot keep them."""
    try:
        signs = _signs(party, table.features, table.signs, terms.signs)
        interactions = _interactions(party, table, terms.together)
        if terms.max_cat_to_onehot:
            _check_categories(party, table, signs, interactions)
    except ConfigError as error:
        raise Refused(str(error)) from None
    if (signs.any() or terms.together) and not engine.keeps_constraints:
        kind = "a monotone constraint" if signs.any() else "interaction constraints"
        raise Refused(f"{party} has columns under {kind}, which engine {engine.name!r} cannot keep")
    return KeptConstraints(signs, interactions, len(terms.together))


@dataclass(frozen=True, slots=True)
class MainModel:
    """Of which ``model`` a training makes a fallback: trained in ``session`` with ``passive``."""

    model: str
    session: str
    passive: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrainingTerms:
    """The terms of a training of ``party`` with ``peers``, from its first message to its last.

    The machine's constructor makes them once, so that a node or a message needs one attribute.
    """

    model: str
    party: str
    peers: tuple[str, ...]
    table: ActiveTable
    params: TrainParams
    engine: Engine
    constraints: ColumnConstraints
    parties: tuple[str, ...]
    """All parties, in the order that decides ties; the active party is number 0."""
    owners: Mapping[str, int]
    """The numbers of all parties in that order."""
    trees: int
    """The largest number of trees, of all models together."""
    trees_alone: int
    """The number of first trees that are the active party's alone."""
    hides_rows: bool
    hides_sums: bool
    first_order: bool
    """Whether g alone scores candidates."""
    folds: int
    """The number of models; each grows a tree in turn."""
    category_sets: bool
    """Whether peers that agree split columns of categories by sets."""
    decoys: bool
    """Whether decoys hide whose columns split from observers that count messages."""
    fallbacks: bool = False
    """Whether trainings without each of the peers follow."""
    fallback_of: MainModel | None = None
    """The model that lacks some of these peers, if this is one of those trainings."""
    refreshes: bool = False
    """Whether no tree grows: leaves of an earlier model are weighed anew."""

    @classmethod
    def of(
        cls,
        model: str,
        party: str,
        peers: Sequence[str],
        table: ActiveTable,
        params: TrainParams,
        engine: Engine,
        *,
        category_sets: bool,
        decoys: bool,
        fallbacks: bool = False,
        fallback_of: MainModel | None = None,
        refreshes: bool = False,
    ) -> Self:
        """The terms of ``model``. Raises `ConfigError` if they do not fit together."""
        engine.check(params)
        table.check_engine(engine)
        if (problem := _too_many_bins(party, table.bins, params.max_bin)) is not None:
            raise ConfigError(problem)
        parties = (party, *peers)
        return cls(
            model,
            party,
            tuple(peers),
            table,
            params,
            engine,
            ColumnConstraints(party, peers, table, params, engine),
            parties,
            {name: number for number, name in enumerate(parties)},
            0 if refreshes else params.total_trees * table.fold_count,
            params.trees_alone * table.fold_count,
            engine.traits.hides_rows,
            engine.hides_sums,
            engine.first_order,
            table.fold_count,
            category_sets and params.max_cat_to_onehot is not None,
            decoys,
            fallbacks,
            fallback_of,
            refreshes,
        )

    @property
    def value_bits(self) -> int:
        """No sum of g or h of a person's rows exceeds two to this power, in its fixed point."""
        return most_value_bits(self.params) + (self.table.most_rows_of_a_person - 1).bit_length()

    def opening(self, public: Values) -> TrainingOpen:
        """The offer to every passive party; ``public``: the engine's public values."""
        params, table, peers = self.params, self.table, self.peers
        by_sets = params.max_cat_to_onehot if self.category_sets else None
        return TrainingOpen(
            model=self.model,
            rows=table.people,
            alignment=table.alignment,
            alignment_name=table.alignment_name,
            evaluation=Bitmap.of(table.of_people(table.evaluation)),
            engine=self.engine.name,
            sums="hidden" if self.hides_sums else "shown",
            chain=self._chain(peers),
            public=pack_payload(public),
            trees=self.trees,
            active_only_trees=self.trees_alone,
            max_depth=params.depth_limit,
            max_leaves=params.leaf_limit,
            max_bin=params.max_bin,
            colsample_bytree=params.colsample_bytree,
            seed=params.seed,
            value_bits=self.value_bits,
            outputs=params.vector_outputs,
            colsample_bylevel=params.colsample_bylevel,
            colsample_bynode=params.colsample_bynode,
            folds=table.fold_count,
            max_cat_to_onehot=by_sets or 0,
            decoys=self.decoys,
            sampled=params.sampled,
            narrow=self.engine.traits.narrow,
        )

    def _chain(self, peers: tuple[str, ...]) -> tuple[str, ...]:
        return peers if self.hides_sums and len(peers) > 1 else ()

    def about_fallbacks(self, peer: str, opening: TrainingOpen) -> TrainingOpen:
        """The ``opening`` for ``peer``, which says what is trained once more, or of what."""
        main = self.fallback_of
        passive = self.peers if main is None else main.passive
        fallbacks = tuple(other for other in passive if other != peer)
        if main is None:
            told = fallbacks if self.fallbacks else ()
            return opening.model_copy(update={"fallbacks": told})
        (without,) = (other for other in passive if other not in self.peers)
        of_main = MainTraining(
            session=main.session,
            model=main.model,
            chain=self._chain(passive),
            fallbacks=fallbacks,
            without=without,
        )
        return opening.model_copy(update={"fallback_of": of_main})


REGROWN = 1
"""The most trees that two parties are apart: no crash needs more trees to grow again."""


class Acceptances:
    """The acceptances of ``peers``, with the pieces of their engines' setup."""

    def __init__(self, peers: Sequence[str]) -> None:
        self._peers = tuple(peers)
        self.of: dict[str, SessionAccept] = {}
        """The acceptance of each peer; all of them once `is_complete`."""
        self._limits: dict[str, SizeLimit] = {}
        self._bytes: Counter[str] = Counter()
        self._pieces: dict[str, list[Values]] = {}
        self._ready: set[str] = set()

    def add(
        self, peer: str, body: SessionAccept, largest_setup: Callable[[int], SizeLimit]
    ) -> None:
        """Add the acceptance of ``peer``; ``largest_setup``: the limit for its candidates.

        Raises:
            ProtocolError: the peer has accepted before.
            Inconsistent: it announces a longer setup than its candidates take.
        """
        if peer in self.of:
            raise ProtocolError("the session was accepted twice")
        try:
            self._limits[peer] = largest_setup(body.candidates)
        except MessageError as error:
            raise Inconsistent(peer, str(error), {"candidates": body.candidates}) from None
        self._check_setup(peer, SizeLimit(body.setup_pieces, 0))
        self.of[peer] = body
        self._pieces[peer] = []

    def add_setup(self, peer: str, payload: Payload, signature: bytes = b"") -> None:
        """Add a piece of the setup of ``peer``; the engine finds a ``signature`` beside it.

        Raises:
            ProtocolError: the piece was not announced.
            Inconsistent: all pieces together are longer than its candidates take.
        """
        pieces = self._pieces.get(peer)
        if pieces is None or len(pieces) >= self.of[peer].setup_pieces:
            raise ProtocolError("an unannounced piece of an engine's setup")
        self._bytes[peer] += payload_bytes(payload)
        self._check_setup(peer, SizeLimit(self.of[peer].setup_pieces, self._bytes[peer]))
        signed = {"signature": signature} if signature else {}
        pieces.append({**unpack_payload(payload), **signed})

    def _check_setup(self, peer: str, sent: SizeLimit) -> None:
        limit = self._limits[peer]
        if sent.pieces > limit.pieces or sent.bytes > limit.bytes:
            raise Inconsistent(
                peer,
                f"a setup of {sent.pieces} pieces and {sent.bytes:,} bytes or more; its "
                f"candidates take {limit.pieces} and {limit.bytes:,}",
                {"pieces": sent.pieces, "bytes": sent.bytes},
            )

    def setup(self, peer: str) -> Sequence[Values] | None:
        """The setup of ``peer``; None until it is complete."""
        pieces = self._pieces[peer]
        return pieces if len(pieces) == self.of[peer].setup_pieces else None

    def mark_ready(self, peer: str) -> None:
        """Note that the engine has taken the setup of ``peer``."""
        self._ready.add(peer)

    @property
    def is_complete(self) -> bool:
        """Whether every peer is ready."""
        return len(self._ready) == len(self._peers)

    def common_trees(self, own: int, alone: int) -> int:
        """The number of trees that all parties hold: the active party holds ``own``.

        It grew the first ``alone`` of them by itself.
        """
        return min([own, *(max(body.trees, alone) for body in self.of.values())])

    def check_no_state_is_old(self, active: str, own: int, alone: int) -> None:
        """OldState if a party holds fewer trees than any crash can leave it, as an old backup does.

        The ``active`` party holds ``own`` trees, of which it grew the first ``alone`` by itself.
        """
        held = {active: own} | {peer: body.trees for peer, body in self.of.items()}
        newest = max(held, key=held.__getitem__)
        needless = dict.fromkeys(self.of, alone)  # trees that a peer need not have
        old = [
            party
            for party, trees in held.items()
            if held[newest] - max(trees, needless.get(party, 0)) > REGROWN
        ]
        if old:
            stories = (f"{party} has {held[party]} saved trees" for party in old)
            raise OldState(
                f"{' and '.join(stories)} where {newest} has {held[newest]}, which no crash "
                f"explains: the state of {' and '.join(old)} is old, as if put back from a backup; "
                "train anew"
            )

    @property
    def signed(self) -> tuple[str, ...]:
        """The peers that show signs with their candidates."""
        return tuple(peer for peer in self._peers if self.of[peer].signed)

    @property
    def by_sets(self) -> tuple[str, ...]:
        """The peers with columns that are split by sets of categories."""
        return tuple(peer for peer in self._peers if self.of[peer].by_sets)

    @property
    def withheld(self) -> dict[str, Withheld]:
        """The withheld sums by peer, without peers that show all."""
        held = {
            peer: Withheld(smallest_node=body.smallest_node, smallest_cell=body.smallest_cell)
            for peer in self._peers
            if (body := self.of.get(peer)) is not None
        }
        return {peer: withheld for peer, withheld in held.items() if withheld != WITHHELD_NOTHING}


def terms_digest(terms: TrainingOpen) -> str:
    """The digest of ``terms``: 16 bytes of BLAKE2b (RFC 7693), in hex.

    It excludes keys, which an engine makes anew for each attempt, and in how many bytes gradients
    travel, which a newer release may change under a training.
    """
    signs = dict(sorted(terms.signs.items()))
    lasting = {"public": pack_payload({}), "signs": signs, "narrow": False}
    packed = pack_body(terms.model_copy(update=lasting))
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def opening_of_main(terms: TrainingOpen) -> TrainingOpen:
    """How the model was opened of which ``terms`` train a fallback: on the same terms.

    Raises Refused if ``terms`` are no fallback's of that model.
    """
    main = terms.fallback_of
    if (
        main is None
        or main.without not in main.fallbacks
        or terms.model != fallback_name(main.model, main.without)
    ):
        raise Refused(f"{terms.model} is not named as a fallback model")
    return terms.model_copy(
        update={
            "model": main.model,
            "chain": main.chain,
            "fallbacks": main.fallbacks,
            "fallback_of": None,
        }
    )


def _check_walked(
    key: str, earlier: ActiveShare, parties: Sequence[str], table: ActiveTable
) -> None:
    """Raise ConfigError, which begins with ``key``, unless rows can walk down ``earlier``."""
    model = earlier.model_id
    if table.person is not None:
        raise ConfigError(
            f"{key}: rows of one person would be asked about on several ways through a tree; "
            "train anew"
        )
    if table.folds:
        raise ConfigError(f"{key}: a cross-validation continues no model, as xgb.cv")
    away = [party for party in earlier.parties if party not in parties]
    if away:
        raise ConfigError(
            f"{key}: {', '.join(away)} holds a share of model {model!r}, and takes no part"
        )
    if earlier.lookup_table.feature_names != table.features:
        raise ConfigError(f"{key}: model {model!r} was trained on other columns of {parties[0]}")


def continuing(
    earlier: ActiveShare, params: TrainParams, parties: Sequence[str], table: ActiveTable
) -> TrainParams:
    """``params`` that continue ``earlier``; ``parties`` train on the active party's ``table``.

    Raises:
        ConfigError: the trees of both cannot make one model.
    """
    model = earlier.model_id
    _check_walked("continue_from", earlier, parties, table)
    if "dart" in (earlier.params.booster, params.booster):
        raise ConfigError(
            "continue_from: dart weighs trees anew, so no model of dart can be continued"
        )
    own = OBJECTIVES[params.objective].own_parameters
    same = ("objective", "num_target", "num_parallel_tree", "multi_strategy", *own)
    for name in same:
        before, now = getattr(earlier.params, name), getattr(params, name)
        if before != now:
            raise ConfigError(f"continue_from: {name} = {now}, model {model!r} has {before}")
    if params.base_score not in (None, earlier.base_score):
        raise ConfigError(
            f"continue_from: base_score = {params.base_score}, model {model!r} has "
            f"{earlier.base_score}; leave it out"
        )
    if params.active_only_trees:
        raise ConfigError(
            "continue_from: active_only_trees are the first trees of a model; leave it out"
        )
    begun = {
        "base_score": earlier.base_score,
        # All trees of a model follow the arithmetic of one XGBoost, as its share says.
        "xgboost_arithmetic": earlier.params.xgboost_arithmetic,
    }
    return params.model_copy(update=begun)


_OF_SPLITS = (
    "monotone_constraints",
    "interaction_constraints",
    "max_cat_to_onehot",
    "subsample",
    "colsample_bytree",
    "colsample_bylevel",
    "colsample_bynode",
    "goss",
    "gradient_bits",
    "active_only_trees",
    "early_stopping_rounds",
)
"""What peers need not hear of, and what draws no rows: no node is split."""


def refreshing(earlier: ActiveShare, parties: Sequence[str], table: ActiveTable) -> TrainParams:
    """The parameters on which ``parties`` open a training that refreshes ``earlier`` on ``table``.

    Raises:
        ConfigError: the model is not refreshed, or not by these parties and rows.
    """
    _check_walked("refresh", earlier, parties, table)
    check_refreshable(earlier)
    strangers = [party for party in parties if party not in earlier.parties]
    if strangers:
        raise ConfigError(
            f"refresh: {', '.join(strangers)} holds no share of model {earlier.model_id!r}; "
            f"parties are {', '.join(earlier.parties[1:])}, as when it is left out"
        )
    if not (~table.evaluation).any():
        raise ConfigError("refresh: all rows are held out for evaluation, none is left to learn of")
    defaults = TrainParams()
    return earlier.params.model_copy(update={name: getattr(defaults, name) for name in _OF_SPLITS})
