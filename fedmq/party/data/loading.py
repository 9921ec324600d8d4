"""Computations that load a session's data from files, off the event loop."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import ColumnBins
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.objectives.custom import CustomMetric, CustomObjective
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.sampling import salt_of
from fedmq.computation import Computation, computation
from fedmq.errors import ConfigError, DataError, Refused
from fedmq.messages.training import SelectedColumns
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.job import ByGroup, ByNewest, Split, column_of
from fedmq.party.configuration.party import NamedFunction
from fedmq.party.data.columns import NumberSpelling
from fedmq.party.data.given_bins import checked_bins, kept_bins
from fedmq.party.data.held_out import EvaluationShares, folds_of
from fedmq.party.data.repeated_ids import (
    has_several,
    numbered,
    people_of,
    refuse_several,
    row_names,
    rows_of_each,
    rows_of_people,
)
from fedmq.party.data.table import (
    NO_ID,
    Table,
    ids_digest,
    numbered_columns,
    read_table,
    read_text_column,
)
from fedmq.party.store.alignments import AlignmentStore, StoredAlignment, StoredChoices
from fedmq.party.store.documents import ModelStore
from fedmq.party.store.kept_blindings import KeptPoints, OwnBlinding
from fedmq.party.store.screens import ColumnSelection, OwnChoice
from fedmq.privacy.kept_blinding import Blinding, intersect_kept, require_distinct
from fedmq.privacy.set_intersection import LACKED, Common, IdList, Points
from fedmq.protocol.alignment.active import PeopleFound
from fedmq.protocol.inference.passive import PassiveRows
from fedmq.protocol.session_records import NOBODY, RowSet, hashed_ids
from fedmq.protocol.training.terms import ActiveTable, Fold, PassiveTable

__all__ = [
    "ActiveRows",
    "Aligned",
    "AlignmentIds",
    "AlignmentTerms",
    "LoadActiveTable",
    "OthersKeptList",
    "find_kept",
    "keep_alignment",
    "load_active_rows",
    "load_passive_rows",
    "load_passive_table",
    "margins_of",
    "model_columns",
    "raw_label",
    "read_id_list",
    "read_ids",
    "read_margins",
    "require_same_steps",
    "rows_in_order",
    "served_columns",
]


def raw_label(values: NDArray[np.float64], where: str) -> NDArray[np.float32]:
    """The label as float32, not checked by any objective: none is chosen yet."""
    return values.astype(np.float32)


@dataclass(frozen=True, slots=True)
class AlignmentTerms:
    """The terms that the parties agreed on: the alignment's name and its parties.

    ``session`` names the attempt, too: every attempt has an order of its own.
    """

    name: str
    session: str
    parties: tuple[str, ...]


@computation("ReadIds")
def read_ids(
    party: str,
    data: DataSection,
    labelled: bool,
    terms: AlignmentTerms,
    store: AlignmentStore,
    blinding: OwnBlinding | None = None,
) -> AlignmentIds:
    """Read the ids of ``party`` and its whole table, to refuse unusable data now.

    ``labelled``: whether the table has a label column. ``blinding``: what is kept of it, where a
    key is kept. Raises DataError like ``read_table``.
    """
    if not labelled:
        refuse_several(party, data)
    check = raw_label if labelled else None
    table = read_table(party, data, check)
    people, rows = rows_of_people(data, table.ids)
    ids = IdList.of(people)
    blinded = None if blinding is None else blinding.of(ids)
    return AlignmentIds(ids, table.fingerprint(), data.normalise, terms, store, rows, blinded)


@computation("ReadIdList")
def read_id_list(party: str, data: DataSection, labelled: bool) -> IdList:
    """The ids of ``party``, normalised, each once; it refuses an unusable table as `read_ids`."""
    table = read_table(party, data, raw_label if labelled else None)
    return IdList.of(rows_of_people(data, table.ids)[0])


def require_same_steps(
    party: str, own: tuple[str, ...], active: str, others: tuple[str, ...]
) -> None:
    """Raise Refused unless ``party`` and the ``active`` one normalise ids by the same steps."""
    if own != others:
        raise Refused(
            f"{party} normalises ids by {', '.join(own) or 'nothing'}, "
            f"{active} by {', '.join(others) or 'nothing'}; "
            "agree on data.normalise in all party files"
        )


@dataclass(frozen=True, slots=True, eq=False)
class AlignmentIds:
    """Distinct ids in ascending order, and the place to store their alignment.

    ``rows_of`` uint32 (ids,): how many rows each of these people has here; None: one each.
    """

    ids: IdList
    fingerprint: str
    normalise: tuple[str, ...]
    terms: AlignmentTerms
    store: AlignmentStore
    rows_of: NDArray[np.uint32] | None = None
    blinding: Blinding | None = None

    def keep(
        self,
        rows: NDArray[np.uint32],
        found: PeopleFound | None = None,
        counts: NDArray[np.uint32] | None = None,
    ) -> Computation:
        """Store the alignment: the ids in these rows, in this order; ``LACKED``: no id here.

        ``found``: how many people each choice has, at the active party. ``counts`` uint32 (rows,):
        how many rows each person has at the active party; None: one each.
        """
        return keep_alignment.bind(self, rows, found, counts)


@dataclass(frozen=True, slots=True)
class OthersKeptList:
    """The other party's list that this party keeps: its ``name`` and how many points."""

    points: KeptPoints
    name: str
    kept: int

    def find(
        self,
        own: Sequence[Points],
        name: str,
        kept: int,
        fresh: Sequence[Points],
        required: Sequence[int] | None,
    ) -> Computation:
        """As :class:`~fedmq.protocol.alignment.active.KeptList` says."""
        return find_kept.bind(self.points, own, name, kept, fresh, required)


