"""Is a reply the honest one, but for how a machine rounds?"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from fedmq.messages.array import unpack_payload
from fedmq.messages.training import HistogramReply

__all__ = ["same_but_rounded"]

_APART = 1e-6
"""Numbers are of the order of 1; roots and factors of a matrix come out to 10 digits at least."""


def same_but_rounded(
    shown: HistogramReply, honest: HistogramReply, rounded: Set[str], apart: float = _APART
) -> bool:
    """Whether both are the same but for their arrays ``rounded``, which are no more ``apart``."""
    if shown.model_copy(update={"payload": honest.payload}) != honest:
        return False
    ours, theirs = unpack_payload(honest.payload), unpack_payload(shown.payload)
    return ours.keys() == theirs.keys() and all(
        _is_near(ours[name], theirs[name], apart if name in rounded else 0.0) for name in ours
    )


def _is_near(ours: Any, theirs: Any, apart: float) -> bool:
    if not isinstance(ours, np.ndarray) or not isinstance(theirs, np.ndarray):
        return type(ours) is type(theirs) and bool(ours == theirs)
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    if not apart or ours.dtype.kind != "f":
        return np.array_equal(ours, theirs)
    return bool((np.abs(ours - theirs) <= apart).all())
