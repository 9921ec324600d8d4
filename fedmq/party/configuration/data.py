"""``[data]`` and ``[serving]`` of a party: where its table lies, and what its columns are."""

from __future__ import annotations

import codecs
import math
import re
import struct
from collections.abc import Mapping
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from fedmq.party.configuration.toml_file import FilePath, Section, in_folder

__all__ = [
    "MOST_BINS",
    "BesideLabel",
    "ChangesSection",
    "ColumnSection",
    "ColumnType",
    "DataSection",
    "DatePart",
    "Duplicates",
    "NormaliseStep",
    "SourceType",
    "checked_query",
    "column_bins",
]

DatePart = Literal["days", "month", "weekday", "age"]
BesideLabel = Literal["label_upper_bound", "qid", "weight", "base_margin"]
SourceType = Literal["csv", "parquet", "sql"]
ColumnType = Literal["number", "category"]
Duplicates = Literal["refuse", "first", "last", "each", "hidden"]
NormaliseStep = Literal["trim", "lower", "upper", "digits", "sha256"]
MOST_BINS = 65_535
"""Bins of a column, as of `max_bin`."""
_QUANTILES = re.compile(r"quantile:\s*(\d{1,9})")
_ColumnBins = tuple[float, ...] | int  # ColumnBins of boosting, which needs NumPy
_SQLITE = "sqlite:///"
_CHANGES = (
    *("alter", "create", "delete", "drop", "grant", "insert", "merge", "replace"),
    *("revoke", "truncate", "update", "vacuum"),
)
"""First words of statements that yield no table, and change what is there."""


class ColumnSection(Section):
    """One column. A date becomes several numbers: a feature ``COLUMN.PART`` each."""

    kind: Literal["number", "category", "date"]
    """What it holds."""
    format: str | None = None
    """How a date is written, as ``strptime`` has it: ``%d.%m.%Y``; YYYY-MM-DD when left out."""
    reference: date | None = None
    """The day at which an age is counted, and from which days are; days from 1970-01-01 when left
    out."""
    parts: tuple[DatePart, ...] | None = None
    """``days``, ``month`` (1 to 12), ``weekday`` (1 is Monday) and ``age`` (whole years at
    ``reference``); the first three when left out, and all with a reference."""

    @model_validator(mode="after")
    def _of_a_date(self) -> Self:
        if self.kind != "date":
            for key in ("format", "reference", "parts"):
                if getattr(self, key) is not None:
                    raise ValueError(f'{key} goes with kind = "date" alone')
        if self.format is not None and not _spells_dates(self.format):
            raise ValueError(f"format: {self.format!r} is no form of dates, as %d.%m.%Y is")
        if "age" in (self.parts or ()) and self.reference is None:
            raise ValueError("an age needs a reference day, such as reference = 2026-01-01")
        return self

    @property
    def wanted(self) -> tuple[DatePart, ...]:
        """The parts of a date that become features."""
        if self.parts is not None:
            return self.parts
        parts: tuple[DatePart, ...] = ("days", "month", "weekday")
        return parts if self.reference is None else (*parts, "age")


def _spells_dates(form: str) -> bool:
    """Whether a date that is written in ``form`` can be read back."""
    day = datetime(2001, 2, 3)
    try:
        return datetime.strptime(day.strftime(form), form) == day
    except ValueError:
        return False


def _database(url: str | None, info: ValidationInfo) -> str | None:
    """The URL; a relative SQLite file is taken from the folder of the configuration file."""
    if url is not None and "://" not in url:  # it may hold a password, so it is not quoted
        raise ValueError(
            "this is no database URL; a SQLite file is written sqlite:///people.sqlite, and "
            "PostgreSQL postgresql+psycopg://user@host/name"
        )
    if url is None or not url.startswith(_SQLITE):
        return url
    return _SQLITE + str(in_folder(Path(url.removeprefix(_SQLITE)), info))


def checked_query(query: str | None) -> str | None:
    """``query``; ValueError where it changes the database."""
    first = re.sub(r"(?s)/\*.*?\*/|--[^\n]*", " ", query or "").split()[:1]
    if first and first[0].lower().rstrip(";") in _CHANGES:
        raise ValueError(
            f"it begins with {first[0][:20]}, which changes the database; write the SELECT that "
            "yields the table"
        )
    return query


def _encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError(f"{name!r} is no encoding; write utf-8, cp1252 or utf-16") from None
    return name


def _columns(given: object) -> object:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, list | tuple) and all(isinstance(column, str) for column in given):
        return tuple(given)
    raise ValueError("the name of a column, or a list of names, is needed")


