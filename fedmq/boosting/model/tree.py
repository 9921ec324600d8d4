"""A model's trees, and the lookup tables in which their splits are records.

A tree holds (owner, record) at a split; feature, threshold and default direction are in the owner's
lookup table alone (SecureBoost, arXiv 1901.08755). In the order of the file: how vectors stand in
documents, the lookup table of an owner, what an owner shows of its columns, a tree, the tree that
grows, and all trees of a model at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from fedmq.errors import DataError

if TYPE_CHECKING:
    from fedmq.boosting.params import TrainParams

__all__ = [
    "ACTIVE_PARTY",
    "LEAF",
    "Agreed",
    "Bools",
    "Directions",
    "DisclosedColumns",
    "Float32s",
    "Forest",
    "Int16s",
    "Int32s",
    "Leaves",
    "LookupTable",
    "Tree",
    "TreeArrays",
    "text_of",
    "walk",
]

_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}
_ITEMS: dict[str, tuple[type, ...]] = {"i": (int,), "f": (int, float), "b": (bool,)}


def _vector(value: Any, dtype: DTypeLike) -> NDArray[Any]:
    wanted = np.dtype(dtype)
    if isinstance(value, np.ndarray):
        if value.ndim != 1 or not np.can_cast(value.dtype, wanted, "same_kind"):
            raise ValueError(f"expected a vector of {wanted}, got {value.dtype} {value.shape}")
        if value.dtype == wanted:
            vector = value.copy()
            vector.flags.writeable = False
            return vector
        value = value.tolist()
    items = list(value) if isinstance(value, list | tuple) else [None]
    if wanted.kind == "f":
        items = [_INFINITIES.get(item, item) if isinstance(item, str) else item for item in items]
    if any(type(item) not in _ITEMS[wanted.kind] for item in items):
        raise ValueError(f"expected a list of {wanted}")
    try:
        with np.errstate(over="raise"):
            vector = np.array(items, dtype=wanted)
    except (OverflowError, FloatingPointError):
        raise ValueError(f"a number is out of the range of {wanted}") from None
    vector.flags.writeable = False
    return vector


def _floats_to_json(vector: NDArray[np.float32]) -> list[float | str]:
    if np.isfinite(vector).all():
        return list(vector.tolist())
    names = {number: name for name, number in _INFINITIES.items()}
    return [names.get(item, item) for item in vector.tolist()]


def _leaves(value: Any) -> NDArray[np.float32]:
    rows = value.tolist() if isinstance(value, np.ndarray) and value.ndim == 2 else value
    if not isinstance(rows, list) or not rows or not isinstance(rows[0], list | tuple):
        return _vector(value, np.float32)
    if any(not isinstance(row, list | tuple) or len(row) != len(rows[0]) for row in rows):
        raise ValueError("expected rows of one length")
    flat = _vector([item for row in rows for item in row], np.float32)
    return flat.reshape(len(rows), -1)


def _leaves_to_json(leaves: NDArray[np.float32]) -> list[Any]:
    if leaves.ndim == 1:
        return list(_floats_to_json(leaves))
    return [_floats_to_json(row) for row in leaves]


def _to_json(vector: NDArray[Any]) -> list[Any]:
    return list(vector.tolist())


Int16s = Annotated[
    NDArray[np.int16],
    PlainValidator(lambda value: _vector(value, np.int16)),
    PlainSerializer(_to_json, when_used="json"),
]
"""int16 vector; validation refuses other kinds and numbers out of range."""

Int32s = Annotated[
    NDArray[np.int32],
    PlainValidator(lambda value: _vector(value, np.int32)),
    PlainSerializer(_to_json, when_used="json"),
]
"""int32 vector; validation refuses other kinds and numbers out of range."""

Float32s = Annotated[
    NDArray[np.float32],
    PlainValidator(lambda value: _vector(value, np.float32)),
    PlainSerializer(_floats_to_json, when_used="json"),
]
"""float32 vector, possibly with infinities, exact through JSON."""

Leaves = Annotated[
    NDArray[np.float32],
    PlainValidator(_leaves),
    PlainSerializer(_leaves_to_json, when_used="json"),
]
"""float32 (nodes,), or (nodes, outputs) as a list of rows; as :data:`Float32s`."""

Bools = Annotated[
    NDArray[np.bool_],
    PlainValidator(lambda value: _vector(value, np.bool_)),
    PlainSerializer(_to_json, when_used="json"),
]
"""bool vector."""


_Features = tuple[Annotated[int, Field(ge=0)], ...]


class LookupTable(BaseModel):
    """An owner's splits; a record id is a place in these vectors.

    ``x <= threshold`` goes left, NaN where ``default_left`` says. ``feature`` indexes
    ``feature_names``. A threshold of +inf sends every present value left, -inf none.
    ``category_sets``: by record, the features of the set of categories that go right; empty for
    other records, and empty if no record splits by a set. ``category_columns``: by name, the
    features of each column that may be split by sets, first those whose category some training row
    has. A document without such columns has neither.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    feature_names: tuple[str, ...]
    feature: Int32s
    threshold: Float32s
    default_left: Bools
    category_sets: tuple[_Features, ...] = ()
    category_columns: Mapping[str, _Features] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not len(self.feature) == len(self.threshold) == len(self.default_left):
            raise ValueError("vectors of a lookup table differ in length")
        if self.category_sets and len(self.category_sets) != len(self):
            raise ValueError("sets of categories and records differ in number")
        if ((self.feature < 0) | (self.feature >= len(self.feature_names))).any():
            raise ValueError("a record names no feature")
        named = (*self.category_sets, *self.category_columns.values())
        if any(feature >= len(self.feature_names) for features in named for feature in features):
            raise ValueError("a set of categories names no feature")
        if np.isnan(self.threshold).any():
            raise ValueError("a threshold is not a number")
        return self

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Tables without sets of categories keep the format of earlier versions."""
        document: dict[str, Any] = handler(self)
        for name in ("category_sets", "category_columns"):
            if not document.get(name):
                document.pop(name, None)
        return document

    @classmethod
    def empty(cls, feature_names: tuple[str, ...]) -> LookupTable:
        """A table without records."""
        return cls.model_validate(
            {"feature_names": feature_names, "feature": [], "threshold": [], "default_left": []}
        )

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        """The features of each column by its name: one, or those of all its categories."""
        first = {min(features): name for name, features in self.category_columns.items()}
        held = {feature for features in self.category_columns.values() for feature in features}
        columns: dict[str, tuple[int, ...]] = {}
        for place, name in enumerate(self.feature_names):
            if place in first:
                columns[first[place]] = self.category_columns[first[place]]
            elif place not in held:
                columns[name] = (place,)
        return columns

    @property
    def column_of(self) -> NDArray[np.int32]:
        """The place of each feature's column among ``columns``; int32 (features,)."""
        places = np.empty(len(self.feature_names), np.int32)
        for place, features in enumerate(self.columns.values()):
            places[list(features)] = place
        return places

    def appended(
        self,
        feature: ArrayLike,
        threshold: ArrayLike,
        default_left: ArrayLike,
        category_sets: Sequence[tuple[int, ...]] = (),
    ) -> LookupTable:
        """The table with further records, whose ids start at ``len(self)``; scalars or (n,).

        ``category_sets``: one for each further record, or none at all.
        """
        features = np.append(self.feature, np.asarray(feature, np.int32))
        sets = self.category_sets
        if sets or any(category_sets):
            none: tuple[int, ...] = ()
            later = category_sets or (none,) * (len(features) - len(self))
            sets = (*(sets or (none,) * len(self)), *later)
        return LookupTable(
            feature_names=self.feature_names,
            feature=features,
            threshold=np.append(self.threshold, np.asarray(threshold, np.float32)),
            default_left=np.append(self.default_left, np.asarray(default_left, np.bool_)),
            category_sets=sets,
            category_columns=self.category_columns,
        )

    def followed_by(self, later: LookupTable) -> LookupTable:
        """The table with the records of ``later``, of the same features, after its own."""
        table = self.appended(
            later.feature, later.threshold, later.default_left, later.category_sets
        )
        columns = {**later.category_columns, **self.category_columns}
        return table.model_copy(update={"category_columns": columns})

    def since(self, start: int) -> LookupTable:
        """The records from ``start`` on, as a table of their own."""
        sets = self.category_sets[start:]
        return LookupTable(
            feature_names=self.feature_names,
            feature=self.feature[start:],
            threshold=self.threshold[start:],
            default_left=self.default_left[start:],
            category_sets=sets if any(sets) else (),
            category_columns=self.category_columns,
        )

    def directions(
        self, X: NDArray[np.float32], rows: NDArray[np.integer], records: NDArray[np.integer]
    ) -> NDArray[np.bool_]:
        """Whether ``X[rows[i]]`` goes left at ``records[i]``: bool, of the length of ``rows``.

        ``X`` is float32 (rows, features).

        Raises:
            DataError: the table lacks a record; the text names it.
        """
        foreign = (records < 0) | (records >= len(self))
        if foreign.any():
            raise DataError(
                f"record {int(records[foreign][0])} is not among the {len(self)} records of the "
                "lookup table; the parties hold shares of different models"
            )
        values = X[rows, self.feature[records]]
        left: NDArray[np.bool_] = values <= self.threshold[records]
        if self.category_sets:
            for record in np.unique(records).tolist():
                if self.category_sets[record]:
                    here = records == record
                    left[here] = self.directions_at(X, rows[here], record)
        return np.where(np.isnan(values), self.default_left[records], left)

    def directions_of_all(
        self, X: NDArray[np.float32], records: NDArray[np.integer]
    ) -> NDArray[np.bool_]:
        """Whether each row of ``X`` goes left at each of ``records``: bool (rows, records).

        Raises:
            DataError: the table lacks a record; the text names it.
        """
        rows = np.repeat(np.arange(len(X)), len(records))
        left = self.directions(X, rows, np.tile(records, len(X)))
        return left.reshape(len(X), len(records))

    def directions_at(
        self, X: NDArray[np.float32], rows: NDArray[np.integer], record: int
    ) -> NDArray[np.bool_]:
        """Whether ``X[rows[i]]`` goes left at the one ``record``, which the table has."""
        values = X[rows, self.feature[record]]
        left: NDArray[np.bool_] = values <= self.threshold[record]
        if self.category_sets and (right := self.category_sets[record]):
            left = ~np.isnan(values) & ~(X[rows[:, np.newaxis], list(right)] > 0).any(axis=1)
        if self.default_left[record]:
            left |= np.isnan(values)
        return left