@computation("FindKept")
def find_kept(
    points: KeptPoints,
    own: Sequence[Points],
    name: str,
    kept: int,
    fresh: Sequence[Points],
    required: Sequence[int] | None,
) -> Common:
    """Keep the ``fresh`` points behind the first ``kept`` of the list, and intersect with ``own``.

    Raises:
        DataError: the kept points are gone, or a point stands twice in the list.
        ConfigError: the disk refuses.
    """
    held = [points.load(name, kept)] if kept else []
    theirs = np.concatenate([*held, *fresh]) if fresh else held[0]
    if fresh:
        require_distinct(theirs)
        points.keep(name, theirs)
    return intersect_kept(own, theirs, required)


@computation("KeepAlignment")
def keep_alignment(
    own: AlignmentIds,
    rows: NDArray[np.uint32],
    found: PeopleFound | None,
    counts: NDArray[np.uint32] | None,
) -> int:
    """Store the ids ``rows`` (uint32) of ``own`` as the alignment; returns their number."""
    ids, terms = own.ids.strings(), own.terms
    people = len(rows)
    if counts is not None:
        rows = np.repeat(rows, counts)
    names = [None if row == LACKED else ids[row] for row in rows.tolist()]
    choices, lacking = None, {}
    if found is not None:
        for party, mask in found.lacking.items():
            by_row = mask if counts is None else np.repeat(mask, counts)
            lacking[party] = tuple(np.flatnonzero(by_row).tolist())
        choices = StoredChoices(left=found.left, inner=found.inner, known_to=found.known_to)
        if counts is not None:  # each row has a name of its own at the active party
            names = [*row_names(filter(None, names))]
    version: Literal[1, 2, 3, 4] = 1
    if counts is not None:
        version = 4
    elif lacking:
        version = 3
    elif choices or (rows == LACKED).any():
        version = 2
    alignment = StoredAlignment(
        version=version,
        name=terms.name,
        session=terms.session,
        made=datetime.now().astimezone().isoformat(timespec="seconds"),
        parties=terms.parties,
        normalise=own.normalise,
        fingerprint=own.fingerprint,
        ids=tuple(names),
        choices=choices,
        lacked_at=None if found is None else {name: len(at) for name, at in lacking.items()},
        lacking=lacking or None,
        people=None if counts is None else people,
    )
    own.store.save(alignment)
    return len(alignment.ids)


