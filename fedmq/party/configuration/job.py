"""``train.toml`` and ``align.toml``: a training or an alignment, as the active party wants it."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    model_validator,
)

from fedmq.boosting.model.fallbacks import fallback_names
from fedmq.boosting.model.refreshed import refreshing_params
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.params import ALIASES, TrainParams, as_stored
from fedmq.errors import ConfigError
from fedmq.messages.fields import ModelId, PartyName
from fedmq.messages.screen import MOST_BINS, MOST_ROWS, MOST_STEPS
from fedmq.messages.training import MOST_FOLDS
from fedmq.party.configuration.toml_file import FilePath, Section, check_document, read_toml
from fedmq.privacy.registry import engine_named

__all__ = [
    "AlignmentJob",
    "ByGroup",
    "ByNewest",
    "FallbackJob",
    "ScreenJob",
    "SelectSection",
    "Split",
    "TrainingJob",
    "TrainingSelection",
    "column_of",
    "cross_validation_name",
]

_Column = Annotated[str, Field(min_length=1)]
SetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]


class _ByColumn(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ByGroup(_ByColumn):
    """Rows of one group, such as a household, stay together."""

    group: _Column
    """The column that names the group of each row."""


class ByNewest(_ByColumn):
    """The rows with the latest dates are held out."""

    newest: _Column
    """The column with the dates, as in 2026-11-22, or with numbers."""


_REFRESHING = {"process_type": "update", "updater": "refresh"}

Split = Literal["random", "stratified"] | ByGroup | ByNewest


def column_of(split: Split) -> str | None:
    """The active party's column that ``split`` reads, if any."""
    if isinstance(split, ByGroup):
        return split.group
    return split.newest if isinstance(split, ByNewest) else None


def cross_validation_name(model: str) -> str:
    """The name of the cross-validation of a job for ``model``; 64 letters at most, as of models."""
    return f"{model[:61]}-cv"


def _shares(evaluation: float | dict[str, float]) -> float | dict[str, float]:
    shares = evaluation if isinstance(evaluation, dict) else {"": evaluation}
    if not all(0 <= share < 1 for share in shares.values()) or sum(shares.values()) >= 1:
        raise ValueError("Input should be less than 1 in all, and no share below 0")
    if "train" in shares:
        raise ValueError("train is the name of the rows that are learned from")
    return evaluation


def _params(values: Any) -> TrainParams:
    if isinstance(values, TrainParams):
        return values
    if isinstance(values, dict):
        misplaced = next((key for key in values if key in TrainingJob.model_fields), None)
        if misplaced is not None:
            raise ConfigError(
                f"params.{misplaced}: {misplaced} belongs at the top of the file, above [params]"
            )
        return TrainParams.parse(values, "params")
    raise ValueError("a table of training parameters is needed")