class DisclosedColumns(BaseModel):
    """The columns of records that an owner discloses, by number.

    ``column`` int32 (records,): the number of each record's column, in the order of first use.

    ``texts`` by column: the reason that its owner publishes, or "".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: Int32s
    texts: tuple[str, ...]

    @model_validator(mode="after")
    def _numbered_by_first_use(self) -> Self:
        first = np.unique(self.column, return_index=True)
        in_order = np.array_equal(first[0], np.arange(len(self.texts)))
        if not in_order or (np.diff(first[1]) < 0).any():
            raise ValueError("columns are not numbered from 0 in the order of their first use")
        return self

    @classmethod
    def of(cls, table: LookupTable, records: int, texts: Mapping[str, str]) -> Self:
        """The columns of the first ``records`` of ``table``; ``texts`` by name of a column."""
        columns, column_of = tuple(table.columns), table.column_of
        used, first, inverse = np.unique(
            column_of[table.feature[:records]], return_index=True, return_inverse=True
        )
        number = np.empty(len(used), np.int32)
        number[np.argsort(first)] = np.arange(len(used), dtype=np.int32)
        names = [columns[column] for column in used[np.argsort(first)].tolist()]
        return cls(
            column=number[inverse.reshape(-1)],
            texts=tuple(text_of(name, texts) for name in names),
        )

    def named(self, names: DisclosedColumns) -> Self:
        """The same with the texts of ``names``, of the same records, where there is none."""
        if not np.array_equal(names.column[: len(self.column)], self.column):
            return self
        texts = zip(self.texts, names.texts, strict=False)  # of more records than these
        return self.model_copy(update={"texts": tuple(text or name for text, name in texts)})


class Agreed(BaseModel):
    """The owners' agreement at a model's activation.

    ``columns`` of the owners that disclose them. Owners not named here are one player each. While
    any owner is ``refusing``, no score has reasons.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: Mapping[str, DisclosedColumns] = {}
    refusing: tuple[str, ...] = ()

    def named(self, shared: Mapping[str, DisclosedColumns]) -> Self:
        """The same with names that an owner has ``shared``, where it publishes no reason."""
        columns = {
            party: own.named(shared[party]) if party in shared else own
            for party, own in self.columns.items()
        }
        return self.model_copy(update={"columns": columns})


