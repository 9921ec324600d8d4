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
        "Screen",
        "SimulatedModel",
        "TrainParams",
        "TrainingCallback",
        "XGBoostComparison",
        "audit",
        "compare_with_xgboost",
        "connect",
        "cv",
        "encrypted_gradients",
        "screen",
        "simulate",
    ]


def test_the_package_shows_public_names_alone() -> None:
    public = {name: module for names in fedmq.PUBLIC.values() for name, module in names.items()}
    assert dir(fedmq) == sorted([*public, "__version__"])
    assert set(fedmq.__all__) == set(public) - set(fedmq.PUBLIC["With scikit-learn"])
    for name, module in public.items():
        assert getattr(fedmq, name) is getattr(importlib.import_module(module), name)


def test_type_checkers_see_every_public_name_where_it_is_defined() -> None:
    tree = ast.parse(inspect.getsource(fedmq))
    hidden = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        name.name: node.module
        for node in hidden.body
        if isinstance(node, ast.ImportFrom) and node.module != "fedmq"
        for name in node.names
    }
    assert seen == {name: at for names in fedmq.PUBLIC.values() for name, at in names.items()}


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match=r"^module 'fedmq' has no attribute 'simulated'$"):
        fedmq.simulated  # type: ignore[attr-defined]  # noqa: B018


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


def test_no_file_is_too_long_to_be_read_from_top_to_bottom() -> None:
    for source in SOURCES:
        lines = len(source.read_text().splitlines())
        assert lines <= 1000, f"{source.relative_to(ROOT)} has {lines} lines"


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


def imported_by(script: str) -> set[str]:
    """The modules that a new interpreter has imported after ``script``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{script}; import sys; print(*sys.modules)"],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_no_other_module_of_it() -> None:
    loaded = imported_by("import fedmq")
    assert {name for name in loaded if name.startswith("fedmq")} == {"fedmq"}
    assert "numpy" not in loaded


def test_a_public_name_imports_what_it_needs_alone() -> None:
    loaded = imported_by("import fedmq; fedmq.Client; fedmq.errors.LinkError")
    assert {name for name in loaded if name.startswith("fedmq")} == {
        "fedmq", "fedmq.client", "fedmq.errors"
    }  # fmt: skip


def test_the_list_of_commands_imports_none_of_them() -> None:
    loaded = imported_by(
        "from fedmq.cli.main import cli; cli.main(['--help'], standalone_mode=False)"
    )
    rooms = {name.split(".")[1] for name in loaded if name.startswith("fedmq.")}
    assert rooms == {"cli", "errors"}
    assert not {"numpy", "pydantic", "asyncio"} & loaded