@dataclass(frozen=True, slots=True)
class Aligned:
    """A stored alignment: it chooses rows of a table and their order."""

    store: AlignmentStore
    name: str

    def rows_of(
        self, party: str, table: Table, every_row: bool = False
    ) -> tuple[Table, StoredAlignment]:
        """The chosen rows of ``table``, and the alignment; ``every_row``: all of each person.

        Raises:
            Refused: ``party`` has no such alignment, or its data changed since.
        """
        try:
            alignment = self.store.load(self.name)
        except DataError:
            raise Refused(
                f"{party} has no alignment {self.name!r}; make it with: fedmq align"
            ) from None
        if alignment.fingerprint != table.fingerprint():
            raise Refused(
                f"{party}: its data, or what [data] reads of it, changed since alignment "
                f"{self.name!r} was made ({alignment.made}); make it anew with: fedmq align"
            )
        ids: Sequence[str | None] = alignment.ids
        if every_row:
            ids = rows_of_each(table.ids, [name for name in alignment.ids if name is not None])
        return rows_in_order(party, table, ids), alignment


def rows_in_order(
    party: str, table: Table, ids: Sequence[str | None], may_lack: bool = False
) -> Table:
    """The rows of ``ids``, in their order; a row of None has no id, and all its values are missing.

    ``may_lack``: so has a row whose id ``party`` does not hold; otherwise DataError names it.
    """
    row_of: dict[str | None, int] = {name: row for row, name in enumerate(table.ids)}
    absent = next((name for name in ids if name is not None and name not in row_of), None)
    if absent is not None and not may_lack:
        raise DataError(f"{party}: there is no row of {absent!r}, which the alignment holds")
    rows = [row_of.get(name, -1) for name in ids]
    if -1 in rows:
        table = table.with_missing_row()
    return table.taken(rows)


