"""The fenced blocks of all pages. One that no test may run says so, and why, in the line above it:

<!-- not run: it installs packages -->
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "brokers" / "rabbitmq" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]
_MARK = re.compile(r" *<!-- not run: (.+) -->")
_BEGIN = re.compile(r"( *)```(.*)")


@dataclass(frozen=True)
class Fence:
    """One block. ``not_run`` is why no test runs it; "" if one does."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fences(page: Path) -> Iterator[Fence]:
    """The blocks of a page, from top to bottom."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        begin = _BEGIN.fullmatch(lines[number])
        if begin is not None:
            end = lines.index(f"{begin[1]}```", number + 1)
            mark = _MARK.fullmatch(lines[number - 1])
            text = textwrap.dedent("\n".join([*lines[number + 1 : end], ""]))
            yield Fence(page, number + 1, begin[2], text, mark[1] if mark else "")
            number = end
        number += 1


def to_run(language: str, page: Path) -> list[Fence]:
    """The blocks of a page in one language that are not marked."""
    return [fence for fence in fences(page) if fence.language == language and not fence.not_run]


def pages_with(language: str) -> list[Path]:
    """The pages that have a block to run."""
    return [page for page in PAGES if to_run(language, page)]
