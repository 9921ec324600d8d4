"""What does a circuit say of inputs that anybody may see?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.schedule import Schedule, Slots

__all__ = ["in_the_clear"]

_INSTANCES_AT_ONCE = 1 << 16  # 8 kB a slot


def in_the_clear(
    schedule: Schedule, inputs: Mapping[str, NDArray[np.bool_]]
) -> dict[str, NDArray[np.bool_]]:
    """Outputs by name, bool (bits, instances), of inputs of such a shape."""
    [instances] = {bits.shape[1] for bits in inputs.values()}
    parts = []
    for start in range(0, instances, _INSTANCES_AT_ONCE):
        here = slice(start, start + _INSTANCES_AT_ONCE)
        packed = {name: np.packbits(bits[:, here], axis=1) for name, bits in inputs.items()}
        parts.append(_evaluated(schedule, packed))
    return {
        name: np.unpackbits(
            np.concatenate([part[name] for part in parts], axis=1), axis=1, count=instances
        ).astype(np.bool_)
        for name in schedule.outputs
    }


def _evaluated(
    schedule: Schedule, inputs: Mapping[str, NDArray[np.uint8]]
) -> dict[str, NDArray[np.uint8]]:
    """The same with eight instances a byte."""
    width = next(iter(inputs.values())).shape[1]
    values = np.zeros((schedule.slots, width), np.uint8)
    for name, bits in inputs.items():
        values[schedule.inputs[name]] = bits
    for layer in schedule.layers:
        operation = np.bitwise_and if layer.is_and else np.bitwise_xor
        values[layer.result] = operation(_read(values, layer.left), _read(values, layer.right))
    return {name: _read(values, slots) for name, slots in schedule.outputs.items()}


def _read(values: NDArray[np.uint8], slots: Slots) -> NDArray[np.uint8]:
    read = values[slots.place]
    read[slots.inverted] ^= np.uint8(255)
    return read
