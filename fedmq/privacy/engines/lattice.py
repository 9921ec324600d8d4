"""Sums under ring learning with errors: milliseconds a node, and no feature holder sees any row.

The label holder asks about a node by g and h of all rows in cipher, 0 outside of it. The feature
holder adds ciphertexts per candidate. What it takes to read the sums depends on the candidates
alone, and was sent before the first tree. Parameters are fixed: `fedmq.privacy.lattice.layout`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmq.boosting.binning import BinMatrix
from fedmq.errors import ConfigError, Refused
from fedmq.privacy.engine import ActiveHalf, Engine, Leakage, PassiveHalf
from fedmq.privacy.lattice.active import LatticeActive
from fedmq.privacy.lattice.passive import LatticePassive
from fedmq.privacy.lattice.sampling import SEED_BYTES
from fedmq.privacy.plan import Values

__all__ = ["Lattice"]

_PUBLIC = {"seed", "hint_bytes"}


@dataclass(frozen=True)
class Lattice(Engine):
    """``hint_bytes``: the longest hint that a passive party sends before the first tree."""

    hint_bytes: int = 1_000_000_000

    name = "lattice"
    exact = True
    hides_rows = True
    light = True
    leakage = Leakage(
        active="the sums of g and h of every split candidate, which keeps its number for the "
        "session; who goes left, of all rows, in nodes that a passive party splits",
        passive="how many nodes are asked about, and which of its candidates split one",
    )

    def __post_init__(self) -> None:
        if self.hint_bytes < 1:
            raise ConfigError(f"hint_bytes = {self.hint_bytes}: a number of bytes is needed")

    def active(self, parallelism: int) -> ActiveHalf:
        return LatticeActive(self.hint_bytes, parallelism)

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        seed, hint_bytes = public.get("seed"), public.get("hint_bytes")
        if (
            set(public) != _PUBLIC
            or not isinstance(seed, np.ndarray)
            or seed.dtype != np.uint8
            or seed.shape != (SEED_BYTES,)
            or not isinstance(hint_bytes, int)
        ):
            raise Refused("the active party's seed or length of a hint is malformed")
        most = min(hint_bytes, self.hint_bytes)
        return LatticePassive(seed.tobytes(), bins, most, parallelism)
