"""A screen as a report: the columns of each party, the strongest first, and those that refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmq.boosting.screened_label import LabelType, strength
from fedmq.errors import ConfigError
from fedmq.evaluation.page import html_of
from fedmq.evaluation.report import Cell, Map, Report, ReportTable

__all__ = [
    "FIGURES",
    "Screen",
    "alike_columns",
    "columns_of",
    "figure_of",
    "label_in_words",
    "label_type",
    "own_page",
    "screen_page",
    "screen_report",
    "title_of",
]

FIGURES: Mapping[LabelType, tuple[str, ...]] = {
    "binary": ("iv", "ks", "auc"),
    "classes": ("chi2", "p"),
    "number": ("f", "p"),
}
"""What tells a label of this type, in the order of a table."""

_ABOUT: Mapping[LabelType, str] = {
    "binary": "IV, KS and AUC are those of a column alone, of its weight of evidence by bin.",
    "classes": "Chi-square is that of the people of bins and classes; p is its p-value.",
    "number": "F compares the label between bins with the label within them; p is its p-value.",
}
_SHOWN = 20  # columns of each party whose bins the page has, and pairs that are alike
_MAPPED = 40  # columns of the map of correlations
_ALIKE = 0.5  # beyond it two columns are named


@dataclass(frozen=True, slots=True)
class Screen:
    """What a look at columns found: ``found`` is what ``fedmq screen --json`` prints."""

    found: Mapping[str, Any]

    @property
    def columns(self) -> list[dict[str, Any]]:
        """All columns as plain data, each with its ``party``: the strongest first."""
        return columns_of(self.found)

    def to_pandas(self) -> Any:
        """A pandas data frame with a row for each column, the strongest first; without bins.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("pandas is not installed; run: pip install pandas") from None
        wanted = ["party", "column", "name", "type", "missing", "distinct"]
        figures = FIGURES[label_type(self.found)]
        if self.found.get("sums") == "hidden":
            figures = ("iv", "iv_below", *figures[1:])
        wanted += dict.fromkeys((*figures, *(["chi2", "p"] if "iv" in figures else ()), "vif"))
        if self.found["selected"] is not None:
            wanted.append("selected")
        return pandas.DataFrame(self.columns, columns=wanted)

    @property
    def correlation(self) -> Any:
        """Pearson's coefficients of the columns of numbers that are known, as a pandas data frame.

        Those of other parties begin with the party's name; NaN is what nobody told.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("pandas is not installed; run: pip install pandas") from None
        active = next(iter(self.found["parties"]))
        named, found = _matrix(self.found)
        names = [title if party == active else f"{party}: {title}" for party, title in named]
        return pandas.DataFrame(found, index=names, columns=names, dtype=float)

    def write_html(self, path: str | Path) -> None:
        """Write the page that ``fedmq screen --output`` writes.

        Raises:
            ConfigError: Jinja2 is not installed.
        """
        Path(path).write_text(screen_page(self.found), encoding="utf-8")


def title_of(column: Mapping[str, Any]) -> str:
    """The name of a column, or its number at its owner where names are private."""
    return column["name"] or f"column {column['column']}"


def figure_of(column: Mapping[str, Any], name: str) -> float | str | None:
    """A figure of a column; of an information value in steps, because sums are hidden, the step."""
    if name != "iv" or "iv_below" not in column:
        return column.get(name)
    if column["iv_below"] is None:
        return f"{column['iv']:.2f} or more"
    return f"{column['iv']:.2f} to {column['iv_below']:.2f}"


def label_type(screen: Mapping[str, Any]) -> LabelType:
    """What the label of a ``screen`` is; earlier versions looked at binary ones alone."""
    found: LabelType = screen.get("label_type", "binary")
    return found


def label_in_words(screen: Mapping[str, Any]) -> str:
    """What is known of the label of a ``screen``: ``1,200 with label 1``."""
    if label_type(screen) == "binary":
        return f"{screen['ones']:,} with label 1"
    if label_type(screen) == "classes":
        return f"of classes {', '.join(f'{people:,}' for people in screen['classes'])}"
    return f"label {screen['mean']:.4g} on average, deviation {screen['deviation']:.4g}"


def columns_of(screen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All columns that a ``screen`` shows, each with its ``party``: the strongest first.

    ``selected`` says whether the screen's rule selects it, where there is one.
    """
    chosen = screen["selected"]
    found = [
        {"party": party, **column}
        | ({} if chosen is None else {"selected": column["column"] in chosen[party]})
        for party, told in screen["parties"].items()
        for column in told.get("columns", ())
    ]
    return sorted(found, key=strength, reverse=True)