def column_bins(given: object) -> _ColumnBins:
    """Given cuts, ascending as float32, or the most bins; ValueError where it is neither."""
    if isinstance(given, str) and (found := _QUANTILES.fullmatch(given.strip())):
        given = int(found[1])
    if isinstance(given, int) and not isinstance(given, bool):
        if not 2 <= given <= MOST_BINS:
            raise ValueError(f"{given} bins: write a number from 2 to {MOST_BINS}")
        return given
    numbers = isinstance(given, list | tuple) and all(
        isinstance(cut, int | float) and not isinstance(cut, bool) for cut in given
    )
    if not isinstance(given, list | tuple) or not numbers or not given:
        raise ValueError(
            "write cuts, such as [1000, 2000, 5000], or the most bins, such as 10 or "
            '"quantile:10"; ignore leaves a column out'
        )
    cuts = tuple(map(_float32, given))
    for cut, rounded in zip(given, cuts, strict=True):
        if not math.isfinite(rounded):
            raise ValueError(f"{cut!r} is no finite float32; leave it out")
    for (before, cut), (one, other) in zip(pairwise(given), pairwise(cuts), strict=True):
        if before >= cut:
            raise ValueError(f"{cut!r} stands after {before!r}: write each cut once, ascending")
        if one == other:
            raise ValueError(f"{before!r} and {cut!r} are the same in float32; leave out one")
    if len(given) >= MOST_BINS:
        raise ValueError(f"{len(given):,} cuts; a column takes fewer than {MOST_BINS:,}")
    return cuts


def _float32(number: float) -> float:
    try:
        rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.inf
    return rounded


def _hash_last(steps: tuple[NormaliseStep, ...]) -> tuple[NormaliseStep, ...]:
    if "sha256" in steps[:-1]:
        raise ValueError("sha256 comes last: nothing can be normalised after it")
    return steps


