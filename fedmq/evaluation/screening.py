"""A screen as a report: the columns of each party, the strongest first, and those that refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError
from fedmq.evaluation.page import html_of
from fedmq.evaluation.report import Cell, Report, ReportTable

__all__ = ["Screen", "columns_of", "screen_report", "title_of"]

_HEADERS = ("column", "type", "missing", "distinct values", "iv", "ks", "auc", "vif", "selected")
_SHOWN = 20  # columns of each party whose bins the page has, and pairs that are alike
_ALIKE = 0.5


@dataclass(frozen=True, slots=True)
class Screen:
    """What a look at columns found: ``found`` is what ``fedmq screen --json`` prints."""

    found: Mapping[str, Any]

    @property
    def columns(self) -> list[dict[str, Any]]:
        """All columns as plain data, each with its ``party``: the highest IV first."""
        return columns_of(self.found)

    def to_pandas(self) -> Any:
        """A pandas data frame with a row for each column, the highest IV first; without bins.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("pandas is not installed; run: pip install pandas") from None
        wanted = [
            "party",
            "column",
            "name",
            "type",
            "missing",
            "distinct",
            "iv",
            "ks",
            "auc",
            "vif",
        ]
        if self.found["selected"] is not None:
            wanted.append("selected")
        return pandas.DataFrame(self.columns, columns=wanted)

    @property
    def correlation(self) -> Any:
        """Pearson's coefficients of the active party's columns of numbers, as a pandas data frame.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("pandas is not installed; run: pip install pandas") from None
        _, told = next(iter(self.found["parties"].items()))
        names = _names(told)
        found = told.get("correlation", {"coefficients": []})["coefficients"]
        return pandas.DataFrame(found, index=names, columns=names, dtype=float)

    def write_html(self, path: str | Path) -> None:
        """Write the page that ``fedmq screen --output`` writes.

        Raises:
            ConfigError: Jinja2 is not installed.
        """
        Path(path).write_text(html_of(screen_report(self.found)), encoding="utf-8")


def title_of(column: Mapping[str, Any]) -> str:
    """The name of a column, or its number at its owner where names are private."""
    return column["name"] or f"column {column['column']}"


def columns_of(screen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All columns that a ``screen`` shows, each with its ``party``: the highest IV first.

    ``selected`` says whether the screen's rule selects it, where there is one.
    """
    chosen = screen["selected"]
    found = [
        {"party": party, **column}
        | ({} if chosen is None else {"selected": column["column"] in chosen[party]})
        for party, told in screen["parties"].items()
        for column in told.get("columns", ())
    ]
    return sorted(found, key=lambda column: -column.get("iv", -1.0))


def screen_report(screen: Mapping[str, Any]) -> Report:
    """The page of a ``screen``, as plain data describe it."""
    return Report(
        model=screen["screen"],
        made=datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        facts={
            "people": f"{screen['looked_at']:,} of {screen['rows']:,}",
            "label 1": f"{screen['ones']:,}",
            "bins": f"at most {screen['bins']}",
            "parties": ", ".join(screen["parties"]),
            **dict(_selection(screen)),
            **{
                f"{party} refused": told["refused"]
                for party, told in screen["parties"].items()
                if "refused" in told
            },
        },
        metrics={},
        tables=tuple(_tables(screen)),
    )


def _selection(screen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The rule of a screen and how many columns it selects, as facts."""
    if screen["select"] is not None:
        rule = ", ".join(f"{key} = {value:g}" for key, value in screen["select"].items())
        number = sum(map(len, screen["selected"].values()))
        yield "selected", f"{number:,} of {len(columns_of(screen)):,} columns, by {rule}"


def _tables(screen: Mapping[str, Any]) -> Iterator[ReportTable]:
    columns = columns_of(screen)
    rows: list[tuple[Cell, ...]] = [
        (f"{column['party']}: {title_of(column)}", *_figures(column)) for column in columns
    ]
    yield ReportTable(
        name="Columns",
        headers=_HEADERS,
        rows=tuple(rows),
        about="IV, KS and AUC are those of a column alone, of its weight of evidence by bin. VIF, "
        "the variance inflation factor, says how well the active party's other columns tell it.",
    )
    pairs = sorted(_pairs(screen), key=lambda pair: -abs(pair[2]))
    if pairs:
        yield ReportTable(
            name="Columns that are alike",
            headers=("column", "column", "correlation"),
            rows=tuple(pairs[:_SHOWN]),
            about=f"Of the active party, those with a coefficient beyond {_ALIKE}.",
        )
    for column in [column for column in columns if column.get("bins")][:_SHOWN]:
        bins: list[tuple[Cell, ...]] = [
            (number, found["people"], found["ones"], found["ones"] / found["people"], found["woe"])
            for number, found in enumerate(
                sorted(column["bins"], key=lambda found: found["woe"]), start=1
            )
        ]
        yield ReportTable(
            name=f"{column['party']}: {title_of(column)}",
            headers=("bin", "people", "label 1", "share", "weight of evidence"),
            rows=tuple(bins),
            about="Bins stand by their weight of evidence, not by the values in them.",
        )


def _names(told: Mapping[str, Any]) -> list[str]:
    """The names of the columns whose correlations a party told."""
    names = {column["column"]: title_of(column) for column in told.get("columns", ())}
    return [names[number] for number in told.get("correlation", {"columns": []})["columns"]]


def _pairs(screen: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    for told in screen["parties"].values():
        if "correlation" in told:
            names, found = _names(told), told["correlation"]["coefficients"]
            for one, row in enumerate(found):
                for other in range(one):
                    if row[other] is not None and abs(row[other]) > _ALIKE:
                        yield names[other], names[one], row[other]


def _figures(column: Mapping[str, Any]) -> tuple[Cell, ...]:
    missing = f"{column['missing']:.0%}"
    figures = tuple(column.get(name) for name in ("iv", "ks", "auc", "vif"))
    selected = "yes" if column.get("selected") else None
    return column["type"], missing, column["distinct"], *figures, selected