def text_of(feature: str, texts: Mapping[str, str]) -> str:
    """The published text of ``feature``, or of the column COLUMN that it was made from, or "".

    A category is ``COLUMN=CATEGORY``, a part of a date ``COLUMN.PART``.
    """
    made_from = [name for name in texts if feature.startswith((f"{name}=", f"{name}."))]
    return texts.get(feature) or texts.get(max(made_from, key=len, default=""), "")


LEAF = -1
"""Owner of a leaf, and child of one."""

ACTIVE_PARTY = 0
"""The active party's index among the owners: it comes first, also among ties."""

Directions = Callable[[int, NDArray[np.intp], NDArray[np.int32]], NDArray[np.bool_]]
"""(owner, rows, records) -> which of the rows go left at these records of the owner."""


_Node = tuple[int, int, int, int, float | list[float], float, float]


class Tree(BaseModel):
    """Nodes in order of insertion, the root first; vectors of one length.

    ``owner`` is the owner's index (``LEAF`` for a leaf), ``record`` the split's place in the
    owner's lookup table, ``left`` and ``right`` are nodes, ``weight`` is what a leaf adds to the
    margin, or to each margin of a row: then it is (nodes, outputs). ``gain`` and ``cover`` are
    XGBoost's: loss reduction, and sum of hessians.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    owner: Int16s
    record: Int32s
    left: Int32s
    right: Int32s
    weight: Leaves
    gain: Float32s
    cover: Float32s

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        lengths = {len(getattr(self, name)) for name in type(self).model_fields}
        if len(lengths) != 1 or not len(self):
            raise ValueError("a tree needs vectors of one length, and at least a root")
        split = self.owner != LEAF
        nodes = np.flatnonzero(split)
        children = np.concatenate((self.left[split], self.right[split]))
        if not np.array_equal(np.sort(children), np.arange(1, len(self))):
            raise ValueError("each node but the root must be the child of one other")
        if (self.left[split] <= nodes).any() or (self.right[split] <= nodes).any():
            raise ValueError("a child stands before its parent")
        if (self.owner < LEAF).any() or (self.record[split] < 0).any():
            raise ValueError("negative owner or record")
        return self

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def outputs(self) -> int:
        """Numbers in a leaf."""
        return 1 if self.weight.ndim == 1 else self.weight.shape[1]

    @property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Which nodes are leaves; bool (nodes,)."""
        return np.equal(self.owner, LEAF)

    def heap_numbers(self) -> list[int]:
        """The number of each node in a heap, the root's is 1: that by which sessions name it."""
        numbers = [1] * len(self)
        for node in np.flatnonzero(~self.is_leaf).tolist():  # a parent stands before its children
            numbers[self.left[node]] = 2 * numbers[node]
            numbers[self.right[node]] = 2 * numbers[node] + 1
        return numbers


