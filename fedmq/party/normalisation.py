"""How an id is brought into the form that parties compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

__all__ = ["Step", "normalised"]

Step = Literal["trim", "lower", "upper", "digits", "sha256"]

_STEPS: Mapping[Step, Callable[[str], str]] = {
    "trim": str.strip,
    "lower": str.lower,
    "upper": str.upper,
    "digits": lambda text: "".join(each for each in text if each in "0123456789"),
    "sha256": lambda text: hashlib.sha256(text.encode()).hexdigest() if text else "",
}
"""``digits`` keeps 0 to 9 alone; ``sha256`` gives hex digits, and leaves an empty id empty."""


def normalised(ids: Sequence[str], steps: Sequence[Step]) -> list[str]:
    """``ids`` after all ``steps``, one after the other."""
    for step in steps:
        ids = list(map(_STEPS[step], ids))
    return list(ids)