class ChangesSection(Section):
    """What `fedmq changes` may say about columns: those that nobody can change stay as they are.

    The parts of a date never change.
    """

    fixed: tuple[str, ...] = ()
    """Columns that nobody can change, such as ``["age"]``."""
    increase: tuple[str, ...] = ()
    """Columns of numbers that can only rise, such as ``["years_of_service"]``."""
    decrease: tuple[str, ...] = ()
    """Columns of numbers that can only fall."""

    @property
    def columns(self) -> tuple[str, ...]:
        """All that are named."""
        return (*self.fixed, *self.increase, *self.decrease)

    @model_validator(mode="after")
    def _once(self) -> Self:
        twice = next((name for name in self.columns if self.columns.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"column {twice!r} is named twice")
        return self


class DataSection(Section):
    """A table: which column is the id, which the label; the rest are features."""

    type: SourceType = "csv"
    """A CSV file with a header, a Parquet file, or the result of an SQL query."""
    path: FilePath | None = None
    """The file, where ``type`` is csv or parquet."""
    url: Annotated[str | None, AfterValidator(_database)] = None
    """The database as SQLAlchemy names it, such as ``postgresql+psycopg://user@host/name``."""
    query: Annotated[str | None, AfterValidator(checked_query)] = None
    """The SELECT that yields the table, where ``type`` is sql."""
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """What stands between the cells of a CSV file: ``;``, a bar, or a tab (``"\\t"``)."""
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    """How a CSV file is encoded, such as ``cp1252``, which older spreadsheets write."""
    decimal: Literal[".", ","] = "."
    """What stands before the decimals of numbers that are text."""
    thousands: Literal[".", ",", "'", " "] | None = None
    """What stands between the thousands of numbers that are text; nothing when left out."""
    id: Annotated[str | tuple[str, ...], BeforeValidator(_columns)]
    """The column that names each row, or several that name it together; the same people have the
    same ids at every party."""
    label: Annotated[str | tuple[str, ...] | None, BeforeValidator(_columns)] = None
    """The column to learn, or several that are learned at once; at the active party only."""
    label_classes: tuple[str, ...] = ()
    """What the label's words mean, where it holds words: ``["no", "yes"]`` are 0 and 1."""
    label_upper_bound: str | None = None
    """For ``survival:aft``: upper bounds of times, empty where nothing has happened yet."""
    qid: str | None = None
    """For ``rank:ndcg`` and the like: the number of each row's query; it never leaves the party."""
    weight: str | None = None
    """The column that says how often each row counts; it never leaves the party."""
    base_margin: str | None = None
    """The column of margins that rows start from in a training, such as a logarithm of exposure."""
    features: tuple[str, ...] = ()
    """The columns to learn from; all that have no other role when left out."""
    ignore: tuple[str, ...] = ()
    """Columns that are left out."""
    monotone: Mapping[str, Literal[-1, 1]] = Field(default_factory=dict)
    """Columns that may only raise the prediction (1) or only lower it (-1), in any training. The
    active party learns a sign per opaque candidate."""
    column_groups: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Columns by a name that ``interaction_constraints`` may give them together, as in
    ``{ usage = ["minutes", "calls"] }``."""
    reasons: Mapping[str, Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default_factory=dict
    )
    """What is published of a column where it is among the reasons for a score, such as
    ``{ tenure = "short time as a customer" }``; another party's are only read where its policy says
    ``explain = "column"``."""
    bins: Mapping[str, Annotated[_ColumnBins, BeforeValidator(column_bins)]] = Field(
        default_factory=dict
    )
    """How single columns of numbers are cut, in trainings and in screens: at given cuts, as in
    ``income = [1000, 2000, 5000]``, or at their quantiles into at most so many bins, as in
    ``income = 10`` or ``"quantile:10"``. A row of exactly 1000 stands below that cut."""
    changes: ChangesSection = ChangesSection()
    """Which columns `fedmq changes` leaves as they are, or moves in one direction alone."""
    types: Mapping[str, ColumnType] = Field(default_factory=dict)
    """What a column holds. Left out, a column without any number in it is a category."""
    columns: Mapping[str, ColumnSection] = Field(default_factory=dict)
    """What single columns hold, a table each; dates are declared here."""
    max_categories: Annotated[int, Field(ge=2, le=4096)] = 64
    """A category column with more categories is refused: each becomes a feature."""
    missing: tuple[str, ...] = ("", "NA", "NaN", "nan", "null")
    """What a text cell without a value holds."""
    duplicates: Duplicates = "refuse"
    """Which row counts where an id is repeated: none, the first, the last, or each: at the active
    party, whose other rows of a person are then named ``ID#2``, ``ID#3`` and so on. With ``hidden``
    each counts, too, and other parties do not learn how many there are; for engine ``lattice``."""

    normalise: Annotated[tuple[NormaliseStep, ...], AfterValidator(_hash_last)] = ("trim",)
    """The steps that ids go through; the same at all parties."""
    hashed: bool = False
    """Whether the ids have been through all of ``normalise`` already, its sha256 included."""

    @property
    def counts_each(self) -> bool:
        """Whether each row of a person counts."""
        return self.duplicates in ("each", "hidden")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        wanted = {"url", "query"} if self.type == "sql" else {"path"}
        for key in ("path", "url", "query"):
            given = getattr(self, key) is not None
            if given and key not in wanted:
                raise ValueError(f"{key} does not go with type = {self.type!r}")
            if not given and key in wanted:
                raise ValueError(f"{key} is missing; type = {self.type!r} needs it")
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}")
        if self.type == "csv" and self.separator == self.decimal == ",":
            raise ValueError('decimal = "," needs another separator, such as separator = ";"')
        both = sorted({*self.types} & {*self.columns})
        if both:
            raise ValueError(f"column {both[0]!r} stands below types and below columns")
        if self.hashed and "sha256" not in self.normalise:
            raise ValueError("hashed ids need sha256 among the steps of normalise")
        if len({*self.ids}) < max(1, len(self.ids)):
            raise ValueError("id needs one column or more, each of them once")
        if self.hashed and len(self.ids) > 1:
            raise ValueError(
                "hashed ids are one column: the hash of all columns of the id together"
            )
        if self.label is not None and len({*self.labels}) < max(1, len(self.labels)):
            raise ValueError("label needs one column or more, each of them once")
        if len(self.labels) > 1:
            for key in ("label_classes", "label_upper_bound", "qid", "base_margin"):
                if getattr(self, key):
                    raise ValueError(f"{key} goes with one label, and there are {len(self.labels)}")
        if self.label is None and self.beside_label:
            raise ValueError(f"{next(iter(self.beside_label))} goes with label, which is missing")
        if self.label is None and self.label_classes:
            raise ValueError("label_classes goes with label, which is missing")
        if self.label_classes and len(set(self.label_classes)) < max(2, len(self.label_classes)):
            raise ValueError("label_classes needs two words or more, each of them once")
        twice = {*self.features} & {
            *self.ids,
            *self.labels,
            *self.beside_label.values(),
            *self.ignore,
        }
        if twice:
            raise ValueError(f"column {sorted(map(str, twice))[0]!r} cannot be a feature as well")
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """The columns that name each row together."""
        return (self.id,) if isinstance(self.id, str) else self.id

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns to learn."""
        if isinstance(self.label, tuple):
            return self.label
        return () if self.label is None else (self.label,)

    @property
    def beside_label(self) -> dict[BesideLabel, str]:
        """The columns that trainings read beside the label, by what they hold."""
        named: dict[BesideLabel, str | None] = {
            "label_upper_bound": self.label_upper_bound,
            "qid": self.qid,
            "weight": self.weight,
            "base_margin": self.base_margin,
        }
        return {role: column for role, column in named.items() if column is not None}

    @property
    def place(self) -> str:
        """Where the table lies, without the password."""
        if self.url is None:
            return str(self.path)
        scheme, _, rest = self.url.partition("://")
        if not scheme.startswith("sqlite"):  # a password may hold any letter
            rest = rest.rpartition("@")[2].partition("?")[0]
        return f"{scheme}://{rest}"