class TreeArrays:
    """A tree under construction: every node is made a split or a leaf, once.

    A leaf has ``outputs`` numbers.
    """

    def __init__(self, outputs: int = 1) -> None:
        self._nodes: list[_Node | None] = [None]
        self._no_weight = 0.0 if outputs == 1 else [0.0] * outputs

    def split(
        self, node: int, owner: int, record: int, *, gain: float, cover: float
    ) -> tuple[int, int]:
        """Make ``node`` a split; returns its new children (left, right).

        Raises:
            ValueError: the node is a split or a leaf already.
        """
        left, right = len(self._nodes), len(self._nodes) + 1
        self._settle(node, (owner, record, left, right, self._no_weight, float(gain), float(cover)))
        self._nodes += [None, None]
        return left, right

    def leaf(
        self, node: int, weight: float | np.float32 | NDArray[np.float32], *, cover: float
    ) -> None:
        """Make ``node`` a leaf that adds ``weight`` to the margin, or to each.

        Raises:
            ValueError: the node is a split or a leaf already.
        """
        self._settle(node, (LEAF, LEAF, LEAF, LEAF, np.asarray(weight).tolist(), 0.0, float(cover)))

    def finished(self) -> Tree:
        """The tree.

        Raises:
            ValueError: a node is neither split nor leaf.
        """
        nodes = [node for node in self._nodes if node is not None]
        if len(nodes) < len(self._nodes):
            raise ValueError(f"node {self._nodes.index(None)} is neither split nor leaf")
        columns = zip(Tree.model_fields, zip(*nodes, strict=True), strict=True)
        return Tree.model_validate({name: list(column) for name, column in columns})

    def _settle(self, node: int, content: _Node) -> None:
        if self._nodes[node] is not None:
            raise ValueError(f"node {node} is settled already")
        self._nodes[node] = content