def _set_in(document: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Set ``settings`` in a job's TOML ``document``."""
    for name, value in settings.items():
        *tables, key = name.split(".")
        place = document
        if (tables or [key])[0] not in TrainingJob.model_fields:
            tables = ["params", *tables]
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{name}: {table} is no table, so that nothing is below it")
        if tables == ["params"]:
            meant = ALIASES.get(key, key)
            for other in [other for other in place if ALIASES.get(other, other) == meant]:
                del place[other]
        place[key] = value


class SelectSection(Section):
    """Which columns a screen selects: those that meet all that is written here."""

    iv: Annotated[float, Field(ge=0)] | None = None
    """Information value at least; a column that is only described has none, and so has one of a
    screen whose label is not binary."""
    p: Annotated[float, Field(ge=0, le=1)] | None = None
    """The p-value at most, of chi-square or F: the chance of a column that tells the label as well
    and has nothing to do with it."""
    top: Annotated[int, Field(ge=1)] | None = None
    """So many at most, of all parties together: the highest information values first; without these
    the lowest p-values, and of those alike the highest chi-square or F."""
    missing: Annotated[float, Field(ge=0, le=1)] | None = None
    """Missing share at most."""
    correlation: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of two columns of a party that are more alike than this (Pearson's coefficient, of
    either sign), the weaker one falls away; so of another party that shows correlations."""


class TrainingSelection(SelectSection):
    """Which columns a training is offered: those that meet all that is written here."""

    screen: ModelId | None = None
    """The screen that has looked at them; the last that this party made when left out."""
    parties: Annotated[tuple[PartyName, ...], Field(min_length=1)] | None = None
    """The parties whose columns are selected, the active party included; the others train with all
    of theirs. All parties of the screen when left out."""

    model: ModelId | None = None
    """An earlier model of this party, whose columns are taken as they were selected then, whatever
    screens have found since. It stands alone."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.model is not None and (self.rule or self.screen or self.parties):
            raise ValueError("model takes the columns of that model; leave the other keys out")
        if not self.rule and self.model is None:
            raise ValueError("say which columns: iv, p, top, missing or correlation")
        return self

    @property
    def rule(self) -> dict[str, float]:
        """What a column has to meet."""
        return self.model_dump(exclude={"screen", "parties", "model"}, exclude_none=True)


class TrainingJob(Section):
    """What to train, with which engine, and which share of the rows to hold out for evaluation."""

    file = "training job"

    party: FilePath = Path("party.toml")
    """The active party's file; relative to the folder of this one."""
    model: ModelId | None = None
    """The model's name; made from the date when left out."""
    alignment: ModelId | None = None
    """The alignment to train on; when left out, all parties must hold exactly the same ids."""
    engine: str = "lattice"
    """How the gradients are kept secret; every party's policy must allow it. When left out,
    ``lattice`` with hidden sums: a party with too many candidates for it refuses, and names ``ou``;
    where ``engine_options`` are ``{ sums = "shown" }``, it is ``paillier``."""
    engine_options: Mapping[str, Any] = Field(default_factory=dict)
    """The engine's own options, such as ``{ key_bits = 3072 }`` of ``ou``. Where an engine is named
    that can hide sums, they are shown unless ``sums = "hidden"`` is among them."""
    continue_from: ModelId | None = None
    """A model whose trees come first: the new ones continue it, under a name of their own."""
    refresh: ModelId | None = None
    """A model whose leaves are weighed anew on the rows of this job, under a name of its own; its
    splits stay. It keeps its parameters, but for those of leaves that ``params`` names: ``eta``,
    ``reg_lambda``, ``reg_alpha``, ``max_delta_step`` and ``min_child_weight``."""
    refresh_leaf: bool = True
    """Whether a refresh weighs leaves anew; without it gains and covers alone are those of the rows
    of this job, and scores stay as they are."""
    parties: tuple[PartyName, ...] | None = None
    """The passive parties that take part, such as ``["telco"]``; all when left out."""
    evaluation: Annotated[float | dict[SetName, float], AfterValidator(_shares)] = 0.0
    """The share of the rows that is scored after each tree, but not learned from; or several such
    sets, as in ``{ recent = 0.1, rest = 0.1 }``: early stopping watches the last."""
    obj: str | None = None
    """The active party's own objective: a name under `functions.obj` of its party file."""
    custom_metric: str | None = None
    """A metric of its own, a name under `functions.custom_metric`; early stopping watches it."""
    maximize: bool | None = None
    """Whether more of `custom_metric` is better; its name says so where this is left out, as in
    XGBoost."""
    split: Split = "random"
    """How the rows of ``evaluation`` are chosen: ``"random"``, ``"stratified"`` (as many of each
    class), ``{ group = "household" }`` (nobody's group is divided) or ``{ newest = "since" }``
    (those with the latest dates, or the largest numbers). The columns are the active party's."""
    nfold: Annotated[int, Field(ge=2, le=MOST_FOLDS)] | None = None
    """How many folds ``fedmq cv`` divides the rows into, by ``split``; 3 when left out. ``fedmq
    train`` takes no account of it."""
    decoys: bool = False
    """Whether every split decision comes with decoys to the parties that do not split, so that the
    broker's operator cannot count whose columns do; not with ``lattice``."""
    fallback: bool = False
    """Whether fallback models follow, one after the other, on the same rows: without each passive
    party, and without all. They are activated and rolled back with the model, and score people of
    whom a party says nothing, where ``unknown = "fallback"`` in ``[online]``. ``fedmq cv`` refuses
    it."""
    category_sets: bool = False
    """Whether ``max_cat_to_onehot`` holds for other parties' columns as well, where their owners
    agree: a split by a set tells an owner on which side each of its categories stands."""
    params: Annotated[TrainParams, BeforeValidator(_params)] = TrainParams()
    """The training parameters."""
    select: TrainingSelection | None = None
    """Which columns take part, by what a screen has found; all when left out."""

    @model_validator(mode="before")
    @classmethod
    def _hides_sums(cls, values: Any) -> Any:
        """A job that names no engine shows no sum, unless it says so."""
        if not isinstance(values, dict) or "engine" in values:
            return values
        options = values.get("engine_options", {})
        if not isinstance(options, dict):
            return values
        shown = options.get("sums") == "shown"
        return {
            **values,
            "engine": "paillier" if shown else "lattice",
            "engine_options": {"sums": "hidden", **options},
        }

    @model_validator(mode="before")
    @classmethod
    def _as_xgboost_says_it(cls, values: Any) -> Any:
        """XGBoost's own words for a refresh may stand in its parameters, and say nothing more."""
        if not isinstance(values, dict) or not isinstance(values.get("params"), dict):
            return values
        if values.get("refresh") is None:
            return values
        said = dict(values["params"])
        for key, value in _REFRESHING.items():
            if said.get(key) == value:
                del said[key]
        if said.get("refresh_leaf") in (0, 1):
            values = {"refresh_leaf": bool(said.pop("refresh_leaf")), **values}
        return {**values, "params": said}

    @field_serializer("params", mode="wrap")
    def _as_given(self, params: TrainParams, handler: SerializerFunctionWrapHandler) -> Any:
        """Where a model is refreshed, what the job leaves out is the model's."""
        found: dict[str, Any] = handler(params)
        if self.refresh is None:
            return found
        return {name: value for name, value in found.items() if name in params.model_fields_set}

    @model_validator(mode="after")
    def _refreshes_one_model(self) -> Self:
        if self.refresh is None and not self.refresh_leaf:
            raise ValueError("refresh_leaf: no model is refreshed; name it by refresh")
        if self.refresh is None:
            return self
        if self.continue_from is not None:
            raise ValueError("refresh: a job refreshes a model or continues one; leave one out")
        if self.fallback:
            raise ValueError("refresh: a refreshed model has no fallback models")
        return self

    @model_validator(mode="after")
    def _begins_with_fallbacks(self) -> Self:
        if self.fallback and self.continue_from is not None:
            raise ValueError("fallback: a model that continues another has no fallback models")
        return self

    @property
    def session_model(self) -> str | None:
        """What its session is of: the model, or a cross-validation, which has a name of its own."""
        if self.model is None or self.nfold is None:
            return self.model
        return cross_validation_name(self.model)

    @classmethod
    def of_stored(cls, text: str) -> TrainingJob:
        """The job of a session on disk, perhaps begun by an earlier fedmq: see `StoredParams`."""
        values = json.loads(text)
        kind = FallbackJob if "fallback_of" in values else TrainingJob
        return kind.model_validate({**values, "params": as_stored(values.get("params", {}))})

    def of_refreshed(self, share: ActiveShare) -> Self:
        """The job with the parameters and parties of ``share``, the model that it refreshes.

        Raises:
            ConfigError: it names parameters that refreshed models keep, or folds.
        """
        if self.nfold is not None:
            raise ConfigError("refresh: a cross-validation refreshes no model; see: fedmq train")
        given = {name: getattr(self.params, name) for name in self.params.model_fields_set}
        params = refreshing_params(share, given)
        whole = TrainParams.model_validate(params.model_dump())  # all are said from now on
        parties = share.parties[1:] if self.parties is None else self.parties
        return self.model_copy(update={"params": whole, "parties": parties})

    def of_labels(self, labels: Sequence[str]) -> Self:
        """The job at a party that holds these label columns; ConfigError if it cannot learn them.

        A party without labels is told so elsewhere.
        """
        params = self.params.with_targets(max(1, len(labels)))
        return self if params is self.params else self.model_copy(update={"params": params})

    def of_fallback(
        self, main: ModelId, passive: Sequence[PartyName], absent: Collection[PartyName]
    ) -> FallbackJob:
        """The job of a fallback model of ``main`` without ``absent``; ``passive``: those of main.

        It names no column of a party that takes no part. Nobody else reads gradients of a party
        that trains alone.
        """
        parties = tuple(party for party in passive if party not in absent)
        away = tuple(f"{party}." for party in absent)
        monotone = self.params.monotone_constraints.items()
        together = [
            tuple(name for name in names if not str(name).startswith(away))
            for names in self.params.interaction_constraints
        ]
        params = self.params.model_copy(
            update={
                "monotone_constraints": {
                    name: sign for name, sign in monotone if not name.startswith(away)
                },
                "interaction_constraints": tuple(names for names in together if names),
            }
        )
        alone = {} if parties else {"engine": "plain", "engine_options": {}, "decoys": False}
        return FallbackJob(
            **{
                **{name: getattr(self, name) for name in TrainingJob.model_fields},
                **alone,
                "model": fallback_names(main, passive)[frozenset(absent)],
                "parties": parties,
                "params": params,
                "fallback": False,
                "fallback_of": main,
            }
        )

    @classmethod
    def read(cls, path: Path, settings: Mapping[str, Any] = MappingProxyType({})) -> TrainingJob:
        """The job of the file, with ``settings`` in place of what stands there.

        A setting is a key of the file, such as ``model`` or ``engine_options.sums``, or a training
        parameter, such as ``eta``. Raises ConfigError naming file and key.
        """
        return read_toml(path, cls, partial(_set_in, settings=settings))._with_engine(str(path))

    @classmethod
    def of(cls, keys: Mapping[str, Any], where: str) -> TrainingJob:
        """The job with these ``keys`` of the file; ConfigError begins with ``where``."""
        return check_document(keys, where, Path(), cls)._with_engine(where)

    def _with_engine(self, where: str) -> TrainingJob:
        engine_named(self.engine, self.engine_options, where)
        return self


class FallbackJob(TrainingJob):
    """A training of the model ``fallback_of`` without some of its parties. No file holds it."""

    fallback_of: ModelId
    main: str = ""
    """The session of the model's training: under its consent this one is."""
    after: str = ""
    """The session that comes before this one."""


class ScreenJob(Section):
    """A look at the columns of all parties before a training: what they are like, and how well each
    alone tells the label."""

    file = "screen job"

    party: FilePath = Path("party.toml")
    """The active party's file: its daemon is asked. Its label is 0 or 1, unless ``label_type`` says
    otherwise."""
    name: ModelId
    """What the screen is called."""
    label_type: Literal["binary", "classes", "number"] = "binary"
    """What the label is: 0 or 1, told by IV, KS and AUC; one of several classes, numbered from 0
    on, 50 at most, told by chi-square; or a number, told by F."""
    alignment: ModelId | None = None
    """The alignment whose people are looked at; when left out, all parties must hold exactly the
    same ids."""
    parties: tuple[PartyName, ...] | None = None
    """The passive parties whose columns are looked at; all when left out."""
    bins: Annotated[int, Field(ge=2, le=MOST_BINS)] = 10
    """Into so many bins a column of numbers is cut at most, at its quantiles."""
    most_rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 50_000
    """So many people are looked at, drawn by ``seed`` where there are more: each has a label to
    encrypt."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Which people are drawn."""
    sums: Literal["shown", "hidden"] = "shown"
    """What other parties that measure their columns tell: ``shown``, how many people of each label
    stand in each bin; ``hidden``, of a label of 0 or 1, in how many steps of 0.02 a column's
    information value is, which garbled circuits find: 63 stand for all above, and nobody sees a
    sum."""
    iv_from: Annotated[float, Field(ge=0.02, le=MOST_STEPS / 50)] = 0.02
    """Where sums are hidden: of columns with a lower information value nothing is told but that."""
    correlation: bool = False
    """Whether parties that allow it correlate their columns of numbers with the active party's,
    which leave encrypted: its first 100, and one for every ten people at most."""
    select: SelectSection | None = None
    """Which columns are selected; when left out, none are."""

    @model_validator(mode="after")
    def _has_information_values(self) -> Self:
        if self.label_type != "binary" and self.select is not None and self.select.iv is not None:
            raise ValueError("select: iv is of a binary label; take p, top, or both")
        return self

    @model_validator(mode="after")
    def _can_hide(self) -> Self:
        if self.sums == "shown":
            if self.iv_from != 0.02:
                raise ValueError('iv_from goes with sums = "hidden"')
            return self
        if self.label_type != "binary":
            raise ValueError('sums = "hidden" goes with label_type = "binary" alone')
        if self.select is not None and self.select.p is not None:
            raise ValueError('select: p takes sums that are shown; with sums = "hidden" take iv')
        return self

    @property
    def least_steps(self) -> int:
        """Fewer steps of 0.02 than these are not told, where sums are hidden; 0: they are shown."""
        return math.ceil(self.iv_from * 50 - 1e-9) if self.sums == "hidden" else 0

    @classmethod
    def read(cls, path: Path) -> ScreenJob:
        """Raises ConfigError naming file and key."""
        return read_toml(path, cls)

    @classmethod
    def of(cls, keys: Mapping[str, Any], where: str) -> ScreenJob:
        """The job with these ``keys`` of the file; ConfigError begins with ``where``."""
        return check_document(keys, where, Path(), cls)


class AlignmentJob(Section):
    """An alignment of all parties of the federation; one of the same name is replaced."""

    file = "alignment job"

    party: FilePath = Path("party.toml")
    """The active party's file: its daemon is asked."""
    parties: Annotated[tuple[PartyName, ...], Field(min_length=1)] | None = None
    """The passive parties among whom it is made; all when left out."""
    name: ModelId
    """What the alignment is called, here and in ``train.toml``."""
    join: Literal["inner", "left"] = "inner"
    """Whether it holds the people whom all parties hold, or all people of the active party: then
    the columns of a party are missing for people whom it lacks, and default directions are learned
    from these."""
    at_least: tuple[PartyName, ...] = ()
    """With ``join = "left"``: the passive parties that must hold a person all the same."""

    prepare: bool = False
    """Whether the passive party, a single one, blinds its ids once for all such alignments, which
    then cost the active party's list only; its policy says for how long (kept_blinding_days)."""

    @model_validator(mode="after")
    def _left_alone(self) -> AlignmentJob:
        if self.at_least and self.join != "left":
            raise ValueError('at_least goes with join = "left": an inner join wants all parties')
        return self

    @classmethod
    def of(cls, keys: Mapping[str, Any], where: str) -> AlignmentJob:
        """The job with these ``keys`` of the file; ConfigError begins with ``where``."""
        return check_document(keys, where, Path(), cls)

    @classmethod
    def read(cls, path: Path) -> AlignmentJob:
        """Raises ConfigError naming file and key."""
        return read_toml(path, cls)
