"""Benchmarks run for minutes; here each of them is imported, and says how it is run."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted((ROOT / "benchmarks").rglob("*.py"))
    if path.name != "__init__.py"
}
RUN = [name for name, path in MODULES.items() if "__main__" in path.read_text()]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("name", RUN)
def test_every_benchmark_says_how_it_is_run(name: str) -> None:
    module = importlib.import_module(name)
    assert f"python -m {name.removesuffix('.__main__')}" in (module.__doc__ or "")
    assert callable(module.main)


def test_the_makefile_runs_benchmarks_that_exist() -> None:
    named = re.findall(r"\$\(BIN\)/python -m (benchmarks\S*)", (ROOT / "Makefile").read_text())
    assert {"benchmarks.report", "benchmarks.papers"} <= set(named)
    assert set(named) <= {name.removesuffix(".__main__") for name in RUN}
    assert "python benchmarks/" not in (ROOT / "Makefile").read_text()