@dataclass(frozen=True, slots=True)
class LoadActiveTable:
    """The active party's training table; ``evaluation`` is the share of rows to hold out.

    Several shares, by the names of sets, divide them; ``split`` says how rows are chosen. ``obj``
    and ``custom_metric`` are the active party's own functions, ``maximize`` as in
    :class:`CustomMetric`.
    """

    label: ClassVar[str] = "LoadActiveTable"
    party: str
    data: DataSection
    params: TrainParams
    evaluation: float | Mapping[str, float]
    salt: str
    aligned: Aligned | None = None
    obj: NamedFunction | None = None
    custom_metric: NamedFunction | None = None
    maximize: bool | None = None
    split: Split = "random"
    nfold: int | None = None
    """Folds of a cross-validation, without the rows that ``evaluation`` holds out."""
    selection: ColumnSelection | None = None
    """Which columns take part; None: all."""

    def run(self) -> ActiveTable:
        for function in (self.obj, self.custom_metric):
            if function is not None:
                function.load()
        objective = objective_of(self.params)
        table = read_table(self.party, self.data, objective.labels)
        bins = checked_bins(self.party, self.data, table)
        alignment, name = table.digest(self.salt), ""
        lacked_at: Mapping[str, int] = {}
        lacking: dict[str, NDArray[np.bool_]] = {}
        person: NDArray[np.int32] | None = None
        hidden = self.data.duplicates == "hidden"
        if hidden and self.aligned is None:
            everybody = people_of(self.data, table.ids)
            alignment = ids_digest(dict.fromkeys(everybody), self.salt)
            person = numbered(everybody) if has_several(everybody) else None
        if self.aligned is not None:
            table, stored = self.aligned.rows_of(self.party, table, every_row=hidden)
            alignment, name = stored.session, self.aligned.name
            lacked_at = stored.lacked_at or {}
            by_row = numbered(people_of(self.data, table.ids)) if hidden else None
            if by_row is not None and len(stored.ids) < len(by_row):
                person = by_row
            for party, places in (stored.lacking or {}).items():
                standing = np.arange(len(table.ids)) if by_row is None else by_row
                lacking[party] = np.isin(standing, places)
        data, selection = self.data, self.selection
        if selection is not None and selection.own is not None:
            features = selection.own.features_of(self.party, numbered_columns(table))
            table = replace(table, features=features, values=table.columns(features))
            data = _about(selection.own, data)
        label = table.label
        assert label is not None
        people = people_of(self.data, table.ids)
        together = people if has_several(people) else None
        if together and self.split == "stratified":
            raise ConfigError(
                f"{self.party}: split: some people have several rows, which stay together; "
                '"stratified" would part them'
            )
        shares = EvaluationShares.of(self.evaluation, self.split)
        sets = shares.sets(
            self.party, label, self.params.seed, lambda: self._texts(table.ids), together
        )
        held_out = np.logical_or.reduce([np.zeros(len(label), np.bool_), *sets.values()])
        if held_out.all():
            raise DataError(f"{self.party}: evaluation = {self.evaluation} leaves no rows to learn")
        folds = (
            ()
            if self.nfold is None
            else self._folds(self.nfold, label, ~held_out, table.ids, together)
        )
        named = ~held_out if folds else held_out
        beside = [held for held in (table.weight, table.base_margin, person) if held is not None]
        bins = kept_bins(bins, table.features)
        digest = _digest(table.features, bins, table.values, label, *beside)
        return ActiveTable(
            table.values,
            table.features,
            label,
            held_out,
            alignment,
            name,
            digest,
            data.monotone,
            weight=table.weight,
            base_margin=table.base_margin,
            objective=None if self.obj is None else CustomObjective(self.obj, objective),
            metric=(
                None
                if self.custom_metric is None
                else CustomMetric(self.custom_metric, self.maximize)
            ),
            evaluation_sets=sets,
            held_out_ids=tuple(table.ids[row] for row in np.flatnonzero(named)),
            column_groups=data.column_groups,
            category_columns=table.category_columns,
            folds=folds,
            lacked_at=lacked_at,
            lacking=lacking,
            person=person,
            selected=_asked(selection),
            bins=bins,
        )

    def _folds(
        self,
        nfold: int,
        label: NDArray[np.float32],
        taken: NDArray[np.bool_],
        ids: Sequence[str],
        together: Sequence[str] | None,
    ) -> tuple[Fold, ...]:
        """The folds of the ``taken`` rows, chosen as in `fedmq.cv` but by a secret draw.

        ``together``: the people whose rows are in one fold each, if some have several.

        Other parties know the seed; with it alone they could infer classes from folds.
        """
        rows, groups = np.flatnonzero(taken), None
        if isinstance(self.split, ByNewest):
            raise ConfigError(
                'split: folds are chosen at random, "stratified" or by group; newest is for '
                "evaluation"
            )
        if isinstance(self.split, ByGroup) or together:
            texts = self._texts(ids) if isinstance(self.split, ByGroup) else together
            groups = np.asarray(texts, dtype=object).astype(str)[rows]
        secret = np.random.SeedSequence([self.params.seed, salt_of(label)])
        chosen = folds_of(
            label[rows],
            nfold=nfold,
            stratified=self.split == "stratified",
            groups=groups,
            seed=secret.generate_state(8).astype(np.uint32),
        )
        return tuple(
            Fold(*(np.isin(np.arange(len(label)), rows[part]) for part in pair)) for pair in chosen
        )

    def _texts(self, ids: Sequence[str]) -> list[str]:
        """The column by which the rows are split."""
        column = column_of(self.split)
        assert column is not None
        by_id = read_text_column(self.party, self.data, column)
        return [by_id[name] for name in ids]


