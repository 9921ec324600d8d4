"""A dossier as data, as one HTML file that loads nothing from the network, and as PDF."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Container, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedmq.errors import ConfigError
from fedmq.evaluation.page import HEIGHT, cell, drawing, page_of
from fedmq.evaluation.report import Chart, ReportTable
from fedmq.party.atomic_file import write_whole

__all__ = ["Dossier", "Section", "html_of_dossier", "pdf_of_dossier"]

_MOST_COLUMNS = 9  # of a table on a page of paper; the others are in the HTML

_FACES = {"": "DejaVuSans.ttf", "B": "DejaVuSans-Bold.ttf", "I": "DejaVuSans-Oblique.ttf"}
_SYSTEM_FONTS = (Path("/usr/share/fonts/truetype/dejavu"), Path("/usr/share/fonts/TTF"))
_WORDS = {
    "\N{LATIN SMALL LETTER L WITH STROKE}": "l",
    "\N{LATIN CAPITAL LETTER L WITH STROKE}": "L",
    "\N{LATIN SMALL LETTER D WITH STROKE}": "d",
    "\N{LATIN CAPITAL LETTER D WITH STROKE}": "D",
    "\N{LATIN SMALL LETTER DOTLESS I}": "i",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
}
"""Letters that Unicode does not take apart."""

_MM = 0.2  # millimetres on paper of a pixel on the page
_CHART_HEIGHT = HEIGHT * _MM + 6
_GRID = (213, 218, 224)
_COLOURS = ((31, 95, 191), (179, 84, 30), (45, 122, 63), (122, 63, 160))
_POINT = re.compile(r"(-?[\d.]+),(-?[\d.]+)")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Section(_Part):
    """A heading, the points of either text that it ``answers``, and what stands below it.

    ``missing``: what is not there, one line each, with the command that makes it.
    """

    title: str
    answers: str
    facts: dict[str, str] = {}
    charts: tuple[Chart, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    missing: tuple[str, ...] = ()


class Dossier(_Part):
    """The dossier of ``model`` by ``party``, made at ``made``."""

    format: Literal["fedmq.dossier"] = "fedmq.dossier"
    version: Annotated[int, Field(ge=1, le=1)] = 1
    model: str
    party: str
    made: str
    sections: tuple[Section, ...]

    def write(self, path: Path | str) -> None:
        """Write it as .html, .pdf or .json, by the end of the name; only its owner reads the file.

        Raises:
            ConfigError: the name has another end, a package is missing, or the disk refuses.
        """
        path = Path(path)
        if path.suffix == ".html":
            content = html_of_dossier(self).encode()
        elif path.suffix == ".pdf":
            content = pdf_of_dossier(self)
        elif path.suffix == ".json":
            content = self.model_dump_json(indent=2).encode()
        else:
            raise ConfigError(f"{path}: name a file that ends in .html, .pdf or .json")
        # Reasons of single people may stand in it, and names of own columns do.
        write_whole(path, content, 0o600)

    @property
    def missing(self) -> list[str]:
        """What is not there, of all sections, each with what makes it."""
        return [line for section in self.sections for line in section.missing]


def html_of_dossier(dossier: Dossier) -> str:
    """The page of ``dossier``.

    Raises:
        ConfigError: Jinja2 is not installed.
    """
    return page_of("dossier.html.jinja", dossier=dossier)


def pdf_of_dossier(dossier: Dossier) -> bytes:
    """The ``dossier`` on pages of paper, in DejaVu Sans where it is installed.

    Letters that the font lacks stand without their marks, or as ``?``, and the first page says so.

    Raises:
        ConfigError: fpdf2 is not installed.
    """
    try:
        import fpdf
    except ImportError:
        raise ConfigError("fpdf2 is not installed; run: pip install 'fedmq[report]'") from None
    logging.getLogger("fontTools").setLevel(logging.ERROR)  # it tells of every table of a font
    return _Paper(fpdf.FPDF(format="A4"), _font_folder()).written(dossier)


def _font_folder() -> Path | None:
    """Where DejaVu Sans is: beside matplotlib, which brings it, or on the system."""
    spec = find_spec("matplotlib")
    places = [] if spec is None else [*(spec.submodule_search_locations or ())]
    folders = [Path(place) / "mpl-data" / "fonts" / "ttf" for place in places]
    return next(
        (
            folder
            for folder in (*folders, *_SYSTEM_FONTS)
            if all((folder / file).is_file() for file in _FACES.values())
        ),
        None,
    )


class _Paper:
    """Writes a dossier onto ``pages``, with the font in the folder ``fonts`` if there is one."""

    def __init__(self, pages: Any, fonts: Path | None) -> None:
        self._pages = pages
        self._font = "helvetica"
        self._known: Container[int] = range(256)  # Latin-1, of the fonts that every reader has
        self._lacking = False
        if fonts is not None:
            self._font = "dejavu"
            for style, file in _FACES.items():
                pages.add_font(self._font, style, fonts / file)
            self._known = pages.fonts[self._font].cmap

    def written(self, dossier: Dossier) -> bytes:
        """The file."""
        pages = self._pages
        self._lacking = any(map(self._lacks, _texts(dossier)))
        pages.set_title(self._printable(f"Dossier of {dossier.model}"))
        pages.add_page()
        self._write(f"Dossier of {dossier.model}", size=18, style="B")
        self._write(f"By {dossier.party}, {dossier.made}", size=9)
        if self._lacking:
            more = "" if self._font == "dejavu" else "; pip install 'fedmq[audit]' brings more"
            self._write(
                "Some letters are not in the fonts of this file: they stand without their marks, "
                f"or as a question mark. The same dossier as .html has them all{more}.",
                size=9,
            )
        for number, section in enumerate(dossier.sections, start=1):
            self._section(number, section)
        return bytes(pages.output())

    def _section(self, number: int, section: Section) -> None:
        self._pages.ln(4)
        self._pages.start_section(self._printable(section.title))
        self._write(f"{number}. {section.title}", size=13, style="B")
        self._write(section.answers, size=8, style="I")
        if section.facts:
            self._table([[name, fact] for name, fact in section.facts.items()], headed=False)
        for chart in section.charts:
            self._chart(chart)
        for found in section.tables:
            self._write(found.name, size=10, style="B")
            if found.about:
                self._write(found.about, size=8)
            self._table(_shown(found))
        if section.missing:
            self._write("Not here", size=10, style="B")
            for line in section.missing:
                self._write(f"- {line}", size=9)

    def _table(self, rows: Sequence[Sequence[str]], headed: bool = True) -> None:
        self._pages.set_font(self._font, size=8)
        with self._pages.table(
            borders_layout="HORIZONTAL_LINES", text_align="LEFT", first_row_as_headings=headed
        ) as made:
            for row in rows:
                line = made.row()
                for value in row:
                    line.cell(self._printable(str(value)))
        self._pages.ln(2)

    def _chart(self, chart: Chart) -> None:
        """The chart's lines between axes, below its name."""
        pages, drawn = self._pages, drawing(chart)
        if pages.get_y() + _CHART_HEIGHT + 8 > pages.h - pages.b_margin:
            pages.add_page()
        self._write(chart.name, size=10, style="B")
        left, top = pages.l_margin, pages.get_y()

        def at(x: float, y: float) -> tuple[float, float]:
            return left + x * _MM, top + y * _MM

        pages.set_font(self._font, size=6)
        pages.set_draw_color(*_GRID)
        pages.set_line_width(0.1)
        for tick in drawn.x_ticks:
            pages.line(*at(tick.place, drawn.top), *at(tick.place, drawn.bottom))
            x, y = at(tick.place, drawn.bottom + 15)
            pages.text(x - pages.get_string_width(tick.text) / 2, y, tick.text)
        for tick in drawn.y_ticks:
            pages.line(*at(drawn.left, tick.place), *at(drawn.right, tick.place))
            x, y = at(drawn.left - 6, tick.place + 4)
            pages.text(x - pages.get_string_width(tick.text), y, tick.text)
        pages.set_line_width(0.4)
        for place, path in enumerate(drawn.paths):
            pages.set_draw_color(*_COLOURS[place % len(_COLOURS)])
            points = [at(float(x), float(y)) for x, y in _POINT.findall(path)]
            if len(points) > 1:
                pages.polyline(points)
        axes = self._printable(f"{chart.y} over {chart.x}: ")
        pages.set_y(top + _CHART_HEIGHT - 7)
        pages.write(3, axes)
        for place, name in enumerate(drawn.names):
            pages.set_text_color(*_COLOURS[place % len(_COLOURS)])
            pages.write(3, self._printable(f"\u2014 {name}   "))
        pages.set_text_color(0)
        pages.set_draw_color(0)
        pages.set_line_width(0.2)
        pages.ln(5)

    def _write(self, text: str, size: int, style: str = "") -> None:
        self._pages.set_font(self._font, style=style, size=size)
        self._pages.multi_cell(0, text=self._printable(text), new_x="LMARGIN", new_y="NEXT")

    def _lacks(self, text: str) -> bool:
        return any(ord(letter) not in self._known for letter in text if letter.isprintable())

    def _printable(self, text: str) -> str:
        if not self._lacks(text):
            return text
        return "".join(
            letter if ord(letter) in self._known else self._alike(letter) for letter in text
        )

    def _alike(self, letter: str) -> str:
        """The letters of the font that stand for ``letter``: without its marks, or ``?``."""
        parts = _WORDS.get(letter) or unicodedata.normalize("NFKD", letter)
        return "".join(part for part in parts if ord(part) in self._known) or "?"


def _texts(dossier: Dossier) -> Iterator[str]:
    """All that a dossier says."""
    yield dossier.model
    for section in dossier.sections:
        yield from (*section.facts, *section.facts.values(), *section.missing)
        for table in section.tables:
            yield from (table.name, *table.headers)
            yield from (str(value) for row in table.rows for value in row)


def _shown(table: ReportTable) -> list[list[str]]:
    rows = [[cell(value) for value in row[:_MOST_COLUMNS]] for row in table.rows]
    return [[*table.headers[:_MOST_COLUMNS]], *rows]
