"""What does a party keep of its models, besides the journal? A kind of document a folder.

`Documents` is the store of one kind: files by name, each written whole or not at all. The kinds
follow, from the share of a model to the figures of a cross-validation. `keep_result` writes the
results of a training, and `delete_model` deletes everything that belongs to a model.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypeVar

import msgpack
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fedmq.boosting.intercept import shift_to_labels
from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.fallbacks import fallback_names, main_name
from fedmq.boosting.model.served_forest import Chains
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.tree import Agreed, DisclosedColumns
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.population_stability import BinnedColumn, binned_columns
from fedmq.errors import ConfigError, DataError
from fedmq.messages.inference import SealedTerms
from fedmq.party.atomic_file import csv_for_people, write_atomically
from fedmq.party.configuration.job import FallbackJob, TrainingJob
from fedmq.party.store.journal import StoredSession
from fedmq.party.store.screens import ColumnSelection, MadeScreen, ShownScreen
from fedmq.protocol.online.options import Mode
from fedmq.protocol.training.terms import ActiveTable, PassiveTable

__all__ = [
    "FORMER_MODELS",
    "JSON_TEXT",
    "TEXT",
    "ChosenModel",
    "Deployment",
    "Deployments",
    "Documents",
    "Format",
    "HeldOutRows",
    "ModelStore",
    "TrainedCounts",
    "TrainingRecord",
    "cards",
    "check_unserved",
    "chosen_model",
    "column_names",
    "cross_validations",
    "delete_model",
    "held_out_rows",
    "json_of",
    "keep_column_names",
    "keep_cross_validation",
    "keep_result",
    "keep_share",
    "keep_shown_screen",
    "keep_trained_counts",
    "made_screens",
    "only_name",
    "read_column_names",
    "reports",
    "scored_counts_path",
    "sealed_secrets",
    "sealed_terms",
    "selections",
    "shown_screen",
    "trained_counts",
    "training_records",
]

T = TypeVar("T")

_FOR_ALL = 0o666  # less the umask: the file holds no column, id or label of any person


@dataclass(frozen=True, slots=True)
class Format(Generic[T]):
    """Writes a value and reads it again: ``loads`` raises ValueError on all other bytes.

    ``versions``: those that ``loads`` reads; empty if documents name none.
    """

    dumps: Callable[[T], str | bytes]
    loads: Callable[[bytes], T]
    versions: tuple[int, ...] = ()

    def fault(self, data: bytes) -> str:
        """What is wrong with ``data`` if they are of another version; otherwise empty."""
        try:
            found = json.loads(data)["version"] if self.versions else None
        except (ValueError, TypeError, KeyError, RecursionError):
            return ""
        if type(found) is not int or found in self.versions:
            return ""
        return (
            f"version {found} is unknown; this fedmq reads version "
            f"{' and '.join(map(str, self.versions))}, so use the fedmq that wrote the file"
        )


def json_of(kind: Any) -> Format[Any]:
    """JSON of a ``kind``, any type that pydantic knows."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    field = getattr(kind, "model_fields", {}).get("version")
    # Files of version 1 may name none; a later fedmq's will.
    versions = (1,) if field is None else (field.default,)
    return Format(adapter.dump_json, adapter.validate_json, versions)


def _json_text(data: bytes) -> str:
    json.loads(data)
    return data.decode()


TEXT: Format[str] = Format(str, bytes.decode)
JSON_TEXT: Format[str] = Format(str, _json_text)
"""Text that others have written, with their own keys."""


