"""Which of all candidates gains most? Neighbours meet, and the better one goes on.

Candidates stand in canonical order, and the right one of two wins only if it gains more: among
equals the first one wins, as with XGBoost. Indices are bits of the circuit, which the label holder
never learns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import cache
from typing import Any

import numpy as np

from fedmq.privacy.garbling.circuit import Circuit
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.garbling.integers import at_least, select
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.lattice.hidden.gain_circuit import GAIN_BITS

__all__ = ["Run", "match_schedule", "tournament"]

Run = Callable[[Schedule, Mapping[str, Labels]], Generator[Any, Any, dict[str, Labels]]]
"""Garble or evaluate a circuit: yields while tables leave or come, and returns its outputs."""


def tournament(gains: Labels, nodes: int, run: Run) -> Generator[Any, Any, dict[str, Labels]]:
    """Labels of the best ``gain`` (32, nodes, 2), and of its ``index`` (rounds, nodes, 2).

    ``gains`` (32, nodes * candidates, 2).
    """
    best = gains.reshape(GAIN_BITS, nodes, -1, 2)
    index = best[:0]
    while best.shape[2] > 1:
        best, index = yield from _round(best, index, run)
    return {"gain": best[:, :, 0], "index": index[:, :, 0]}


def _round(best: Labels, index: Labels, run: Run) -> Generator[Any, Any, tuple[Labels, Labels]]:
    """Half as many candidates, whose indices are one bit longer."""
    nodes, candidates = best.shape[1:3]
    paired = candidates // 2 * 2
    inputs = {}
    for side, start in (("left", 0), ("right", 1)):
        inputs[f"{side} gain"] = _flat(best[:, :, start:paired:2])
        inputs[f"{side} index"] = _flat(index[:, :, start:paired:2])
    found = yield from run(match_schedule(len(index)), inputs)
    best, index = (
        np.concatenate([found[name].reshape(-1, nodes, paired // 2, 2), alone], axis=2)
        for name, alone in (
            ("gain", best[:, :, paired:]),
            ("index", _with_zero(index[:, :, paired:])),
        )
    )
    return best, index


def _flat(labels: Labels) -> Labels:
    bits, nodes, candidates, _ = labels.shape
    return labels.reshape(bits, nodes * candidates, 2)


def _with_zero(index: Labels) -> Labels:
    """One bit more, known to be 0: both sides have the label 0 for it."""
    return np.concatenate([index, np.zeros((1, *index.shape[1:]), np.uint64)])


@cache
def match_schedule(bits: int) -> Schedule:
    """The larger ``gain``, and its ``index`` with one bit more: 1 for the right one."""
    c = Circuit()
    gains = [c.input(f"{side} gain", GAIN_BITS) for side in ("left", "right")]
    indices = [c.input(f"{side} index", bits) for side in ("left", "right")]
    left_stays = at_least(c, *gains)
    c.output("gain", select(c, left_stays, *gains))
    c.output("index", [*select(c, left_stays, *indices), c.inverse(left_stays)])
    return Schedule.of(c)
