"""``python -m tests.differential.fuzz [TABLES] [FIRST]``: cases by seed, beside XGBoost."""

from __future__ import annotations

import sys
import time

from tests.differential.case import Case

__all__ = ["run"]


def run(first: int, tables: int) -> list[str]:
    """The cases that differ from XGBoost, in words."""
    different = []
    begun = time.monotonic()
    for done, seed in enumerate(range(first, first + tables)):
        if done and done % 100 == 0:
            left = (time.monotonic() - begun) / done * (tables - done)
            print(f"{done} tables, some {left / 60:.0f} minutes left", file=sys.stderr)
        case = Case.drawn(seed)
        difference = case.difference()
        if difference is not None:
            different.append(f"{case.in_words()}\n  {difference}")
            print(different[-1], flush=True)
    return different


if __name__ == "__main__":
    tables, first = (int(given) for given in [*sys.argv[1:], *("2000", "0")[len(sys.argv) - 1 :]])
    found = run(first, tables)
    print(f"{tables} tables, {len(found)} differ")
    sys.exit(bool(found))
