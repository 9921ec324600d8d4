"""NumPy vectors as fields of pydantic models: read-only arrays inside, lists in JSON.

A float32 is written as the float64 that equals it, so that it returns bit for bit; infinities,
which strict JSON lacks, are written as the strings ``"Infinity"`` and ``"-Infinity"``.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import PlainSerializer, PlainValidator

__all__ = ["Bools", "Float32s", "Int16s", "Int32s", "Leaves"]

_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}
_ITEMS: dict[str, tuple[type, ...]] = {"i": (int,), "f": (int, float), "b": (bool,)}


def _vector(value: Any, dtype: DTypeLike) -> NDArray[Any]:
    wanted = np.dtype(dtype)
    if isinstance(value, np.ndarray):
        if value.ndim != 1 or not np.can_cast(value.dtype, wanted, "same_kind"):
            raise ValueError(f"expected a vector of {wanted}, got {value.dtype} {value.shape}")
        if value.dtype == wanted:
            vector = value.copy()
            vector.flags.writeable = False
            return vector
        value = value.tolist()
    items = list(value) if isinstance(value, list | tuple) else [None]
    if wanted.kind == "f":
        items = [_INFINITIES.get(item, item) if isinstance(item, str) else item for item in items]
    if any(type(item) not in _ITEMS[wanted.kind] for item in items):
        raise ValueError(f"expected a list of {wanted}")
    try:
        with np.errstate(over="raise"):
            vector = np.array(items, dtype=wanted)
    except (OverflowError, FloatingPointError):
        raise ValueError(f"a number is out of the range of {wanted}") from None
    vector.flags.writeable = False
    return vector


def _floats_to_json(vector: NDArray[np.float32]) -> list[float | str]:
    if np.isfinite(vector).all():
        return list(vector.tolist())
    names = {number: name for name, number in _INFINITIES.items()}
    return [names.get(item, item) for item in vector.tolist()]


def _leaves(value: Any) -> NDArray[np.float32]:
    rows = value.tolist() if isinstance(value, np.ndarray) and value.ndim == 2 else value
    if not isinstance(rows, list) or not rows or not isinstance(rows[0], list | tuple):
        return _vector(value, np.float32)
    if any(not isinstance(row, list | tuple) or len(row) != len(rows[0]) for row in rows):
        raise ValueError("expected rows of one length")
    flat = _vector([item for row in rows for item in row], np.float32)
    return flat.reshape(len(rows), -1)


def _leaves_to_json(leaves: NDArray[np.float32]) -> list[Any]:
    if leaves.ndim == 1:
        return list(_floats_to_json(leaves))
    return [_floats_to_json(row) for row in leaves]


def _to_json(vector: NDArray[Any]) -> list[Any]:
    return list(vector.tolist())


Int16s = Annotated[
    NDArray[np.int16],
    PlainValidator(lambda value: _vector(value, np.int16)),
    PlainSerializer(_to_json, when_used="json"),
]
"""int16 vector; validation refuses other kinds and what is out of range."""

Int32s = Annotated[
    NDArray[np.int32],
    PlainValidator(lambda value: _vector(value, np.int32)),
    PlainSerializer(_to_json, when_used="json"),
]
"""int32 vector; validation refuses other kinds and what is out of range."""

Float32s = Annotated[
    NDArray[np.float32],
    PlainValidator(lambda value: _vector(value, np.float32)),
    PlainSerializer(_floats_to_json, when_used="json"),
]
"""float32 vector, possibly with infinities, exact through JSON."""

Leaves = Annotated[
    NDArray[np.float32],
    PlainValidator(_leaves),
    PlainSerializer(_leaves_to_json, when_used="json"),
]
"""float32 (nodes,), or (nodes, outputs) as a list of rows; as :data:`Float32s`."""

Bools = Annotated[
    NDArray[np.bool_],
    PlainValidator(lambda value: _vector(value, np.bool_)),
    PlainSerializer(_to_json, when_used="json"),
]
"""bool vector."""
