"""The documentation site, as ``make site`` builds it: whole, strict, from no other address."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import fedmq

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
CLICKS = 3


class Page(HTMLParser):
    """What a page leads to, what it needs, and where one may land on it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.needs: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.needs += [found[name] for name in ("src", "srcset") if name in found]
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.needs.append(found["href"])

    def leads_to(self) -> Iterator[tuple[Path, str]]:
        """The files of the site that its links lead to, and where on them."""
        for link in self.links:
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc:
                target = (self.path.parent / unquote(parts.path)) if parts.path else self.path
                target = target / "index.html" if target.is_dir() else target
                yield target.resolve(), unquote(parts.fragment)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """All pages of the site. Mermaid, which is fetched for a site to publish, is an empty file."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "fedmq").symlink_to(ROOT / "fedmq")
    (folder / "docs" / "assets").mkdir(exist_ok=True)
    (folder / "docs" / "assets" / "mermaid.min.js").touch()
    done = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=folder, check=False, capture_output=True, text=True, timeout=110,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "No issues found" in said
    assert "griffe" not in said, "a docstring cannot be read as the site reads it"
    return {path: Page(path) for path in (folder / "site").resolve().rglob("*.html")}


def first(pages: dict[Path, Page]) -> Path:
    """Where a reader begins: the page that lies in no folder."""
    return min(
        (path for path in pages if path.name == "index.html"), key=lambda path: len(path.parts)
    )


def test_every_page_of_the_docs_is_a_page_of_the_site(pages: dict[Path, Page]) -> None:
    site = first(pages).parent
    for path in (ROOT / "docs").rglob("*.md"):
        place = path.relative_to(ROOT / "docs").with_suffix("")
        assert (
            site / place.parent if place.name == "index" else site / place
        ) / "index.html" in pages


def test_every_link_leads_to_a_place_on_the_site(pages: dict[Path, Page]) -> None:
    for page in pages.values():
        if page.path.name == "404.html":
            continue
        for target, fragment in page.leads_to():
            assert target.exists(), (page.path, target)
            if fragment and target in pages:
                assert fragment in pages[target].anchors, (page.path, target, fragment)


def test_every_page_is_at_most_three_clicks_from_the_first(pages: dict[Path, Page]) -> None:
    reached = {first(pages)}
    for _ in range(CLICKS):
        reached |= {target for path in reached for target, _ in pages[path].leads_to()} & set(pages)
    assert set(pages) - reached == {first(pages).with_name("404.html")}


def test_lists_tables_and_blocks_are_read_as_such(pages: dict[Path, Page]) -> None:
    """Otherwise it takes them for text: a blank line is missing, or four blanks before them."""
    for page in pages.values():
        for paragraph in re.findall(r"<p>(.*?)</p>", page.path.read_text(), re.DOTALL):
            text = re.sub(r"<!--.*?-->", "", paragraph).strip()
            assert not re.search(r"^ *(- |\d+\. |\||```)|(?<!^)<div", text, re.MULTILINE), (
                page.path,
                text,
            )


def test_no_page_needs_another_address(pages: dict[Path, Page]) -> None:
    for page in pages.values():
        assert not [need for need in page.needs if urlsplit(need).netloc], page.path


def test_every_picture_and_script_is_on_the_site(pages: dict[Path, Page]) -> None:
    for page in pages.values():
        if page.path.name != "404.html":
            for need in page.needs:
                assert (page.path.parent / urlsplit(need).path).exists(), (page.path, need)


def test_everything_that_the_package_offers_is_described(pages: dict[Path, Page]) -> None:
    page = pages[first(pages).parent / "reference" / "python" / "index.html"]
    estimators = (
        "FederatedClassifier",
        "FederatedRegressor",
        "FederatedRanker",
        "ScreenSelector",
    )
    offered = (*fedmq.__all__, *estimators)
    assert {f"fedmq.{name}" for name in offered} <= page.anchors