def screen_page(screen: Mapping[str, Any]) -> str:
    """The page of a ``screen`` as HTML.

    Raises:
        ConfigError: Jinja2 is not installed.
    """
    return html_of(screen_report(screen), tuple(_maps(screen)))


def own_page(found: Mapping[str, Any]) -> str:
    """The page that ``fedmq data correlation`` writes of a party's own columns.

    Raises:
        ConfigError: Jinja2 is not installed.
    """
    [told] = found["parties"].values()
    inflated = ReportTable(
        name="Columns",
        headers=("column", "vif"),
        rows=tuple((title_of(column), column["vif"]) for column in told["columns"]),
        about="VIF, the variance inflation factor, says how well the other columns tell a column.",
    )
    report = Report(
        model=found["party"],
        made=datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        facts={"rows": f"{found['rows']:,}"},
        metrics={},
        tables=(inflated, *_alike(found)),
    )
    return html_of(report, tuple(_maps(found)))


def alike_columns(screen: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Pairs of columns with a coefficient beyond 0.5, those that are most alike first."""
    return sorted(_pairs(screen), key=lambda pair: -abs(pair[2]))


def _alike(screen: Mapping[str, Any]) -> Iterator[ReportTable]:
    pairs = alike_columns(screen)
    if pairs:
        yield ReportTable(
            name="Columns that are alike",
            headers=("column", "column", "correlation"),
            rows=tuple(pairs[:_SHOWN]),
            about=f"Those with a coefficient beyond {_ALIKE}, as far as it is known.",
        )


def screen_report(screen: Mapping[str, Any]) -> Report:
    """The page of a ``screen``, as plain data describe it."""
    return Report(
        model=screen["screen"],
        made=datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        facts={
            "people": f"{screen['looked_at']:,} of {screen['rows']:,}",
            **dict(_label(screen)),
            "bins": f"at most {screen['bins']}",
            "parties": ", ".join(screen["parties"]),
            **dict(_selection(screen)),
            **{
                f"{party} refused": told["refused"]
                for party, told in screen["parties"].items()
                if "refused" in told
            },
            **{
                f"{party}, correlations": told["uncorrelated"]
                for party, told in screen["parties"].items()
                if "uncorrelated" in told
            },
            **{
                f"{party} beside {other}": between["refused"]
                for party, told in screen["parties"].items()
                for other, between in told.get("among", {}).items()
                if "refused" in between
            },
        },
        metrics={},
        tables=tuple(_tables(screen)),
    )


def _in_steps(screen: Mapping[str, Any]) -> str:
    """What is said of columns whose sums are hidden."""
    if screen.get("sums") != "hidden":
        return ""
    return (
        " Of other parties' columns sums are hidden: IV is told in steps of 0.02, from "
        f"{screen['iv_from']:g} on; there is no KS and no AUC."
    )


def _label(screen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if label_type(screen) == "binary":
        yield "label 1", f"{screen['ones']:,}"
    else:
        yield "label", label_in_words(screen)


def _selection(screen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The rule of a screen and how many columns it selects, as facts."""
    if screen["select"] is not None:
        rule = ", ".join(f"{key} = {value:g}" for key, value in screen["select"].items())
        number = sum(map(len, screen["selected"].values()))
        yield "selected", f"{number:,} of {len(columns_of(screen)):,} columns, by {rule}"


def _tables(screen: Mapping[str, Any]) -> Iterator[ReportTable]:
    columns, label = columns_of(screen), label_type(screen)
    figures = FIGURES[label]
    rows: list[tuple[Cell, ...]] = [
        (f"{column['party']}: {title_of(column)}", *_figures(column, figures)) for column in columns
    ]
    yield ReportTable(
        name="Columns",
        headers=(
            "column",
            "type",
            "missing",
            "distinct values",
            *FIGURES[label],
            "vif",
            "selected",
        ),
        rows=tuple(rows),
        about=f"{_ABOUT[label]}{_in_steps(screen)} VIF, the variance inflation factor, says how "
        "well other columns tell it: of the active party its own, of another party its own and the "
        "active party's, and those of all others where these are known, by coefficients in "
        "hundredths.",
    )
    for party, told in screen["parties"].items():
        if "joint" in told:
            names = _names(next(iter(screen["parties"].values())), told["joint"]["columns"])
            yield ReportTable(
                name=f"Own columns beside those of {party}",
                headers=("column", "vif"),
                rows=tuple(zip(names, told["joint"]["vif"], strict=True)),
                about="By coefficients in hundredths: what two digits do not tell from a sum of "
                "other columns is infinite.",
            )
    active = next(iter(screen["parties"].values()))
    if "whole" in active:
        yield ReportTable(
            name="Own columns beside those of all",
            headers=("column", "vif"),
            rows=tuple(
                zip(_names(active, active["whole"]["columns"]), active["whole"]["vif"], strict=True)
            ),
        )
    yield from _alike(screen)
    for column in [column for column in columns if column.get("bins")][:_SHOWN]:
        yield _of_bins(f"{column['party']}: {title_of(column)}", column["bins"], label)


def _of_bins(name: str, bins: Sequence[Mapping[str, Any]], label: LabelType) -> ReportTable:
    rows: list[tuple[Cell, ...]]
    if label == "binary":
        headers: tuple[str, ...] = ("label 1", "share", "weight of evidence")
        about = "Bins stand by their weight of evidence, not by the values in them."
        rows = [
            (found["people"], found["ones"], found["ones"] / found["people"], found["woe"])
            for found in sorted(bins, key=lambda found: found["woe"])
        ]
    elif label == "classes":
        headers = tuple(f"class {number}" for number in range(len(bins[0]["classes"])))
        about = "Bins stand by the people in them, not by the values."
        rows = [
            (found["people"], *found["classes"])
            for found in sorted(bins, key=lambda found: -found["people"])
        ]
    else:
        headers, about = ("mean label",), "Bins stand by their mean label, not by the values."
        rows = [
            (found["people"], found["mean"])
            for found in sorted(bins, key=lambda found: found["mean"])
        ]
    numbered = tuple((number, *row) for number, row in enumerate(rows, start=1))
    return ReportTable(name=name, headers=("bin", "people", *headers), rows=numbered, about=about)


def _names(told: Mapping[str, Any], numbers: Sequence[int]) -> list[str]:
    """The names of a party's columns with these ``numbers``."""
    names = {column["column"]: title_of(column) for column in told.get("columns", ())}
    return [names[number] for number in numbers]


def _matrix(screen: Mapping[str, Any]) -> tuple[list[tuple[str, str]], list[list[float | None]]]:
    """Party and title of each column of numbers, and all coefficients: None where nobody knows."""
    parties = screen["parties"]
    active = next(iter(parties))
    columns = [
        (party, number)
        for party, told in parties.items()
        for number in told.get("correlation", {"columns": ()})["columns"]
    ]
    known: dict[tuple[tuple[str, int], tuple[str, int]], float | None] = {}
    for party, told in parties.items():
        if "correlation" not in told:
            continue
        own = [(party, number) for number in told["correlation"]["columns"]]
        blocks = [(own, own, told["correlation"]["coefficients"])]
        if "joint" in told:
            beside = [(active, number) for number in told["joint"]["columns"]]
            blocks.append((own, beside, told["joint"]["coefficients"]))
        for other_party, between in told.get("among", {}).items():
            if "coefficients" in between:
                across = [
                    (other_party, number)
                    for number in parties[other_party]["correlation"]["columns"]
                ]
                blocks.append((own, across, between["coefficients"]))
        for down, across, coefficients in blocks:
            for one, row in zip(down, coefficients, strict=True):
                for other, coefficient in zip(across, row, strict=True):
                    known[one, other] = known[other, one] = coefficient
    named = [(party, *_names(parties[party], [number])) for party, number in columns]
    return named, [[known.get((one, other)) for other in columns] for one in columns]


def _pairs(screen: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    named, found = _matrix(screen)
    active = next(iter(screen["parties"]))
    names = [title if party == active else f"{party}: {title}" for party, title in named]
    for one, row in enumerate(found):
        for other, coefficient in enumerate(row[:one]):
            if coefficient is not None and abs(coefficient) > _ALIKE:
                yield names[other], names[one], coefficient


def _maps(screen: Mapping[str, Any]) -> Iterator[Map]:
    """The coefficients as a picture, of the columns that are most like another one."""
    named, found = _matrix(screen)
    likest = [
        max((abs(value or 0.0) for other, value in enumerate(row) if other != one), default=0.0)
        for one, row in enumerate(found)
    ]
    shown = sorted(sorted(range(len(named)), key=lambda one: -likest[one])[:_MAPPED])
    if len(shown) > 1:
        most = f" The {_MAPPED} columns that are most like another one." * (len(named) > _MAPPED)
        yield Map(
            name="Correlation of columns of numbers",
            names=tuple(f"{named[one][0]}: {named[one][1]}" for one in shown),
            values=tuple(tuple(found[one][other] for other in shown) for one in shown),
            about="Pearson's coefficients: blue above 0, brown below, the stronger the fuller; an "
            f"empty field is one that nobody told.{most}",
        )


def _figures(column: Mapping[str, Any], names: Sequence[str]) -> tuple[Cell, ...]:
    missing = f"{column['missing']:.0%}"
    figures = tuple(figure_of(column, name) for name in (*names, "vif"))
    selected = "yes" if column.get("selected") else None
    return column["type"], missing, column["distinct"], *figures, selected
