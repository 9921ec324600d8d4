"""A dossier as one HTML file that loads nothing from the network, and as PDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedmq.errors import ConfigError
from fedmq.evaluation.dossier import Dossier, Section
from fedmq.evaluation.page import cell, page_of
from fedmq.evaluation.report import ReportTable

__all__ = ["html_of_dossier", "pdf_of_dossier"]

_MOST_COLUMNS = 9  # of a table on a page of paper; the others are in the HTML


def html_of_dossier(dossier: Dossier) -> str:
    """The page of ``dossier``.

    Raises:
        ConfigError: Jinja2 is not installed.
    """
    return page_of("dossier.html.jinja", dossier=dossier)


def pdf_of_dossier(dossier: Dossier) -> bytes:
    """The ``dossier`` on pages of paper; letters beyond Latin-1 are question marks there.

    Raises:
        ConfigError: fpdf2 is not installed.
    """
    try:
        import fpdf
    except ImportError:
        raise ConfigError("fpdf2 is not installed; run: pip install 'fedmq[report]'") from None
    pages = fpdf.FPDF(format="A4")
    pages.set_title(f"Dossier of {dossier.model}")
    pages.add_page()
    _write(pages, f"Dossier of {dossier.model}", size=18, style="B")
    _write(pages, f"By {dossier.party}, {dossier.made}", size=9)
    for number, section in enumerate(dossier.sections, start=1):
        _section(pages, number, section)
    return bytes(pages.output())


def _section(pages: Any, number: int, section: Section) -> None:
    pages.ln(4)
    pages.start_section(_printable(section.title))
    _write(pages, f"{number}. {section.title}", size=13, style="B")
    _write(pages, section.answers, size=8, style="I")
    if section.facts:
        _table(pages, [[name, fact] for name, fact in section.facts.items()], headed=False)
    for found in section.tables:
        _write(pages, found.name, size=10, style="B")
        _table(pages, _shown(found))
    if section.missing:
        _write(pages, "Not here", size=10, style="B")
        for line in section.missing:
            _write(pages, f"- {line}", size=9)


def _shown(table: ReportTable) -> list[list[str]]:
    rows = [[cell(value) for value in row[:_MOST_COLUMNS]] for row in table.rows]
    return [[*table.headers[:_MOST_COLUMNS]], *rows]


def _table(pages: Any, rows: Sequence[Sequence[str]], headed: bool = True) -> None:
    pages.set_font("helvetica", size=8)
    with pages.table(
        borders_layout="HORIZONTAL_LINES", text_align="LEFT", first_row_as_headings=headed
    ) as made:
        for row in rows:
            line = made.row()
            for value in row:
                line.cell(_printable(str(value)))
    pages.ln(2)


def _write(pages: Any, text: str, size: int, style: str = "") -> None:
    pages.set_font("helvetica", style=style, size=size)
    pages.multi_cell(0, text=_printable(text), new_x="LMARGIN", new_y="NEXT")


def _printable(text: str) -> str:
    return text.encode("latin-1", "replace").decode("latin-1")
