"""The columns that a screen looks at: computations that load them, and columns as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import ColumnBins
from fedmq.boosting.correlated_columns import CorrelatedColumns, rounded_inflation
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.screened_columns import ScreenedColumn, chosen_rows, screened_columns
from fedmq.boosting.screened_label import LabelType, ScreenedLabel, strength
from fedmq.boosting.standard_columns import carried_by, standardised
from fedmq.computation import computation
from fedmq.errors import ConfigError, DataError, Refused
from fedmq.messages.screen import (
    MOST_CLASSES,
    MOST_CORRELATED,
    PEOPLE_OF_A_COLUMN,
    PairOpen,
    ScreenOpen,
)
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.job import ScreenJob, SelectSection, TrainingSelection
from fedmq.party.data.given_bins import checked_bins
from fedmq.party.data.loading import Aligned
from fedmq.party.data.table import NO_ID, Table, numbered_columns, read_table
from fedmq.party.store.answered_people import EarlierPeople
from fedmq.party.store.screens import (
    ColumnSelection,
    MadeScreen,
    Numbered,
    OwnChoice,
    PeerChoice,
    ShownScreen,
)
from fedmq.privacy.hidden_screen.steps import LEAST_PEOPLE, MOST_STEPS, STEP
from fedmq.privacy.lattice.inner_products import ColumnKey
from fedmq.protocol.screen.active import Shown, ShownColumn, ShownCorrelations
from fedmq.protocol.screen.passive import CorrelatedNumbers, OwnColumns
from fedmq.protocol.session_records import PeopleAnswered, hashed_ids

__all__ = [
    "LabelledColumns",
    "Pair",
    "add_pairs",
    "correlated_numbers",
    "label_check",
    "load_labelled_columns",
    "load_shown_columns",
    "made_screen",
    "own_columns",
    "own_correlation",
    "pair_opening",
    "screen_found",
    "screen_opening",
    "selected",
    "selection_of",
    "shown_columns",
    "told_column",
]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledColumns:
    """The active party's side of a screen: its own columns, and its ``label``.

    ``alignment``: the digest of all ``rows`` in common, of which the columns are of a part.
    ``numbers``: what is correlated with other parties' columns, if anything is. ``numbered``: the
    columns in their order, each with its features.
    """

    alignment: str
    rows: int
    label: ScreenedLabel
    columns: Sequence[ScreenedColumn]
    alike: CorrelatedColumns
    numbers: CorrelatedNumbers
    numbered: Numbered = ()


_OBJECTIVE = {"binary": "binary:logistic", "number": "reg:squarederror"}


def label_check(kind: LabelType) -> Callable[[NDArray[np.float64], str], NDArray[np.float32]]:
    """The function that makes values (rows,) a label of this ``kind``, float32 (rows,).

    It raises DataError if there are several labels, or if one does not fit; the text names its row.
    """

    def check(values: NDArray[np.float64], where: str) -> NDArray[np.float32]:
        if values.ndim > 1:
            raise DataError(f"{where}: a screen takes one label, and here are {values.shape[1]}")
        if kind != "classes":
            return objective_of(TrainParams(objective=_OBJECTIVE[kind])).labels(values, where)
        fits = (values >= 0) & (values < MOST_CLASSES) & (values == np.floor(values))
        if not fits.all():
            row = int(np.argmin(fits))
            raise DataError(
                f"{where}: label in row {row + 1} is {values[row]:g}; a class is a whole number "
                f"from 0 to {MOST_CLASSES - 1}"
            )
        return values.astype(np.float32)

    return check


@computation("LoadLabelledColumns")
def load_labelled_columns(
    party: str,
    data: DataSection,
    aligned: Aligned | None,
    salt: str,
    job: ScreenJob,
) -> LabelledColumns:
    """The columns and labels of the active ``party``, as ``job`` looks at them.

    Raises:
        DataError: as `read_table`; or a label is not of the job's type, or all are alike.
        ConfigError: people have several rows.
    """
    if data.duplicates == "hidden":
        raise ConfigError(
            f"{party}: a screen takes one label of a person, and some have several; align with one "
            'row of each, duplicates = "first" or "last"'
        )
    whole = read_table(party, data, label_check(job.label_type))
    given = checked_bins(party, data, whole)
    table, alignment = _rows(party, whole, aligned, salt)
    rows = len(table.ids)
    table = table.taken(chosen_rows(rows, job.most_rows, job.seed).tolist())
    assert table.label is not None
    label = ScreenedLabel.of(table.label, job.label_type, f"{party}: {data.place}")
    check_hidden(job, label, party)
    columns = tuple(_columns(table, job.bins, 1, given))
    values = table.columns(_numbers(columns))
    alike = CorrelatedColumns.of(values, _numbers(columns))
    numbers = correlated_numbers(values, columns, own=True, wanted=job.correlation)
    numbered = tuple(numbered_columns(table))
    return LabelledColumns(alignment, rows, label, columns, alike, numbers, numbered)


@computation("LoadShownColumns")
def load_shown_columns(
    party: str,
    data: DataSection,
    aligned: Aligned | None,
    opening: ScreenOpen,
    peer: str,
    permitted: tuple[str, ...] | None,
    smallest: int,
    earlier: EarlierPeople,
    correlates: bool,
    keep: Callable[[ShownScreen], None] | None = None,
) -> OwnColumns:
    """The ``permitted`` columns of ``party`` as ``peer`` may see them, in bins of ``smallest``.

    ``keep`` keeps which these are, so that a training can select among them.

    Raises:
        Refused: the parties' rows are others, too few, or nearly those of an ``earlier`` answer.
        DataError: as `read_table`.
    """
    whole = read_table(party, data)
    given = checked_bins(party, data, whole)
    table, alignment = _rows(party, whole, aligned, opening.salt)
    rows = len(table.ids)
    if alignment != opening.alignment or rows != opening.rows:
        what = f"alignment {opening.alignment_name!r}" if opening.alignment_name else "the ids"
        raise Refused(f"{what} of {party} and of {peer} are not the same; see: fedmq align")
    table = table.taken(chosen_rows(rows, opening.most_rows, opening.seed).tolist())
    held = np.array([name != NO_ID for name in table.ids], dtype=np.bool_)
    if int(held.sum()) < smallest:
        raise Refused(f"{party} shows columns of {smallest} people or more (smallest_group)")
    draw = np.random.default_rng()
    columns = [
        column.for_others(smallest, draw)
        for column in _columns(table, opening.bins, smallest, given, permitted)
    ]
    if not columns:
        raise Refused(f"{party} has no column to show")
    names = [name for name in table.ids if name != NO_ID]
    answered = PeopleAnswered(party, "question", hashed_ids(names))
    earlier.check(answered)
    if keep is not None:
        made = datetime.now(UTC).isoformat(timespec="seconds")
        numbered = tuple(numbered_columns(table, permitted))
        keep(ShownScreen(name=opening.name, made=made, numbered=numbered))
    few = held.sum() < PEOPLE_OF_A_COLUMN * opening.correlated
    numbers = correlated_numbers(
        table.columns(_numbers(columns)), columns, smallest, wanted=correlates and not few
    )
    return OwnColumns(columns, answered, numbers if numbers.columns else None)


def _rows(party: str, table: Table, aligned: Aligned | None, salt: str) -> tuple[Table, str]:
    """The common rows of ``table``, and what tells them from others."""
    if aligned is None:
        return table, table.digest(salt)
    taken, stored = aligned.rows_of(party, table)
    if stored.people is not None:
        raise Refused(
            f"a screen counts people, and some have several rows in alignment {aligned.name!r}; "
            'align with one row of each, duplicates = "first" or "last"'
        )
    return taken, stored.session


def _columns(
    table: Table,
    bins: int,
    smallest: int,
    given: Mapping[str, ColumnBins],
    permitted: tuple[str, ...] | None = None,
) -> list[ScreenedColumn]:
    """The columns of the ``permitted`` features, all for None; cut as ``given``."""
    columns = numbered_columns(table, permitted)
    features = [name for _, names in columns for name in names]
    categories = {column: names for column, names in columns if column in table.category_columns}
    values = table.columns(features)
    return list(screened_columns(values, features, categories, bins, smallest, given))


def _numbers(columns: Sequence[ScreenedColumn]) -> list[str]:
    return [column.name for column in columns if column.kind == "number"]


def own_correlation(
    party: str, table: Table, permitted: tuple[str, ...] | None = None
) -> dict[str, Any]:
    """How much a party's own columns of numbers are alike, for its owner alone, as plain data.

    Columns have the numbers that a screen counts.
    """
    named = [column for column, _ in numbered_columns(table, permitted)]
    numbers = [name for name in named if name not in table.category_columns]
    alike = CorrelatedColumns.of(table.columns(numbers), numbers)
    inflation = [_number(factor) for factor in alike.inflation.tolist()]
    found = {
        "columns": [
            {"column": named.index(name) + 1, "name": name, "vif": factor}
            for name, factor in zip(alike.names, inflation, strict=True)
        ],
        "correlation": {
            "columns": [named.index(name) + 1 for name in alike.names],
            "coefficients": _coefficients(alike),
        },
    }
    return {"party": party, "rows": len(table.ids), "parties": {party: found}}


def _coefficients(alike: CorrelatedColumns) -> list[list[float | str | None]]:
    return [[_number(each) for each in row] for row in alike.coefficients.tolist()]


def correlated_numbers(
    values: NDArray[np.float32],
    columns: Sequence[ScreenedColumn],
    smallest: int = 1,
    *,
    own: bool = False,
    wanted: bool = True,
) -> CorrelatedNumbers:
    """The first columns of numbers that are correlated with those of another party; none unwanted.

    ``values`` float32 (rows, columns): those of numbers among ``columns``. Of a passive party those
    whose variance at least ``smallest`` people carry; of the active party (``own``) all that vary,
    one for every ten people at most.
    """
    if not wanted:
        return CorrelatedNumbers((), np.empty((len(values), 0)))
    most = min(MOST_CORRELATED, len(values) // PEOPLE_OF_A_COLUMN) if own else MOST_CORRELATED
    places = [number for number, column in enumerate(columns, 1) if column.kind == "number"]
    standard = standardised(values)
    # A hundredth: of the people of a mark rounding leaves a little less than their number.
    taken = np.flatnonzero(carried_by(standard) > smallest - 0.01)[:most]
    return CorrelatedNumbers(tuple(places[place] for place in taken), standard[:, taken])


def check_hidden(job: ScreenJob, label: ScreenedLabel, party: str) -> None:
    """Raise DataError if sums of the ``label`` of ``party`` cannot be hidden as ``job`` says."""
    fewest = min(int(label.values.sum()), int((~label.values).sum())) if job.least_steps else 0
    if job.least_steps and fewest < LEAST_PEOPLE:
        raise DataError(
            f"{party}: {fewest} people of one label are looked at; sums are hidden of "
            f"{LEAST_PEOPLE} or more: look at more people, with most_rows"
        )


def screen_opening(job: ScreenJob, own: LabelledColumns, salt: str, key: ColumnKey) -> ScreenOpen:
    """What the active party asks of one other party: labels are under ``key``."""
    return ScreenOpen(
        **_looked_at(job, own, salt),
        elements=key.public.hex(),
        correlated=len(own.numbers.columns),
        classes=own.label.classes,
        least_steps=job.least_steps,
    )


def pair_opening(
    job: ScreenJob,
    own: LabelledColumns,
    salt: str,
    pair: tuple[str, str],
    asking: ShownCorrelations,
) -> PairOpen:
    """What the active party asks of a ``pair`` of parties; ``asking``: what the first has shown."""
    return PairOpen(
        **_looked_at(job, own, salt),
        elements="",
        correlated=len(asking.columns),
        asks=pair[0],
        answers=pair[1],
    )


def _looked_at(job: ScreenJob, own: LabelledColumns, salt: str) -> dict[str, Any]:
    """The fields of an opening that say which rows are looked at, and how they are cut."""
    return {
        "name": job.name,
        "alignment": own.alignment,
        "alignment_name": job.alignment or "",
        "salt": salt,
        "rows": own.rows,
        "most_rows": job.most_rows,
        "seed": job.seed,
        "bins": job.bins,
    }


# A screen, and a column, as plain data


def screen_found(
    job: ScreenJob,
    label: ScreenedLabel,
    rows: int,
    parties: Mapping[str, Any],
    bytes_sent: int,
) -> dict[str, Any]:
    """What ``fedmq screen --json`` prints: ``parties`` holds each one's columns or refusal.

    The ``label`` is that of the people who are looked at, of so many ``rows``.
    """
    return {
        "screen": job.name,
        "alignment": job.alignment,
        "rows": rows,
        "looked_at": len(label),
        "label_type": job.label_type,
        **label.described,
        "bins": job.bins,
        "seed": job.seed,
        **({"sums": "hidden", "iv_from": job.iv_from} if job.least_steps else {}),
        "parties": parties,
        "select": None if job.select is None else job.select.model_dump(exclude_none=True),
        "selected": None if job.select is None else selected(parties, job.select),
        "bytes_sent": bytes_sent,
    }


def made_screen(
    found: Mapping[str, Any], numbered: Numbered, sessions: Mapping[str, str]
) -> MadeScreen:
    """What is kept of the screen that was ``found``: columns without their bins.

    ``numbered``: the own columns; ``sessions``: in which each other party showed its.
    """
    return MadeScreen(
        name=found["screen"],
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        alignment=found["alignment"] or "",
        rows=found["rows"],
        looked_at=found["looked_at"],
        numbered=numbered,
        sessions=dict(sessions),
        selected=found["selected"],
        parties={
            party: {
                **told,
                **(
                    {"columns": [{**column, "bins": None} for column in told["columns"]]}
                    if "columns" in told
                    else {}
                ),
            }
            for party, told in found["parties"].items()
        },
    )


def own_columns(
    columns: Sequence[ScreenedColumn], alike: CorrelatedColumns, label: ScreenedLabel
) -> dict[str, Any]:
    """The columns of the active party, and how much those of numbers are ``alike``."""
    inflation = dict(zip(alike.names, map(_number, alike.inflation.tolist()), strict=True))
    found = [
        told_column(number, column, label) | {"vif": inflation.get(column.name)}
        for number, column in enumerate(columns, 1)
    ]
    place = {column["name"]: column["column"] for column in found}
    return {
        "columns": found,
        "correlation": {
            "columns": [place[name] for name in alike.names],
            "coefficients": _coefficients(alike),
        },
    }


def _number(value: float) -> float | str | None:
    """A figure of a column in JSON, which knows neither NaN nor infinity."""
    if math.isnan(value):
        return None
    return "infinite" if math.isinf(value) else round(value, 4)


def told_column(number: int, column: ScreenedColumn, label: ScreenedLabel) -> dict[str, Any]:
    """A ``column`` and how well it tells the ``label``, as plain data."""
    described = {
        "column": number,
        "name": column.name,
        "type": column.kind,
        "missing": column.missing,
        "distinct": column.distinct,
    }
    return described | label.told_by(column.counts, label.by_bin(column))


def shown_columns(party: str, shown: Shown, own: LabelledColumns, least: int = 0) -> dict[str, Any]:
    """What another ``party`` shows, beside the active party's ``own`` columns.

    ``least``: where sums are hidden, fewer steps than these are told as none.
    """
    columns = [
        _shown_column(number, column, own.label, least)
        for number, column in enumerate(shown.columns, 1)
    ]
    told: dict[str, Any] = {"columns": columns}
    if shown.correlations is not None:
        told |= _correlations(shown.correlations, own.numbers, columns)
    elif own.numbers.columns:
        told["uncorrelated"] = (
            f'{party} tells no correlations: correlation = "shown" in its [policy] would allow '
            "them, of columns of numbers whose variance a group of people carries"
        )
    return told


def _correlations(
    shown: ShownCorrelations, own: CorrelatedNumbers, columns: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The coefficients of another party's columns, to whose ``columns`` inflation is added."""
    whole = np.block([[shown.own, shown.joint], [shown.joint.T, own.coefficients]])
    inflation = [_number(each) for each in rounded_inflation(whole).tolist()]
    theirs = len(shown.columns)
    for column, factor in zip(shown.columns, inflation[:theirs], strict=True):
        columns[column - 1]["vif"] = factor
    return {
        "correlation": {"columns": list(shown.columns), "coefficients": shown.own.tolist()},
        "joint": {
            "columns": list(own.columns),
            "coefficients": shown.joint.tolist(),
            "vif": inflation[theirs:],
        },
    }


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two passive ``parties``; ``coefficients`` float64 (second's, first's columns), or why not."""

    parties: tuple[str, str]
    coefficients: NDArray[np.float64] | None
    refused: str = ""


def add_pairs(
    told: Mapping[str, dict[str, Any]],
    own: LabelledColumns,
    shown: Mapping[str, ShownCorrelations],
    pairs: Sequence[Pair],
) -> None:
    """Add to what parties have ``told`` how the columns of each of ``pairs`` are correlated.

    Where all parties that correlate do so with one another, inflation is by all of them.
    """
    known: dict[tuple[str, str], NDArray[np.float64]] = {}
    for pair in pairs:
        first, second = pair.parties
        if pair.coefficients is None:
            told[first].setdefault("among", {})[second] = {"refused": pair.refused}
            continue
        known[first, second] = pair.coefficients.T
        known[second, first] = pair.coefficients
        told[first].setdefault("among", {})[second] = {
            "coefficients": known[first, second].tolist()
        }
    parties = list(shown)
    if len(parties) < 2 or len(known) < len(parties) * (len(parties) - 1):
        return
    blocks = [
        [
            *(shown[one].own if one == other else known[one, other] for other in parties),
            shown[one].joint,
        ]
        for one in parties
    ]
    last = [*(shown[one].joint.T for one in parties), own.numbers.coefficients]
    inflation = [_number(each) for each in rounded_inflation(np.block([*blocks, last])).tolist()]
    for party in parties:
        for column in shown[party].columns:
            told[party]["columns"][column - 1]["vif"] = inflation.pop(0)
    active = next(iter(told.values()))
    active["whole"] = {"columns": list(own.numbers.columns), "vif": inflation}


def _shown_column(
    number: int, column: ShownColumn, label: ScreenedLabel, least: int
) -> dict[str, Any]:
    """A column of another party, which tells no fewer steps than ``least``."""
    found = column.described
    described = {
        "column": number,
        "name": found.name or None,
        "type": found.type,
        "missing": found.missing / 100,
        "distinct": found.distinct,
    }
    if column.steps is not None:
        return described | _in_steps(column.steps, least)
    if column.by_bin is None:
        return described
    return described | label.told_by(found.counts.numpy(), column.by_bin)


def _in_steps(steps: int, least: int) -> dict[str, float | None]:
    """An information value as hidden sums tell it: from ``iv`` on, and below ``iv_below``.

    None: it may be any above.
    """
    above = max(steps + 1, least if steps == 0 else 0)
    return {
        "iv": round(steps * STEP, 2),
        "iv_below": None if steps == MOST_STEPS else round(above * STEP, 2),
    }


def selected(parties: Mapping[str, Any], rule: SelectSection) -> dict[str, list[int]]:
    """By party, the numbers of the columns that meet ``rule``; a party that refused has none.

    The strongest come first, as in `strength`; equal ones in the order of the parties, and of their
    columns. With
    ``correlation``, a column that is too much like a stronger one of its party is left out, where
    the party's correlations are known.
    """
    meeting = [
        (strength(column), party, column["column"])
        for party, told in parties.items()
        for column in told.get("columns", ())
        if (rule.missing is None or column["missing"] <= rule.missing)
        and (rule.iv is None or column.get("iv", -1.0) >= rule.iv)
        and (rule.p is None or column.get("p", 2.0) <= rule.p)
        and (rule.top is None or strength(column) > strength({}))
    ]
    strongest: list[tuple[tuple[float, float], str, int]] = []
    for each in sorted(meeting, key=lambda found: found[0], reverse=True):
        if rule.correlation is None or not any(
            abs(_coefficient(parties[each[1]], each[2], number)) > rule.correlation
            for _, owner, number in strongest
            if owner == each[1]
        ):
            strongest.append(each)
    strongest = strongest[: rule.top]
    return {
        party: sorted(number for _, owner, number in strongest if owner == party)
        for party in parties
    }


def selection_of(
    screen: MadeScreen, party: str, partners: Sequence[str], rule: TrainingSelection
) -> ColumnSelection:
    """What ``rule`` selects of the ``screen`` of ``party``, for a training with ``partners``.

    Whether a column is selected does not depend on who takes part in the training.

    Raises:
        ConfigError: nobody has looked at the columns of a party, or none of them is selected.
    """
    judged = rule.parties or (party, *partners)
    for name in judged:
        if name not in screen.parties:
            raise ConfigError(
                f"select: screen {screen.name!r} has not looked at {name}{_OTHERWISE}"
            )
        if "refused" in screen.parties[name]:
            raise ConfigError(
                f"select: {name} has not shown its columns in screen {screen.name!r}{_OTHERWISE}"
            )
    about = (
        screen.parties if rule.parties is None else {name: screen.parties[name] for name in judged}
    )
    found = selected(about, rule)
    for name in judged:
        if not found[name]:
            said = ", ".join(f"{key} = {value}" for key, value in rule.rule.items())
            raise ConfigError(
                f"select: no column of {name} is selected by {said} in screen {screen.name!r}"
                f"{_OTHERWISE}"
            )
    own = None
    if party in judged:
        own = OwnChoice(screen=screen.name, numbered=screen.numbered, numbers=tuple(found[party]))
    return ColumnSelection(
        screen=screen.name,
        made=screen.made,
        own=own,
        others={
            name: PeerChoice(
                numbers=tuple(found[name]),
                of=len(screen.parties[name]["columns"]),
                session=screen.sessions[name],
            )
            for name in partners
            if name in judged
        },
        rule=rule.rule,
        alignment=screen.alignment,
        rows=screen.rows,
        looked_at=screen.looked_at,
    )


_OTHERWISE = (
    "; make another screen, leave the party out of the training with parties, or let it train with "
    "all of its columns: name the others in select.parties"
)


def _coefficient(told: Mapping[str, Any], one: int, other: int) -> float:
    """The correlation of two columns of a party; 0 where nobody knows it."""
    known = told.get("correlation", {"columns": []})["columns"]
    if one not in known or other not in known:
        return 0.0
    return told["correlation"]["coefficients"][known.index(one)][known.index(other)] or 0.0