@computation("LoadPassiveTable")
def load_passive_table(
    party: str,
    data: DataSection,
    salt: str,
    aligned: Aligned | None = None,
    permitted: tuple[str, ...] | None = None,
    category_sets: bool = False,
    chosen: OwnChoice | None = None,
) -> PassiveTable:
    """A passive party's training table, with the ``permitted`` features; None: all of them.

    ``category_sets``: whether the policy allows columns to be split by sets of categories.
    ``chosen``: of its columns those that take part; None: all that are permitted. Refused if
    columns have changed since they were numbered.
    """
    refuse_several(party, data)
    table = read_table(party, data)
    bins = checked_bins(party, data, table)
    alignment = table.digest(salt)
    if aligned is not None:
        table, stored = aligned.rows_of(party, table)
        alignment = stored.session
    kept = table.features if permitted is None else permitted
    lacking = [name for name in kept if name not in table.features]
    if lacking:
        raise DataError(f"{party}: policy.features: {data.place} has no column {lacking[0]!r}")
    if chosen is not None:
        kept = chosen.features_of(party, numbered_columns(table, permitted))
        data = _about(chosen, data)
    wanted = {*kept}
    places = [at for at, name in enumerate(table.features) if name in wanted]
    names, values = tuple(table.features[at] for at in places), table.values
    if len(places) < len(table.features):  # a copy of a wide table is large
        values = values[:, places]
    bins = kept_bins(bins, names)
    digest = _digest(names, bins, values)
    held = np.array([name != NO_ID for name in table.ids], dtype=np.bool_)
    people = np.where(held, hashed_ids(table.ids), NOBODY)
    return PassiveTable(
        values,
        names,
        alignment,
        digest,
        RowSet.of_hashes(np.unique(people[held])),
        data.monotone,
        data.column_groups,
        table.category_columns if category_sets else {},
        people,
        bins,
    )


def _about(chosen: OwnChoice, data: DataSection) -> DataSection:
    """``data`` without what it says of columns that are not ``chosen``."""
    kept = {*chosen.columns, *chosen.features}
    return data.model_copy(
        update={
            "monotone": {name: sign for name, sign in data.monotone.items() if name in kept},
            "column_groups": {
                group: tuple(name for name in names if name in kept)
                for group, names in data.column_groups.items()
            },
        }
    )


def _asked(selection: ColumnSelection | None) -> dict[str, SelectedColumns]:
    """What each other party is told of its columns."""
    if selection is None:
        return {}
    return {
        party: SelectedColumns(
            screen=selection.screen, session=found.session, numbers=found.numbers
        )
        for party, found in selection.others.items()
    }


def _digest(
    features: tuple[str, ...], bins: Mapping[str, ColumnBins], *arrays: NDArray[Any]
) -> str:
    """The digest of a training table: 16 bytes of BLAKE2b (RFC 7693), in hex.

    Without ``bins`` it is that of versions before them.
    """
    digest = hashlib.blake2b(repr(features).encode(), digest_size=16)
    if bins:
        digest.update(repr(sorted(bins.items())).encode())
    for array in arrays:
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class ActiveRows:
    """The active party's columns of the rows that it knows: float32 (known, features).

    ``ids``: the rows that were asked for. ``known``: which of them these are, bool (ids,).
    """

    ids: tuple[str, ...]
    values: NDArray[np.float32]
    known: NDArray[np.bool_]


