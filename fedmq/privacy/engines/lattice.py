"""Sums under ring learning with errors: milliseconds a node, and no feature holder sees any row.

The label holder asks about a node by g and h of all rows in cipher, 0 outside of it. The feature
holder adds ciphertexts per candidate. What it takes to read the sums depends on the candidates
alone, and was sent before the first tree. Parameters are fixed: `fedmq.privacy.lattice.layout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fedmq.boosting.binning import BinMatrix
from fedmq.errors import ConfigError, MessageError, Refused
from fedmq.privacy.engine import ActiveHalf, Engine, Leakage, PassiveHalf
from fedmq.privacy.lattice.active import LatticeActive
from fedmq.privacy.lattice.layout import VERSION
from fedmq.privacy.lattice.passive import LatticePassive
from fedmq.privacy.oblivious_transfer.base_transfers import check_elements
from fedmq.privacy.plan import Values
from fedmq.privacy.random_stream import SEED_BYTES

__all__ = ["Lattice"]

DirectionsShown = Literal["oblivious", "all"]


@dataclass(frozen=True)
class Lattice(Engine):
    """``directions``: what the label holder learns of a split that a passive party wins.

    ``oblivious``: who goes left among the node's rows, by oblivious transfer; ``all``: who goes
    left among all rows, which takes a bit a row instead of 32. A passive party that is set to
    ``oblivious`` takes part in nothing else. ``hint_bytes``: the longest hint that a passive party
    sends before the first tree; the smaller one of both parties holds.
    """

    directions: DirectionsShown = "oblivious"
    hint_bytes: int = 1_000_000_000

    name = "lattice"
    exact = True
    hides_rows = True
    keeps_numbers = True
    replays = True
    light = True
    leakage = Leakage(
        active="the sums of g and h of every split candidate, which keeps its number for the "
        "session",
        passive="how many nodes are asked about; which of its candidates split which node",
    )

    def __post_init__(self) -> None:
        if self.directions not in get_args(DirectionsShown):
            allowed = ", ".join(get_args(DirectionsShown))
            raise ConfigError(f"directions = {self.directions!r}: use {allowed}")
        if self.hint_bytes < 1:
            raise ConfigError(f"hint_bytes = {self.hint_bytes}: a number of bytes is needed")

    def active(self, parallelism: int) -> ActiveHalf:
        return LatticeActive(self.hint_bytes, self.directions == "oblivious", parallelism)

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        if public.get("version", 1) != VERSION:
            raise Refused(
                "engine 'lattice': the active party's fedmq speaks another version of it: bring "
                "all parties to the same version"
            )
        seed, hint_bytes, offer = (public.get(key) for key in ("seed", "hint_bytes", "offer"))
        keys = {"seed", "hint_bytes", "version"}
        if (
            not keys <= set(public) <= {*keys, "offer"}
            or not isinstance(seed, np.ndarray)
            or seed.dtype != np.uint8
            or seed.shape != (SEED_BYTES,)
            or not isinstance(hint_bytes, int)
        ):
            raise Refused("the active party's seed or length of a hint is malformed")
        if offer is None and self.directions == "oblivious":
            raise Refused(
                "engine 'lattice': the active party wants directions of all rows (directions = "
                '"all"), and this party shows those of a node\'s rows only'
            )
        if offer is not None:
            try:
                check_elements(offer, 2)
            except MessageError as error:
                raise Refused(f"engine 'lattice': {error}") from None
        most = min(hint_bytes, self.hint_bytes)
        return LatticePassive(seed.tobytes(), offer, bins, most, parallelism)
