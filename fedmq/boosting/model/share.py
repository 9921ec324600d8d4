"""A finished model in shares: the active party's with the trees, a table for each other owner.

A share is a versioned JSON document. None of them predicts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from fedmq.boosting.model.tree import ACTIVE_PARTY, LookupTable, Tree
from fedmq.boosting.params import StoredParams
from fedmq.errors import ConfigError, DataError

__all__ = [
    "WITHHELD_NOTHING",
    "ActiveShare",
    "PassiveShare",
    "Unknown",
    "Withheld",
    "departures_in_words",
    "first_fault",
    "read_document",
    "refreshed_in_words",
]


Unknown = Literal["null", "fallback", "directions"]
"""What score a person has whom a party does not know: none; that of the fallback model without this
party, if there is one; or that of default directions, if they are learned from such people."""


class Withheld(BaseModel):
    """Sums of nodes, and of cells of a column within a node, with fewer rows than this; 0: none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    smallest_node: Annotated[int, Field(ge=0)] = 0
    smallest_cell: Annotated[int, Field(ge=0)] = 0

    def and_of(self, other: Withheld) -> Withheld:
        """The stricter limits of both: whatever either withholds."""
        return Withheld(
            smallest_node=max(self.smallest_node, other.smallest_node),
            smallest_cell=max(self.smallest_cell, other.smallest_cell),
        )

    def in_words(self, party: str) -> tuple[str, ...]:
        """The limits that ``party`` applied, a sentence each."""
        words = []  # cells and nodes without rows lose nothing
        if self.smallest_cell > 1:
            words.append(f"{party} merged cells of fewer than {self.smallest_cell} rows")
        if self.smallest_node > 1:
            words.append(f"{party} summed no nodes of fewer than {self.smallest_node} rows")
        return tuple(words)


WITHHELD_NOTHING = Withheld()


def departures_in_words(departures: Sequence[str]) -> str:
    """A text about the departures of an ``ActiveShare`` from XGBoost's model."""
    if not departures:
        return "yes, node by node"
    return f"no: {', '.join(departures)}"


def refreshed_in_words(model: str) -> str:
    """What a model is that refreshes another ``model``."""
    return f"model {model}: its splits, with leaves weighed anew on other rows"


Document = TypeVar("Document", bound=BaseModel)


