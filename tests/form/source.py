"""What does the source look like? Files, classes, and what imports what."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import fedmq
from fedmq.errors import FedmqError

__all__ = ["circle", "files", "levels", "methods"]

HOUSE = Path(fedmq.__file__).parent


def files() -> dict[str, int]:
    """How many lines each file has."""
    return {
        str(path.relative_to(HOUSE.parent)): len(path.read_text("utf-8").splitlines())
        for path in sorted(HOUSE.rglob("*.py"))
    }


@cache
def classes() -> tuple[type, ...]:
    """All classes of fedmq but its errors."""
    names = [found.name for found in pkgutil.walk_packages(fedmq.__path__, "fedmq.")]
    return tuple(
        member
        for name in names
        for member in vars(importlib.import_module(name)).values()
        if inspect.isclass(member)
        and member.__module__ == name
        and not issubclass(member, FedmqError)
    )


def methods() -> dict[str, int]:
    """How many methods and properties each class defines itself."""
    return {_name(kind): sum(map(_is_method, vars(kind).values())) for kind in classes()}


def _is_method(member: object) -> bool:
    if isinstance(member, property):
        member = member.fget
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    member = getattr(member, "func", member)  # of a cached property
    # What dataclasses and pydantic make stands in no file.
    return inspect.isfunction(member) and Path(member.__code__.co_filename).is_relative_to(HOUSE)


def levels() -> dict[str, int]:
    """How many steps of inheritance lead from each class to a class of fedmq without an own base.

    0 where a class has no base in fedmq.
    """
    return {_name(kind): _levels(kind) for kind in classes()}


def _levels(kind: type) -> int:
    own = [base for base in kind.__bases__ if base.__module__.partition(".")[0] == "fedmq"]
    return max((1 + _levels(base) for base in own), default=0)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def circle() -> list[str]:
    """Modules that import one another in a circle, also for types alone or inside a function."""
    modules = {_module(path): path for path in HOUSE.rglob("*.py")}
    imports = {module: _imports(path, modules) for module, path in modules.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _module(path: Path) -> str:
    parts = path.relative_to(HOUSE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, modules: Mapping[str, Path]) -> set[str]:
    targets: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            targets |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{name.name}" for name in node.names}
            targets |= inner & modules.keys() or {node.module}
    return (targets & modules.keys()) - {_module(path)}
