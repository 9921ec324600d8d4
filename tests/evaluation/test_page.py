"""The page of a report shows its numbers, and nothing that anybody wrote becomes markup."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fedmq.evaluation.evaluate import ScoredRows, evaluate
from fedmq.evaluation.page import drawing, html_of
from fedmq.evaluation.report import Chart, Line, Report

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def report() -> Report:
    random = np.random.default_rng(0)
    score = random.random(300)
    rows = ScoredRows(
        tuple(map(str, range(300))),
        ("eval",) * 300,
        (random.random(300) < score).astype(np.float64),
        score,
        tuple(random.choice(["north", SCRIPT], 300)),
    )
    history = {"train-auc": (0.5, 0.6), "eval-auc": (0.5, 0.58)}
    return evaluate(SCRIPT, "binary", rows, {"objective": SCRIPT}, history, 20)


class Cells(HTMLParser):
    """The text of all cells of tables, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        self._inside = tag == "td"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts.append(data)
            self._inside = False


def test_the_page_shows_the_report_s_numbers(report: Report) -> None:
    cells = Cells()
    cells.feed(html_of(report))
    for name, figure in report.metrics.items():
        place = cells.texts.index(name)
        assert cells.texts[place + 1] == f"{figure.value:.4f}"
        assert cells.texts[place + 2] == f"{figure.low:.4f} to {figure.high:.4f}"


def test_names_that_others_wrote_are_text(report: Report) -> None:
    page, cells = html_of(report), Cells()
    cells.feed(page)
    assert "script" not in cells.tags
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page


def test_the_page_asks_no_address_for_anything(report: Report) -> None:
    page = html_of(report)
    assert not re.search(r"https?://|src=|@import|url\(", page)
    assert "default-src 'none'" in page


def test_a_report_is_read_back_from_json(report: Report) -> None:
    assert Report.model_validate_json(report.model_dump_json()) == report


@pytest.mark.parametrize(
    "values",
    [(0.0, 0.0), (1e9, 2e9), (-3.0, 7.0), (float("nan"), 1.0), (0.1234, 0.1235)],
    ids=["equal", "large", "below 0", "unknown", "close"],
)
def test_every_point_lies_within_the_axes(values: tuple[float, float]) -> None:
    chart = Chart(name="c", x="x", y="y", lines=(Line(name="a", x=(0.0, 1.0), y=values),))
    drawn = drawing(chart)
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+", drawn.paths[0])]
    assert all(drawn.left - 1 <= x <= drawn.right + 1 for x in numbers[::2])
    assert all(drawn.top - 1 <= y <= drawn.bottom + 1 for y in numbers[1::2])
    assert 2 <= len(drawn.y_ticks) <= 12


@pytest.mark.long
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_draws_it_and_reads_its_numbers(report: Report, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(html_of(report), encoding="utf-8")
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]
    address = (tmp_path / "report.html").as_uri()
    seen = subprocess.run(
        [*browser, "--dump-dom", address], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert f"<td>{report.metrics['auc'].value:.4f}</td>" in seen
    picture = tmp_path / "report.png"
    subprocess.run(
        [*browser, f"--screenshot={picture}", "--window-size=1000,2400", address],
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert picture.stat().st_size > 30_000