class Documents(Generic[T]):
    """One kind of document: ``FOLDER/NAME.json``, each file written whole or not at all.

    ``damaged`` describes an unreadable file and its owner's remedy, unless it is of another
    version; ``missing``, with ``{name}`` and ``{known}``, describes an absent one.
    """

    def __init__(
        self,
        folder: Path,
        form: Format[T],
        damaged: str,
        *,
        missing: str = "",
        what: str = "",
        suffix: str = ".json",
        mode: int = 0o600,
    ) -> None:
        self._folder = folder
        self._form = form
        self._damaged = damaged
        self._missing = missing
        self._what = f"{what} " if what else ""
        self._suffix = suffix
        self._mode = mode

    def path(self, name: str) -> Path:
        """The file of ``name``, existing or not."""
        return self._folder / f"{name}{self._suffix}"

    def names(self) -> list[str]:
        """The names of the documents, the oldest first."""
        written = {}
        for path in self._folder.glob(f"*{self._suffix}"):
            with contextlib.suppress(FileNotFoundError):  # deleted since the folder was listed
                written[path.name.removesuffix(self._suffix)] = path.stat().st_mtime_ns
        return sorted(written, key=lambda name: written[name])

    def find(self, name: str) -> T | None:
        """The document; None if there is none, DataError if it is damaged or of another version."""
        path = self.path(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        try:
            return self._form.loads(data)
        except (ValueError, IndexError, ConfigError):
            raise DataError(f"{path}: {self._form.fault(data) or self._damaged}") from None

    def read(self, name: str) -> T:
        """The document; DataError if it is missing or damaged."""
        found = self.find(name)
        if found is None:
            missing = self._missing or f"{self.path(name)}: there is no such file"
            raise DataError(missing.format(name=repr(name), known=_alike(name, self.names())))
        return found

    def keep(self, name: str, value: T) -> None:
        """Write ``value``, replacing an earlier one; ConfigError if the disk refuses."""
        path = self.path(name)
        try:
            write_atomically(path, self._form.dumps(value), self._mode)
        except OSError as error:
            raise ConfigError(f"{path}: {self._what}cannot be written: {error.strerror}") from None

    def forget(self, name: str) -> None:
        """Delete the document, if there is one; ConfigError if the disk refuses."""
        path = self.path(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be deleted: {error.strerror}") from None


_MOST_NAMED = 20


def _alike(name: str, known: Sequence[str]) -> str:
    """All of ``known`` that look like ``name``, or else the newest of them, in words."""
    like = [other for other in known if name.lower() in other.lower()]
    like = like or difflib.get_close_matches(name, known, _MOST_NAMED)
    if like:
        return ", ".join(like)
    more = f" and {len(known) - _MOST_NAMED} older ones" if len(known) > _MOST_NAMED else ""
    return (", ".join(known[-_MOST_NAMED:]) or "none") + more


# The shares of finished models


class ModelStore:
    """This party's shares of finished models, by model id."""

    def __init__(self, state: Path) -> None:
        self._shares = Documents(
            state / "models",
            TEXT,
            "is no text",
            missing="model {name} has no share here; there are: {known}",
            what="the share",
            mode=_FOR_ALL,
        )

    def ids(self) -> list[str]:
        """The models with a share here, the oldest first."""
        return self._shares.names()

    def path(self, model: str) -> Path:
        """The file of ``model``, existing or not."""
        return self._shares.path(model)

    def newest(self) -> str:
        """The model that was saved last, but for fallback models; DataError if there is none."""
        known = self.ids()
        if not known:
            raise DataError("there is no model yet; train one with: fedmq train JOB.toml")
        return next(model for model in reversed(known) if main_name(model) not in known)

    def fallbacks(self, main: ActiveShare) -> dict[frozenset[str], ActiveShare]:
        """The active party's fallback models of ``main``, by the parties that they do without."""
        found = {}
        for absent, name in fallback_names(main.model_id, main.parties[1:]).items():
            if self.path(name).exists():
                share = self.active(name)
                if share.is_fallback_of(main):
                    found[absent] = share
        return found

    def fallbacks_of(self, model: str) -> list[str]:
        """The fallback models of ``model`` with a share here, at either side."""
        names = [name for name in self.ids() if main_name(name) == model]
        return [
            name
            for name in names
            if json.loads(self._shares.read(name)).get("fallback_of") == model
        ]

    def save(self, share: ActiveShare | PassiveShare) -> None:
        """Write ``share``; ConfigError if the disk refuses."""
        self._shares.keep(share.model_id, share.dumps())

    def forget(self, model: str) -> None:
        """Delete the share, if there is one; ConfigError if the disk refuses."""
        self._shares.forget(model)

    def active(self, model: str) -> ActiveShare:
        """The active party's share; DataError if it is missing or damaged."""
        return ActiveShare.loads(self._shares.read(model), str(self.path(model)))

    def passive(self, model: str) -> PassiveShare:
        """A passive party's share; DataError if it is missing or damaged."""
        return PassiveShare.loads(self._shares.read(model), str(self.path(model)))


# The files of a training beside the share


class TrainingRecord(BaseModel):
    """The ``job`` of a training as it was asked for, and the rows that it had.

    Times are in ISO 8601. ``selection``: the columns it was offered; None if all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Annotated[int, Field(ge=1, le=1)] = 1
    session: str
    job: TrainingJob
    rows: int
    held_out: int
    began: str
    ended: str
    selection: ColumnSelection | None = None

    @classmethod
    def of(
        cls,
        session: str,
        job: TrainingJob,
        rows: int,
        held_out: int,
        began: float,
        selection: ColumnSelection | None = None,
    ) -> Self:
        """The record of a training that ends now; ``began`` in seconds since the epoch."""
        return cls(
            session=session,
            job=job,
            rows=rows,
            held_out=held_out,
            began=datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            selection=selection,
        )


class TrainedCounts(BaseModel):
    """The distribution of a party's own columns in a training; at the active party scores, too.

    ``scores`` are margins, a column for each output; passive parties have none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Annotated[int, Field(ge=1, le=1)] = 1
    columns: tuple[BinnedColumn, ...]
    scores: tuple[BinnedColumn, ...] = ()

    @classmethod
    def of(
        cls,
        features: tuple[str, ...],
        values: NDArray[np.float32],
        margins: NDArray[np.float32] | None = None,
    ) -> Self:
        """Count ``values`` (rows, features), and margins (rows,) or (rows, outputs)."""
        scores: tuple[BinnedColumn, ...] = ()
        if margins is not None:
            outputs = margins.reshape(len(margins), -1)
            names = ["score"]
            if outputs.shape[1] > 1:
                names = [f"score {output}" for output in range(outputs.shape[1])]
            scores = binned_columns(names, outputs)
        return cls(columns=binned_columns(features, values), scores=scores)


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutRows:
    """The rows that a training held out, by ``ids`` and their evaluation ``sets``.

    ``label`` is float32 (rows,), or (rows, 2) for bounds of times and for queries, or (rows,
    targets). The file is CSV, for the model's validation: the columns id and set, and ``columns``.
    """

    ids: tuple[str, ...]
    sets: tuple[str, ...]
    label: NDArray[np.float32]
    columns: tuple[str, ...] = ("label",)

    @classmethod
    def of(cls, table: ActiveTable, params: TrainParams) -> Self:
        """The held-out rows of the table of a training with ``params``."""
        names = np.empty(len(table.label), dtype=object)
        for name, rows in table.evaluation_sets.items():
            names[rows] = name
        held = table.evaluation
        columns: tuple[str, ...] = ("label",)
        if params.num_target is not None:
            columns = tuple(f"label_{target}" for target in range(params.num_target))
        elif table.label.ndim > 1:
            ranked = params.objective.startswith("rank:")
            columns = ("label", "qid" if ranked else "label_upper_bound")
        return cls(table.held_out_ids, tuple(names[held]), table.label[held], columns)

    def dumps(self) -> str:
        """The rows as CSV."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        labels = self.label.reshape(len(self.ids), -1)
        writer.writerow((*_HELD_OUT_HEADERS, *self.columns))
        writer.writerows(
            (name, held, *(f"{value:.9g}" for value in values))
            for name, held, values in zip(self.ids, self.sets, labels.tolist(), strict=True)
        )
        return text.getvalue()

    @classmethod
    def loads(cls, data: bytes) -> Self:
        """The rows in a file of `dumps`; ValueError or IndexError for any other file."""
        headers, *rows = csv.reader(io.StringIO(data.decode(), newline=""))
        columns = tuple(headers[2:])
        known = columns in _LABELS or all(name.startswith("label_") for name in columns)
        if tuple(headers[:2]) != _HELD_OUT_HEADERS or not known:
            raise ValueError
        labels = np.array([row[2:] for row in rows], np.float32).reshape(len(rows), -1)
        if labels.shape[1] != len(columns):
            raise ValueError
        label = labels if len(columns) > 1 else labels.reshape(-1)
        return cls(tuple(row[0] for row in rows), tuple(row[1] for row in rows), label, columns)


_HELD_OUT_HEADERS = ("id", "set")
_LABELS = (("label",), ("label", "label_upper_bound"), ("label", "qid"))
_HELD_OUT: Format[HeldOutRows] = Format(HeldOutRows.dumps, HeldOutRows.loads)
_RECORD: Format[TrainingRecord] = json_of(TrainingRecord)
_COUNTS: Format[TrainedCounts] = json_of(TrainedCounts)
_CROSS_VALIDATED: Format[CrossValidated] = json_of(CrossValidated)


def training_records(state: Path) -> Documents[TrainingRecord]:
    """How each model was trained, beyond its share. Only the active party has these records."""
    return Documents(
        state / "trained",
        _RECORD,
        "is damaged; delete it, and the card says less of the training",
    )


def trained_counts(state: Path) -> Documents[TrainedCounts]:
    """The distribution of this party's columns in each training."""
    return Documents(
        state / "drift",
        _COUNTS,
        "is damaged; delete it, and drift is not watched",
        suffix=".trained",
    )


def scored_counts_path(state: Path, model: str) -> Path:
    """The file with counts of the people scored now, beside those of the training."""
    return state / "drift" / f"{model}.scored"


def keep_trained_counts(state: Path, model: str, counts: TrainedCounts) -> None:
    """Keep the counts of a training, and drop those of an earlier model of this name."""
    trained_counts(state).keep(model, counts)
    _unlink(scored_counts_path(state, model))


def held_out_rows(state: Path) -> Documents[HeldOutRows]:
    """The rows that each training held out, beside the share."""
    return Documents(
        state / "models",
        _HELD_OUT,
        "is damaged; name a file with --rows instead",
        missing="model {name} has no held-out rows: its job had no evaluation, or an earlier "
        "fedmq trained it; name a file of ids and labels with --rows",
        suffix=".held-out.csv",
    )


def cross_validations(state: Path) -> Documents[CrossValidated]:
    """The figures of this party's cross-validations, by name."""
    return Documents(
        state / "cross-validations", _CROSS_VALIDATED, "is no cross-validation, or damaged"
    )


def keep_cross_validation(state: Path, found: CrossValidated, table: ActiveTable) -> None:
    """Keep the figures, and as CSV the fold that scored each row of ``table``."""
    numbers = np.full(len(table.label), -1)
    for number, fold in enumerate(table.folds):
        numbers[fold.scored] = number
    folds = numbers[~table.evaluation].tolist()
    text = csv_for_people([("id", "fold"), *zip(table.held_out_ids, folds, strict=True)])
    folder = state / "cross-validations"
    Documents(folder, TEXT, "", suffix=".folds.csv").keep(found.name, text)
    cross_validations(state).keep(found.name, found)


def keep_result(
    state: Path,
    session: StoredSession,
    job: TrainingJob,
    table: ActiveTable,
    margins: Callable[[], NDArray[np.float32] | None],
    named: Callable[[], bool],
    result: ActiveShare | CrossValidated,
) -> None:
    """Keep the training record, the held-out rows and the counts of a model; then its share.

    So a model is complete or absent. ``margins`` gives those of all rows at the end;
    ``named``: whether the share says of which training it is. A
    cross-validation keeps only its figures and folds. ConfigError if the disk refuses.
    """
    if isinstance(result, CrossValidated):
        keep_cross_validation(state, result, table)
        return
    model, rows_held_out = result.model_id, int(table.evaluation.sum())
    rows = len(table.label) - rows_held_out
    selection = None if job.select is None else selections(state).find(model)
    record = TrainingRecord.of(session.id, job, rows, rows_held_out, session.begun, selection)
    training_records(state).keep(model, record)
    keep_trained_counts(state, model, TrainedCounts.of(table.features, table.values, margins()))
    if rows_held_out:
        held_out_rows(state).keep(model, HeldOutRows.of(table, job.params))
    if isinstance(job, FallbackJob):
        main = ModelStore(state).active(job.fallback_of)
        shift = _shift(job, table, margins(), frozenset(main.parties) - set(result.parties))
        result = result.model_copy(update={"fallback_of": job.fallback_of, "shift": shift})
    training = session.id if named() else ""
    ModelStore(state).save(result.model_copy(update={"training": training}))


def _shift(
    job: TrainingJob,
    table: ActiveTable,
    margins: NDArray[np.float32] | None,
    absent: frozenset[str],
) -> float:
    """What fits the scores of people to their labels whom just the ``absent`` parties lack.

    A fallback model without these parties is for them: their labels may differ from those of all,
    and no column that it has says so. 0 where the training has too few of them.
    """
    if margins is None or not absent <= table.lacking.keys() or table.objective is not None:
        return 0.0
    concerned = ~table.evaluation
    for party, lacks in table.lacking.items():
        concerned = concerned & (lacks if party in absent else ~lacks)
    weight = None if table.weight is None else table.weight[concerned]
    objective = objective_of(job.params)
    return shift_to_labels(objective, margins[concerned], table.label[concerned], weight)


def keep_share(
    state: Path,
    table: Callable[[], PassiveTable],
    fallback_of: str,
    training: str,
    selection: ColumnSelection | None,
    share: PassiveShare,
) -> None:
    """Keep the counts of a passive party's columns, then its share; like `keep_result`."""
    trained = table()
    if selection is None:
        selections(state).forget(share.model_id)  # of an earlier model of this name
    else:
        selections(state).keep(share.model_id, selection)
    keep_trained_counts(state, share.model_id, TrainedCounts.of(trained.features, trained.values))
    given = {"fallback_of": fallback_of, "training": training}
    ModelStore(state).save(share.model_copy(update=given))


# Looks at columns, and what trainings select among them


_MADE: Format[MadeScreen] = json_of(MadeScreen)
_SHOWN: Format[ShownScreen] = json_of(ShownScreen)
_SELECTION: Format[ColumnSelection] = json_of(ColumnSelection)
_MOST_SHOWN = 100  # screens of others of which the numbers of columns are kept


def made_screens(state: Path) -> Documents[MadeScreen]:
    """The screens that this party made, by name."""
    return Documents(
        state / "screens",
        _MADE,
        "is damaged; delete it, and make the screen again",
        missing="there is no screen {name}; there are: {known}; make one with: fedmq screen",
    )


def _shown_screens(state: Path) -> Documents[ShownScreen]:
    return Documents(
        state / "shown-screens",
        _SHOWN,
        "is damaged; delete it, and let the active party make its screen again",
    )


def _shown_key(name: str, session: str) -> str:
    """Another party names the session, so that it is no file name."""
    return f"{name}.{hashlib.blake2b(session.encode(), digest_size=8).hexdigest()}"


def keep_shown_screen(state: Path, session: str, shown: ShownScreen) -> None:
    """Keep which columns this party numbered in ``session``; ConfigError if the disk refuses."""
    kept = _shown_screens(state)
    kept.keep(_shown_key(shown.name, session), shown)
    for name in kept.names()[:-_MOST_SHOWN]:
        kept.forget(name)


def shown_screen(state: Path, name: str, session: str) -> ShownScreen | None:
    """Which columns this party numbered in ``session``; None if that is not kept."""
    return _shown_screens(state).find(_shown_key(name, session))


def selections(state: Path) -> Documents[ColumnSelection]:
    """By model, which columns its training was offered; there is none where these were all."""
    return Documents(
        state / "selections",
        _SELECTION,
        "is damaged; delete it, and nobody says which columns were selected",
    )


# Statements about a model, from others and for others


_NAMES: Format[dict[str, DisclosedColumns]] = json_of(dict[str, DisclosedColumns])


def column_names(state: Path) -> Documents[dict[str, DisclosedColumns]]:
    """By model and party, the column names that other parties have disclosed."""
    return Documents(
        state / "columns", _NAMES, "is damaged; delete it, and ask for the names again"
    )


def read_column_names(state: Path, model: str) -> dict[str, DisclosedColumns]:
    """Column names by party; DataError if the file is damaged."""
    return column_names(state).find(model) or {}


def keep_column_names(state: Path, model: str, shared: Mapping[str, DisclosedColumns]) -> None:
    """Add these to earlier disclosures of other parties; ConfigError if the disk refuses."""
    column_names(state).keep(model, {**read_column_names(state, model), **shared})


def reports(state: Path) -> Documents[str]:
    """The last report of each model's evaluation, as JSON."""
    return Documents(
        state / "reports", JSON_TEXT, "is damaged; delete it, and make the report again"
    )


def cards(state: Path) -> Documents[str]:
    """The card of each model, as JSON."""
    return Documents(state / "cards", JSON_TEXT, "is damaged; delete it, and make the card again")


# The model that each name stands for


FORMER_MODELS = 5
"""Number of former models of a name that a rollback can reach."""


class Deployment(BaseModel):
    """A served model. ``left`` and ``right`` are its chains here; empty at the active party.

    ``agreed``: at the active party, the reasons to which the other owners agreed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    mode: Mode
    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    agreed: Agreed = Agreed()

    @property
    def chains(self) -> Chains:
        """The chains of this party's records."""
        return Chains.of(self.left, self.right)


class _Deployed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Annotated[int, Field(ge=1, le=1)] = 1
    names: dict[str, list[Deployment]] = {}
    """By name, the newest last."""


_DEPLOYED: Format[_Deployed] = json_of(_Deployed)


class Deployments:
    """The deployments by name, in one file of the folder ``state``. They survive restarts."""

    def __init__(self, state: Path) -> None:
        self._kept = Documents(
            state, _DEPLOYED, "cannot be read; move it away and activate again", mode=_FOR_ALL
        )
        self.path = self._kept.path("deployments")
        self._document = self._kept.find("deployments") or _Deployed()

    @classmethod
    def read(cls, state: Path) -> Self:
        """The deployments in the folder ``state``; none in a new one, DataError if damaged."""
        return cls(state)

    def names(self) -> dict[str, Deployment]:
        """The newest deployment of each name, but for those of fallback models with their model."""
        now = {name: versions[-1] for name, versions in self._document.names.items()}
        return {
            name: of for name, of in now.items() if not (main_name(name) and main_name(of.model))
        }

    def now_of(self, model: str) -> list[str]:
        """The names that stand for ``model`` now, those of fallback models included."""
        now = {name: versions[-1] for name, versions in self._document.names.items()}
        return [name for name, of in now.items() if of.model == model]

    def names_of(self, model: str) -> list[str]:
        """The names that stand for ``model``, or can be rolled back to it."""
        return [
            name
            for name, versions in self._document.names.items()
            if any(version.model == model for version in versions)
        ]

    def before(self, name: str) -> Deployment:
        """The deployment of ``name`` before the newest; ConfigError if there is none."""
        versions = self._document.names.get(name, [])
        if len(versions) < 2:
            raise ConfigError(f"{name} has no earlier model to go back to")
        return versions[-2]

    def kept(self) -> list[Deployment]:
        """The two newest of every name: the active party may ask for both at any time."""
        return [
            deployment for versions in self._document.names.values() for deployment in versions[-2:]
        ]

    def put(self, name: str, deployment: Deployment) -> None:
        """Point ``name`` to ``deployment`` from now on; a rollback drops the newer deployment.

        Raises:
            ConfigError: the disk refuses.
        """
        document = self._document.model_copy(deep=True)
        versions = document.names.setdefault(name, [])
        if len(versions) > 1 and versions[-2].model == deployment.model:
            versions.pop()
        if versions and versions[-1].model == deployment.model:
            versions.pop()
        versions.append(deployment)
        del versions[:-FORMER_MODELS]
        _forget_fallbacks(document.names, name)
        self._kept.keep("deployments", document)
        self._document = document


def _forget_fallbacks(names: dict[str, list[Deployment]], main: str) -> None:
    """Drop fallback models of models that ``main`` no longer stands for, nor can go back to."""
    kept = {version.model for version in names[main]}
    for name in [name for name in names if main_name(name) == main]:
        names[name] = [of for of in names[name] if main_name(of.model) in kept]
        if not names[name]:
            del names[name]


# What mode sealed needs to serve a model


def _secret(data: bytes) -> bytes:
    if len(data) != 32:
        raise ValueError("not 32 bytes")
    return data


def sealed_secrets(state: Path) -> Documents[bytes]:
    """At the active party: by model, the secret that reads its sealed online scores."""
    damaged = "is damaged; delete it, and activate the model again"
    return Documents(state / "sealed", Format(bytes, _secret), damaged, suffix=".secret")


_TERMS: Format[SealedTerms] = Format(
    lambda terms: bytes(msgpack.packb(terms.model_dump())),
    lambda data: SealedTerms.model_validate(msgpack.unpackb(data)),
)


def sealed_terms(state: Path) -> Documents[SealedTerms]:
    """At a passive party: by model, the terms on which it multiplies."""
    return Documents(
        state / "sealed",
        _TERMS,
        "is damaged; delete it, and let the active party activate the model again",
        missing="model {name} was not activated in mode sealed here",
        suffix=".terms",
    )


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The id of a model that was asked for by id, by name or not at all.

    ``name``: an activated name that stands for it, if one chose it. ``newest``: it was chosen by
    its age, for nothing is activated.
    """

    model: str
    name: str = ""
    newest: bool = False

    def described(self) -> dict[str, Any]:
        """As plain data, for a command's result."""
        return {"model": self.model, "name": self.name or None, "newest": self.newest}


def chosen_model(state: Path, asked: str | None) -> ChosenModel:
    """What ``asked``, an id or an activated name, stands for.

    None stands for what is in production where one name is activated, and for the newest model
    where none is.

    Raises:
        ConfigError: None, and several names are activated.
        DataError: there is no model, or a file is damaged.
    """
    names = {name: now.model for name, now in Deployments.read(state).names().items()}
    if asked is not None:
        return ChosenModel(names.get(asked, asked), asked if asked in names else "")
    if not names:
        return ChosenModel(ModelStore(state).newest(), newest=True)
    return ChosenModel(names[only := only_name(names)], only)


def only_name(names: Mapping[str, str]) -> str:
    """The one activated name, of ``names`` with their models.

    Raises:
        ConfigError: there are several, or none.
    """
    if not names:
        raise ConfigError("no model is activated; activate one with: fedmq activate PARTY.toml")
    if len(names) > 1:
        each = ", ".join(f"{name} is {model}" for name, model in sorted(names.items()))
        raise ConfigError(f"{each}: say which with -m NAME")
    return next(iter(names))


# The end of a model


def check_unserved(state: Path, model: str) -> None:
    """Raise ConfigError if ``model`` is served, or a rollback can reach it."""
    names = Deployments.read(state).names_of(model)
    if names:
        raise ConfigError(
            f"model {model!r} is served as {', '.join(names)}, or was: activate another model "
            "until it can no longer be rolled back to"
        )


def delete_model(state: Path, model: str) -> None:
    """Delete this party's share of ``model`` and the files beside it; the share goes last.

    Its fallback models go before it.

    Raises:
        ConfigError: the model is served, or the disk refuses.
    """
    store = ModelStore(state)
    for name in (*store.fallbacks_of(model), model):
        check_unserved(state, name)
    for name in (*store.fallbacks_of(model), model):
        _delete(state, name)


def _delete(state: Path, model: str) -> None:
    beside: tuple[Documents[Any], ...] = (
        held_out_rows(state),
        training_records(state),
        column_names(state),
        reports(state),
        cards(state),
        trained_counts(state),
        sealed_secrets(state),
        sealed_terms(state),
        selections(state),
    )
    for documents in beside:
        documents.forget(model)
    _unlink(scored_counts_path(state, model))
    ModelStore(state).forget(model)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be deleted: {error.strerror}") from None
