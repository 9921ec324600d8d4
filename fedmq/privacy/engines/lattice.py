"""Sums under ring learning with errors: milliseconds a node, and no passive party sees any row.

The active party asks about a node with encrypted g and h of all rows, 0 outside the node. The
passive party adds ciphertexts per candidate. The hints that decrypt the sums depend on the
candidates alone and travel before the first tree. Parameters are fixed:
`fedmq.privacy.lattice.parameters`.

A half imports its arithmetic when it is made, since reading options needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fedmq.boosting.binning import BinMatrix
from fedmq.errors import ConfigError, MessageError, Refused
from fedmq.privacy.engine import ActiveHalf, Engine, Leakage, PassiveHalf, SumsShown, Traits
from fedmq.privacy.plan import Values
from fedmq.privacy.random_stream import SEED_BYTES

__all__ = ["Lattice"]

DirectionsShown = Literal["oblivious", "all"]


@dataclass(frozen=True)
class Lattice(Engine):
    """``directions``: the row directions that the active party learns of a passive party's split.

    ``oblivious``: which of the node's rows go left, by oblivious transfer; ``all``: which of all
    rows go left, at one bit a row instead of 32. A passive party set to ``oblivious`` refuses
    ``all``. ``hint_bytes``: the longest hint that a passive party sends before the first tree; the
    smaller one of both parties holds. ``sums``: whether the active party sees the sums, or learns
    only which candidates win (`fedmq.privacy.hidden_sums`). A passive party set to ``hidden``
    refuses to show sums. ``covert``: where they are hidden, the copies of circuits of which the
    active party checks all but one (`fedmq.privacy.hidden_sums.copies`).
    """

    directions: DirectionsShown = "oblivious"
    hint_bytes: int = 1_000_000_000
    sums: SumsShown = "shown"
    covert: int = 1

    name = "lattice"
    traits = Traits(exact=True, hides_rows=True, keeps_numbers=True, replays=True, light=True)
    leakage = Leakage(
        active="the sums of g and h of every split candidate, which keeps its number for the "
        "session",
        passive="how many nodes are asked about; which of its candidates split which node",
    )
    leak_of_sums = (
        "the active party solves all sums together, and reads 99.8 % of the cells of 400 people "
        "from 14 trees, where guessing reaches 6.2 %"
    )

    def __post_init__(self) -> None:
        for name, allowed in (
            ("directions", get_args(DirectionsShown)),
            ("sums", get_args(SumsShown)),
        ):
            if (value := getattr(self, name)) not in allowed:
                raise ConfigError(f"{name} = {value!r}: use {', '.join(allowed)}")
        if self.hint_bytes < 1:
            raise ConfigError(f"hint_bytes = {self.hint_bytes}: a number of bytes is needed")
        self._check_copies()

    def announced(self, public: Values) -> Mapping[str, str | int | float]:
        shown = {} if "offer" in public else {"directions": "all"}
        return {**shown, **super().announced({"covert": public.get("covert")})}

    def active(self, parallelism: int) -> ActiveHalf:
        from fedmq.privacy.hidden_sums.active import HiddenActive
        from fedmq.privacy.lattice.active import LatticeActive, LatticeActiveShares

        oblivious = self.directions == "oblivious"
        if self.hides_sums:
            half = LatticeActiveShares(self.hint_bytes, oblivious, parallelism)
            return HiddenActive(half, self.covert)
        return LatticeActive(self.hint_bytes, oblivious, parallelism)

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        from fedmq.privacy.hidden_sums.passive import HiddenPassive
        from fedmq.privacy.lattice.parameters import VERSION
        from fedmq.privacy.lattice.passive import LatticePassive, LatticePassiveShares
        from fedmq.privacy.oblivious_transfer.base_transfers import check_elements

        if public.get("version", 1) != VERSION:
            raise Refused(
                "engine 'lattice': the active party's fedmq speaks another version of it: bring "
                "all parties to the same version"
            )
        seed, hint_bytes, offer = (public.get(key) for key in ("seed", "hint_bytes", "offer"))
        keys = {"seed", "hint_bytes", "version", *({"circuits", "back"} if self.hides_sums else ())}
        if (
            not keys <= set(public) <= {*keys, "offer", *(["covert"] if self.hides_sums else [])}
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
        try:
            if offer is not None:
                check_elements(offer, 2)
        except MessageError as error:
            raise Refused(f"engine 'lattice': {error}") from None
        most = min(hint_bytes, self.hint_bytes)
        if self.hides_sums:
            shares = LatticePassiveShares(seed.tobytes(), offer, bins, most, parallelism)
            return HiddenPassive.of(self.name, shares, public)
        return LatticePassive(seed.tobytes(), offer, bins, most, parallelism)
