"""A reader finds everything by the question that its folder answers, and by CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
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


def contracts() -> dict[str, tuple[Path, ast.ClassDef]]:
    """The classes of CONTRIBUTING.md's picture, and the files in which it says they are."""
    page = (HOUSE.parent / "CONTRIBUTING.md").read_text("utf-8")
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found = {}
    for path, text in re.findall(r"# (fedmq/\S+\.py): .*\n((?:(?!# fedmq/).*\n?)*)", block):
        [drawn] = ast.parse(text).body
        assert isinstance(drawn, ast.ClassDef)
        found[drawn.name] = HOUSE.parent / path, drawn
    return found


def signatures(drawn: ast.ClassDef) -> set[str]:
    """The methods and fields of a class, without bodies, values and decorators."""
    found = set()
    for part in drawn.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.returns:
            said = f"{part.name}({ast.unparse(part.args)}) -> {ast.unparse(part.returns)}"
            found.add(f"{type(part).__name__} {said}")
        else:
            found.add(ast.unparse(part).partition(" = ")[0])
    return found


@pytest.mark.parametrize("name", contracts())
def test_the_picture_has_the_signatures_of_the_code(name: str) -> None:
    path, drawn = contracts()[name]
    [real] = [
        node
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    assert signatures(drawn) <= signatures(real)


def test_the_picture_has_seven_contracts() -> None:
    assert len(contracts()) == 7
