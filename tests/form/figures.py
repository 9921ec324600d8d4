"""Today's figures of the form, and those that it may not exceed.

``make form`` prints both; ``make form UPDATE=1`` lowers what may not be exceeded to what is
measured. A figure is raised by hand alone, in a review.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import median_low

from tests.form import source
from tests.form.imports import COMMANDS, imported, seconds
from tests.form.walk import http_scores, root_splits

__all__ = ["ALLOWED", "WALKS", "of_imports", "of_source", "walks"]

FILE = Path(__file__).with_name("figures.json")
ALLOWED: Mapping[str, Mapping[str, int]] = json.loads(FILE.read_text("utf-8"))
WALKS: Mapping[str, Callable[[], Iterator[dict[str, int]]]] = {
    "root split, plain": lambda: root_splits("plain"),
    "root split, ou": lambda: root_splits("ou"),
    "HTTP score": http_scores,
}


def walks(name: str, count: int) -> Iterator[dict[str, int]]:
    """The figures of at most ``count`` walks of that name."""
    with closing(WALKS[name]()) as walked:  # type: ignore[type-var]  # a generator
        yield from islice(walked, count)


def of_source() -> dict[str, int]:
    """Of files and classes."""
    return {
        "files": len(source.files()),
        "own methods of the largest class": max(source.methods().values()),
        "levels of the deepest class": max(source.levels().values()),
    }


def of_imports() -> dict[str, int]:
    """How many modules of fedmq each of the commands imports."""
    return {
        command: sum(module.partition(".")[0] == "fedmq" for module in imported(command))
        for command in COMMANDS
    }


def _today() -> Iterator[tuple[str, dict[str, int]]]:
    yield "source", of_source()
    yield "modules imported", of_imports()
    for name in WALKS:
        found = list(walks(name, 5))
        yield name, {key: median_low(walk[key] for walk in found) for key in found[0]}


def _largest() -> Iterator[str]:
    for what, sizes, shown in (
        ("lines", source.files(), 5),
        ("own methods", source.methods(), 5),
        ("levels", source.levels(), 5),
    ):
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:shown]
        yield f"most {what}: " + ", ".join(f"{name} {size}" for name, size in largest)
    for command in COMMANDS:
        least = min(seconds(command) for _ in range(3))
        yield f"{command}: {least:.2f} s of processor time (at most {COMMANDS[command]})"


def _main() -> None:
    parser = argparse.ArgumentParser(description="Today's figures of the form of fedmq.")
    parser.add_argument("--update", action="store_true", help="lower what may not be exceeded")
    update = parser.parse_args().update
    lowered = {}
    for group, figures in _today():
        allowed = ALLOWED.get(group, {})
        for name, figure in figures.items():
            print(f"{group}, {name}: {figure} (at most {allowed.get(name, 'not set')})", flush=True)
        lowered[group] = {
            name: min(figure, allowed.get(name, figure)) for name, figure in figures.items()
        }
    print(*_largest(), sep="\n")
    if update:
        FILE.write_text(json.dumps(lowered, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    _main()
