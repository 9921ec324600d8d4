from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.documentation.fences import PAGES, ROOT, fences, pages_with, to_run

RUN = {
    "sh": "tests/documentation/test_commands.py",
    "python": "tests/documentation/test_python.py",
    "toml": "tests/documentation/test_toml.py",
    "yaml": "tests/deployment/test_chart.py",
    "json": "below",
    "mermaid": "tests/test_site.py, which builds the page",
}
SHOWN = {"text"}
"""What a command prints."""

ALL = [fence for page in PAGES for fence in fences(page)]


def test_there_are_blocks_in_every_language_that_is_run() -> None:
    assert {fence.language for fence in ALL} == RUN.keys() | SHOWN


@pytest.mark.parametrize("fence", ALL, ids=str)
def test_a_block_is_run_or_says_why_not(fence) -> None:
    """A block to run is run by the file in ``RUN``, which takes all of its language."""
    assert fence.language in RUN.keys() | SHOWN, "say what language it is"
    if fence.not_run:
        assert fence.language in RUN, "nothing would run it"


@pytest.mark.parametrize("fence", [fence for fence in ALL if fence.not_run], ids=str)
def test_a_reason_names_files_that_exist(fence) -> None:
    for name in re.findall(r"\btests/[\w./]+\b", fence.not_run):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", pages_with("json"), ids=lambda page: page.name)
def test_json_can_be_read(page: Path) -> None:
    for fence in to_run("json", page):
        assert json.loads(fence.text)