@computation("LoadActiveRows")
def load_active_rows(
    party: str,
    data: DataSection,
    share: ActiveShare,
    ids: tuple[str, ...],
    partial: bool = False,
    every_row: bool = False,
) -> ActiveRows:
    """The active party's columns of the rows ``ids``; ``partial``: of those that it knows.

    ``every_row``: ids are people, and all rows of each are asked for. Raises DataError if an id is
    unknown; with ``partial`` only if all are.
    """
    values, row_of = _served(party, data, share)
    if every_row:
        ids = tuple(rows_of_each(row_of, ids))
    unknown = [name for name in ids if name not in row_of]
    if unknown and (not partial or len(unknown) == len(ids)):
        some = ", ".join(map(repr, unknown[:3]))
        raise DataError(
            f"{party}: {data.place}: {len(unknown)} of the ids are not in it, such as {some}"
        )
    known = np.array([name in row_of for name in ids], dtype=np.bool_)
    return ActiveRows(ids, values[[row_of[name] for name in ids if name in row_of]], known)


@computation("LoadPassiveShare")
def load_passive_share(store: ModelStore, model: str) -> PassiveShare | None:
    """A passive party's share of ``model``, or None."""
    return store.passive(model) if model in store.ids() else None


@computation("LoadPassiveRows")
def load_passive_rows(party: str, data: DataSection, store: ModelStore, model: str) -> PassiveRows:
    """A passive party's share and the rows that it can answer for."""
    refuse_several(party, data)
    share = store.passive(model)
    values, row_of = _served(party, data, share)
    return PassiveRows(share, values, row_of)


def _served(
    party: str, data: DataSection, share: ActiveShare | PassiveShare
) -> tuple[NDArray[np.float32], dict[str, int]]:
    return served_columns(party, data, share.lookup_table.feature_names, share.model_id)


def served_columns(
    party: str, data: DataSection, features: tuple[str, ...], model: str
) -> tuple[NDArray[np.float32], dict[str, int]]:
    """The columns ``features`` of model ``model``, in this order, and the row of each id.

    Raises:
        DataError: naming party, source and a column that is not there.
    """
    table = read_table(party, data, wanted=features)
    values = model_columns(party, data, table, features, model)
    return values, {name: row for row, name in enumerate(table.ids)}


def model_columns(
    party: str, data: DataSection, table: Table, features: tuple[str, ...], model: str
) -> NDArray[np.float32]:
    """The columns ``features`` of ``table``, which model ``model`` was trained on.

    Raises:
        DataError: naming party, source and a column that is not there.
    """
    try:
        return table.columns(features)
    except KeyError as error:
        raise DataError(
            f"{party}: {data.place}: there is no column {error.args[0]!r}, "
            f"which model {model} was trained on"
        ) from None


@computation("ReadMargins")
def read_margins(
    where: str, data: DataSection, columns: tuple[str, ...], ids: tuple[str, ...]
) -> NDArray[np.float64]:
    """The margins of ``ids`` from ``columns`` of ``data`` at the party ``where``.

    Float64 (ids, columns); 0 for a missing id, which gets no score.

    Raises:
        DataError: there is no such column, or a cell is no number.
    """
    tables = {column: read_text_column(where, data, column) for column in columns}
    there = {
        column: {name: by_id.get(name, "0") for name in ids} for column, by_id in tables.items()
    }
    return margins_of(there, f"{where}: {data.place}", NumberSpelling.of(data))


def margins_of(
    cells: Mapping[str, Mapping[str, str]], where: str, spelling: NumberSpelling
) -> NDArray[np.float64]:
    """The numbers in ``cells``, by column and row's name: float64 (rows, columns).

    Raises DataError if a cell is no number; the text begins with ``where``.
    """
    return np.stack(
        [_numbers(column, texts, where, spelling) for column, texts in cells.items()], 1
    )


def _numbers(
    column: str, texts: Mapping[str, str], where: str, spelling: NumberSpelling
) -> Sequence[float]:
    found = []
    for name, text in texts.items():
        try:
            found.append(spelling.number(text))
        except ValueError:
            raise DataError(
                f"{where}, column {column!r}: {text[:40]!r} of {name!r} is no number, and a margin "
                "is needed"
            ) from None
    return found
