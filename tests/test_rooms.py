"""A reader finds everything by the question that its folder answers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedmq

HOUSE = Path(fedmq.__file__).parent
ROOMS = sorted(path.parent for path in HOUSE.rglob("__init__.py"))
NAMES_OF_ATTICS = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "misc"}


def name(folder: Path) -> str:
    return ".".join(folder.relative_to(HOUSE.parent).parts)


def question(folder: Path) -> str:
    """The first sentence of the folder's docstring."""
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    ends = [docstring.find(end) + 1 for end in ".?!" if end in docstring]
    return docstring[: min(ends, default=0)]


# The package itself says what it is.
@pytest.mark.parametrize("folder", [room for room in ROOMS if room != HOUSE], ids=name)
def test_a_folder_begins_with_the_question_that_it_answers(folder: Path) -> None:
    assert question(folder).endswith("?"), f"{name(folder)} begins with {question(folder)!r}"


def test_no_two_folders_answer_the_same_question() -> None:
    questions = [question(folder) for folder in ROOMS]
    assert len(set(questions)) == len(questions)


def test_every_folder_of_python_files_says_what_it_is_for() -> None:
    assert {path.parent for path in HOUSE.rglob("*.py")} == set(ROOMS)


def test_no_folder_or_file_is_an_attic() -> None:
    stems = {path.stem for path in HOUSE.rglob("*.py")} | {folder.name for folder in ROOMS}
    assert not stems & NAMES_OF_ATTICS
