"""What ``pip install fedmq`` brings along: only what every party runs, and no more than 150 MB."""

from __future__ import annotations

import ast
import tomllib
from importlib import metadata
from pathlib import Path

import loky.backend.utils
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
CORE = [
    Requirement(line)
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
]
IMPORTED_AS = {"aio-pika": "aio_pika"}
USED_BY_LOKY = ("psutil",)
"""Without it loky asks for pgrep to end the workers' own children, which a container lacks."""


def closure(requirements: list[Requirement]) -> set[str]:
    """The names of all that is installed with ``requirements``, themselves included."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name.lower() not in found:
            found.add(requirement.name.lower())
            waiting += map(Requirement, metadata.requires(requirement.name) or ())
    return found


def test_the_core_install_is_small() -> None:
    files = [path for name in closure(CORE) for path in metadata.files(name) or ()]
    paths = {path.locate() for path in files}
    assert sum(Path(path).stat().st_size for path in paths if Path(path).exists()) < 150e6


def test_every_core_dependency_is_imported_by_the_package() -> None:
    imported = set()
    for source in (ROOT / "fedmq").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            imported |= {name.partition(".")[0] for name in names}
    needed = {IMPORTED_AS.get(requirement.name, requirement.name) for requirement in CORE}
    assert needed - imported == set(USED_BY_LOKY)


def test_what_the_package_does_not_import_ends_its_workers() -> None:
    for name in USED_BY_LOKY:
        assert f"import {name}" in Path(loky.backend.utils.__file__).read_text()
