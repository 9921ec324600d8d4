"""What came of a cross-validation, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from fedmq.cli.table import joined, table

__all__ = ["cross_validated_in_words"]

_SHOWN = 20
"""Of more rounds than these, some are left out between the first and the last."""


def cross_validated_in_words(result: Mapping[str, Any]) -> Text:
    """A row for each round, with mean and deviation over the folds; then what it took."""
    figures = {name: values for name, values in result["figures"].items() if values}
    metrics = [name.removesuffix("-mean") for name in figures if name.endswith("-mean")]
    rounds = len(figures[f"{metrics[0]}-mean"])
    rows = [
        [
            number,
            *(
                f"{_number(figures[f'{name}-mean'][number])} ± "
                f"{_number(figures[f'{name}-std'][number])}"
                for name in metrics
            ),
        ]
        for number in _shown(rounds)
    ]
    best, spent = result["best_iteration"], result["epsilon_spent"]
    privacy = "" if spent is None else f", epsilon {spent:g} spent in all"
    return joined(
        table(["round", *metrics], rows),
        f"cross-validation {result['cross_validation']}: {result['folds']} folds of "
        f"{result['rounds']} rounds in {result['seconds']:.1f} s, "
        f"{result['bytes_sent'] / 1e6:.1f} MB sent{privacy}"
        + ("" if best is None else f"; best round {best}"),
    )


def _shown(rounds: int) -> list[int]:
    """The rounds that have a row: all of few, some of many."""
    if rounds <= _SHOWN:
        return list(range(rounds))
    return sorted({round(place * (rounds - 1) / (_SHOWN - 1)) for place in range(_SHOWN)})


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.5f}"