def first_fault(error: ValidationError, whole: str) -> str:
    """The key of the first fault in a document, or ``whole``, and the reason."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or whole
    return f"{key}: {first['msg']}"


def read_document(kind: type[Document], text: str | bytes, where: str, what: str) -> Document:
    """The document in ``text``, JSON of a ``kind`` that may hold parameters.

    Raises:
        DataError: it is no ``what``; the text begins with ``where``, a file.
    """
    try:
        return kind.model_validate_json(text)
    except ConfigError as error:
        raise DataError(f"{where}: params: {error}") from None
    except ValidationError as error:
        if error.errors()[0]["type"] == "json_invalid":
            raise DataError(
                f"{where}: not a {what}: it is damaged, as by a full disk; restore it from a copy "
                "of the folder or an exported share"
            ) from None
        raise DataError(f"{where}: not a {what}: {first_fault(error, 'document')}") from None


_TreeNumber = Annotated[int, Field(ge=0)]
_Node = Annotated[int, Field(ge=1, lt=2**62)]


class _Share(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    newest_version: ClassVar[int] = 1

    version: Annotated[int, Field(strict=True)] = newest_version
    model_id: str
    lookup_table: LookupTable
    fallback_of: str = ""
    """The model whose fallback this is, trained without some of its parties; empty if none."""
    training: str = ""
    """The session that trained it, the same in all shares of a model; empty if that is not known to
    all of its parties, as some were of an earlier version."""

    def dumps(self) -> str:
        """The share as one JSON document."""
        return self.model_dump_json()

    @classmethod
    def loads(cls, text: str | bytes, where: str) -> Self:
        """The share in ``text``.

        Raises:
            DataError: it is no share that this fedmq reads; the text begins with ``where``, a file.
        """
        return read_document(cls, text, where, "model share")

    @model_validator(mode="before")
    @classmethod
    def _of_known_version(cls, document: Any) -> Any:
        if isinstance(document, dict):
            version = document.get("version", cls.newest_version)
            if version != cls.newest_version:
                raise ValueError(
                    f"version {version!r} is unknown; this fedmq reads version "
                    f"{cls.newest_version}, so use the fedmq that wrote the file"
                )
        return document


class PassiveShare(_Share):
    """A passive party's share: its name and its lookup table.

    ``places``: the tree and node of each record; empty in a share of a training that did not keep
    them. ``withheld``: the sums that it did not show in the training.
    """

    format: Literal["fedmq.passive-share"] = "fedmq.passive-share"
    party: str
    places: tuple[tuple[_TreeNumber, _Node], ...] = ()
    withheld: Withheld = WITHHELD_NOTHING

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if self.places and len(self.places) != len(self.lookup_table):
            raise ValueError("places and records differ in number")
        return self


class ActiveShare(_Share):
    """The active party's share: the trees, and its own lookup table.

    ``parties`` names the owners by index, itself first. ``history`` has the evaluation by metric
    and round. ``params.base_score`` is never left out. ``best_iteration`` is set by early stopping,
    and ends the trees used for predictions. ``withheld``: the sums that owners did not show, by
    their names; ``inexact_engine``: the engine, if its sums were not exact. Shares of earlier
    versions have neither, and say nothing of it. The first ``earlier_trees`` are those of a model
    that the training continued, with ``earlier_departures``; ``history`` begins after them.
    ``tree_weights``: what each tree of DART weighs. ``lacked_at``: how many of the people that it
    was trained on each party lacks. The default directions of that party's splits are learned from
    them; without them the directions say nothing of people whom the party lacks. ``shift``: what a
    fallback model adds to the margin of a person whom just the parties lack that it does without.
    ``refreshes``: the model whose splits these are, with leaves weighed anew on other rows.
    """

    format: Literal["fedmq.active-share"] = "fedmq.active-share"
    parties: Annotated[tuple[str, ...], Field(min_length=1)]
    params: StoredParams
    trees: tuple[Tree, ...]
    best_iteration: Annotated[int, Field(ge=0)] | None = None
    history: dict[str, tuple[float, ...]] = {}
    withheld: dict[str, Withheld] = {}
    inexact_engine: str = ""
    earlier_trees: Annotated[int, Field(ge=0)] = 0
    earlier_departures: tuple[str, ...] = ()
    tree_weights: tuple[float, ...] = ()
    lacked_at: dict[str, Annotated[int, Field(ge=1)]] = {}
    shift: float = 0.0
    refreshes: str = ""

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Models that refresh no other keep the format of earlier versions."""
        document: dict[str, Any] = handler(self)
        if not document.get("refreshes"):
            document.pop("refreshes", None)
        return document

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for index, tree in enumerate(self.trees):
            if (tree.owner >= len(self.parties)).any():
                raise ValueError(f"tree {index} names an owner beyond the parties")
            if (tree.record[tree.owner == ACTIVE_PARTY] >= len(self.lookup_table)).any():
                raise ValueError(f"tree {index} names a record beyond the lookup table")
        for owner, party in enumerate(self.parties):
            of_trees = [tree.record[tree.owner == owner] for tree in self.trees]
            records = np.concatenate([np.empty(0, np.int32), *of_trees])
            if records.max(initial=-1) >= len(records):
                raise ValueError(
                    f"the trees name record {records.max()} of {party}, which has {len(records)}"
                )
        shape = (self.params.vector_outputs,) if self.params.vector_outputs > 1 else ()
        if any(tree.weight.shape[1:] != shape for tree in self.trees):
            raise ValueError("the leaves do not have as many numbers as the parameters say")
        if len(self.tree_weights) != (len(self.trees) if self.params.booster == "dart" else 0):
            raise ValueError("a model of DART needs a weight of each tree, and no other has any")
        if self.params.base_score is None:
            raise ValueError("params.base_score is missing")
        if self.best_iteration is not None and self._end(self.best_iteration) > len(self.trees):
            raise ValueError("best_iteration is beyond the trees")
        return self

    @property
    def base_score(self) -> float | tuple[float, ...]:
        """The prediction before the first tree: given, or estimated from the labels."""
        assert self.params.base_score is not None
        return self.params.base_score

    @property
    def departures(self) -> tuple[str, ...]:
        """The reasons why this is not XGBoost's model of the joined table, in words.

        Empty if the model equals XGBoost's, node by node.
        """
        params, engine = self.params, self.inexact_engine
        drawn = {
            "active_only_trees": params.active_only_trees > 0,
            "subsample": params.subsample < 1,
            "colsample_bytree": params.colsample_bytree < 1,
            "colsample_bylevel": params.colsample_bylevel < 1,
            "colsample_bynode": params.colsample_bynode < 1,
            "goss": params.goss,
            "gradient_bits": params.gradient_bits is not None,
        }
        now = (
            *([f"sums of engine {engine} are not exact"] if engine else ()),
            *(f"{name} = {getattr(params, name)}" for name, departs in drawn.items() if departs),
            *(line for party, held in self.withheld.items() for line in held.in_words(party)),
        )
        return tuple(dict.fromkeys((*self.earlier_departures, *now)))

    @property
    def grown_trees(self) -> tuple[Tree, ...]:
        """The trees as they have grown, up to ``best_iteration``, or all."""
        if self.best_iteration is None:
            return self.trees
        return self.trees[: self._end(self.best_iteration)]

    @property
    def used_trees(self) -> tuple[Tree, ...]:
        """The trees that predictions use; DART's leaves are scaled by their tree's weight."""
        grown = self.grown_trees
        if not self.tree_weights:
            return grown
        return tuple(
            tree.model_copy(update={"weight": tree.weight * np.float32(weight)})
            for tree, weight in zip(grown, self.tree_weights, strict=True)
        )

    def of_rounds(self, first: int, end: int) -> Self:
        """The model of the rounds from ``first`` to before ``end``; with (0, 0) of all used ones.

        Raises:
            ConfigError: there are no such rounds.
        """
        if (first, end) == (0, 0):
            return self
        rounds = len(self.trees) // self.params.trees_per_round
        if not 0 <= first < end <= rounds:
            raise ConfigError(
                f"iteration_range = ({first}, {end}): the model has the rounds from 0 to before "
                f"{rounds}"
            )
        kept = slice(first * self.params.trees_per_round, self._end(end - 1))
        return self.model_copy(
            update={
                "trees": self.trees[kept],
                "tree_weights": self.tree_weights[kept],
                "best_iteration": None,
            }
        )

    def _end(self, iteration: int) -> int:
        """The number of trees up to the end of round ``iteration``."""
        return (iteration + 1) * self.params.trees_per_round

    def is_fallback_of(self, main: ActiveShare) -> bool:
        """Whether this is a fallback model of ``main``: the same training without some parties."""
        return self.fallback_of == main.model_id and set(self.parties) < set(main.parties)

    @property
    def asked(self) -> tuple[str, ...]:
        """The other parties that split a node of these trees; every score needs them."""
        owners = [tree.owner[tree.owner > ACTIVE_PARTY] for tree in self.used_trees]
        found = np.unique(np.concatenate([np.empty(0, np.int16), *owners]))
        return tuple(self.parties[owner] for owner in found.tolist())

    def need_not_know(self, unknown: Unknown) -> frozenset[str]:
        """The parties that need not know a person who gets a score.

        With ``unknown`` "directions" those that lacked people of the training: default directions
        are learned from such people, and from nobody else.
        """
        return frozenset(self.lacked_at) if unknown == "directions" else frozenset()

    @property
    def metrics(self) -> dict[str, float]:
        """The evaluation after the last of these trees, by metric."""
        last = -1
        if self.best_iteration is not None:
            last = self.best_iteration - self.earlier_trees // self.params.trees_per_round
        return {name: values[last] for name, values in self.history.items()}