def walk(tree: Tree, n_rows: int, directions: Directions) -> NDArray[np.int32]:
    """The leaf in which each row ends: int32 (n_rows,). ``directions`` answers for the owners."""
    nodes = np.zeros(n_rows, dtype=np.int32)
    walking = np.arange(n_rows)
    while len(walking := walking[tree.owner[nodes[walking]] != LEAF]):
        at = nodes[walking]
        for owner in np.unique(tree.owner[at]).tolist():
            asked = tree.owner[at] == owner
            rows, here = walking[asked], at[asked]
            left = directions(owner, rows, tree.record[here])
            nodes[rows] = np.where(left, tree.left[here], tree.right[here])
    return nodes


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The nodes of all trees in one vector each; ``roots`` int32 (trees,).

    ``owner``, ``record``, ``left``, ``right`` and ``weight`` are as in :class:`Tree`, with node
    numbers that count through all trees. ``output`` (trees,): the margin to which a tree adds.
    """

    roots: NDArray[np.int32]
    owner: NDArray[np.int16]
    record: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    weight: NDArray[np.float32]
    output: NDArray[np.intp]

    @classmethod
    def of(cls, trees: Sequence[Tree], params: TrainParams) -> Forest:
        """The trees in their order, as ``params`` have grown them."""
        sizes = np.array([0, *(len(tree) for tree in trees)])
        roots = np.cumsum(sizes)[:-1].astype(np.int32)

        def joined(name: str, dtype: type, shift: bool = False) -> NDArray[Any]:
            columns = [
                getattr(tree, name) + (root if shift else 0)
                for tree, root in zip(trees, roots, strict=True)
            ]
            return np.concatenate([np.empty(0, dtype), *columns]).astype(dtype)

        shape = trees[0].weight.shape[1:] if trees else ()
        return cls(
            roots,
            joined("owner", np.int16),
            joined("record", np.int32),
            joined("left", np.int32, shift=True),
            joined("right", np.int32, shift=True),
            np.concatenate([np.empty((0, *shape), np.float32), *(tree.weight for tree in trees)]),
            np.array([params.output_of(tree) for tree in range(len(trees))], np.intp),
        )

    def is_leaf(self, nodes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of ``nodes`` are leaves."""
        return np.equal(self.owner[nodes], LEAF)

    def below(self, nodes: NDArray[np.int32], left: NDArray[np.bool_]) -> NDArray[np.int32]:
        """The child of each of ``nodes`` where its row goes ``left`` or not: int32 (n,)."""
        return np.where(left, self.left[nodes], self.right[nodes])

    def margins(
        self, leaves: NDArray[np.int32], base: np.float32 | NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Leaves (rows, trees) to margins (rows,), added tree by tree in float32 like XGBoost.

        With a ``base`` (classes,): margins (rows, classes), to which vector leaves add as a whole.
        """
        first = np.full((len(leaves), *np.shape(base)), base, np.float32)
        return self.added(leaves, first)

    def added(self, leaves: NDArray[np.int32], margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """``margins``, (rows,) or (rows, classes), and what all ``leaves`` (rows, trees) add."""
        columns = margins.reshape(len(leaves), -1).copy()
        if self.weight.ndim > 1:
            for tree in range(leaves.shape[1]):
                columns += self.weight[leaves[:, tree]]
            return columns
        for tree in range(leaves.shape[1]):
            columns[:, self.output[tree]] += self.weight[leaves[:, tree]]
        return columns.reshape(margins.shape)
