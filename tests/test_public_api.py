from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import fedmq
from fedmq.boosting.params import ALIASES
from fedmq.errors import ConfigError

ROOT = Path(__file__).parent.parent
MODULES = [
    importlib.import_module(found.name) for found in pkgutil.walk_packages(fedmq.__path__, "fedmq.")
]
SOURCES = sorted(ROOT.glob("fedmq/**/*.py"))


def declared(module: ModuleType) -> Iterator[object]:
    """What a module defines itself and shows to others."""
    for name in module.__all__:
        value = getattr(module, name)
        if getattr(value, "__module__", None) == module.__name__:
            yield value


def test_the_package_shows_few_names() -> None:
    assert fedmq.__all__ == [
        "AsyncClient",
        "AuditReport",
        "Client",
        "FedmqError",
        "Recording",
        "SimulatedModel",
        "TrainParams",
        "TrainingCallback",
        "XGBoostComparison",
        "audit",
        "compare_with_xgboost",
        "cv",
        "encrypted_gradients",
        "simulate",
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_module_names_what_it_shows_and_shows_what_it_names(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    if not any(isinstance(node, ast.ClassDef | ast.FunctionDef) for node in tree.body):
        return
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name)
        assert not name.startswith("_")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_module_and_everything_public_has_a_docstring(module: ModuleType) -> None:
    assert inspect.getdoc(module)
    for value in declared(module) if hasattr(module, "__all__") else ():
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{module.__name__}.{value.__name__}"


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_parameters_have_xgboosts_aliases(alias: str, name: str) -> None:
    value = 3 if name in ("num_boost_round", "seed") else 0.25
    assert fedmq.TrainParams(**{alias: value}) == fedmq.TrainParams(**{name: value})
    with pytest.raises(ConfigError, match="are the same parameter"):
        fedmq.TrainParams(**{alias: value, name: value})


def test_an_unknown_parameter_suggests_the_known_one() -> None:
    with pytest.raises(ConfigError, match=r"^max_dept: no such parameter; did you mean max_depth"):
        fedmq.TrainParams(max_dept=3)  # type: ignore[call-arg]


def test_no_word_of_unfinished_work() -> None:
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|NotImplemented" r"Error")
    for source in [
        *SOURCES,
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("docs/**/*.py"),
        *ROOT.glob("examples/**/*.py"),
    ]:
        assert not marks.search(source.read_text()), source


def test_files_are_short_enough_to_hold_one_noun() -> None:
    for source in SOURCES:
        lines = len(source.read_text().splitlines())
        assert lines <= 450, f"{source.relative_to(ROOT)} has {lines} lines"


def test_importing_needs_no_optional_package_and_starts_nothing() -> None:
    script = (
        "import sys, threading, fedmq, fedmq.cli.main\n"
        "optional = {'xgboost', 'sklearn', 'pandas', 'polars', 'pyarrow', 'pytest'}\n"
        "print(sorted(optional & set(sys.modules)), threading.active_count())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[] 1\n", "")


def test_importing_takes_less_than_two_seconds_of_work() -> None:
    script = "import time, fedmq.cli.main; print(time.process_time())"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert float(done.stdout) < 2
