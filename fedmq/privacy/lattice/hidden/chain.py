"""Which of several feature holders wins? They stand in a chain, and each hands on the best so far.

A link compares the best candidate of one feature holder with what it has to beat: the label
holder's best, or of those that stand before it the best one. That one wins ties, as the first
column does with XGBoost. What comes out is shared: the label holder reads its colours, the feature
holder hands its own ones on to the next, and neither learns a bit of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fedmq.privacy.garbling.circuit import Circuit
from fedmq.privacy.garbling.integers import at_least, constant, select, when
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.lattice.hidden.gain_circuit import GAIN_BITS

__all__ = ["ALONE", "Place", "link_schedule"]


@dataclass(frozen=True, slots=True)
class Place:
    """The ``number`` of a feature holder, from 1 to ``parties``, in the order of the columns."""

    number: int
    parties: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.parties:
            raise ValueError(f"no place {self.number} in a chain of {self.parties}")

    @property
    def is_first(self) -> bool:
        """Whether the label holder's own best is what it has to beat."""
        return self.number == 1

    @property
    def is_last(self) -> bool:
        """Whether the label holder is told who won."""
        return self.number == self.parties

    @property
    def taken_bits(self) -> dict[str, int]:
        """What a link takes of the best so far: its gain, and its owner, unless that is known."""
        bits = {"to beat": GAIN_BITS}
        return bits if self.is_first else bits | {"owner": (self.number - 1).bit_length()}

    @property
    def owner_bits(self) -> int:
        """Of the owner's number behind the link."""
        return self.number.bit_length()


ALONE = Place(1, 1)


@cache
def link_schedule(place: Place, index_bits: int) -> Schedule:
    """The best of this party and of those before it: its ``owner``, and ``gain`` for the next.

    ``won``: whether it is this party's; ``index``: of the candidate, 0 where not won.
    """
    c = Circuit()
    gain, index = c.input("gain", GAIN_BITS), c.input("index", index_bits)
    taken = {name: c.input(name, bits) for name, bits in place.taken_bits.items()}
    before = taken.get("owner", constant(0, place.owner_bits))
    stays = at_least(c, taken["to beat"], gain)
    won = c.inverse(stays)
    c.output("won", [won])
    c.output("index", when(c, won, index))
    c.output("owner", select(c, won, constant(place.number, place.owner_bits), before))
    if not place.is_last:
        c.output("gain", select(c, stays, taken["to beat"], gain))
    return Schedule.of(c)
