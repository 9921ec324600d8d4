"""Which of several feature holders wins? They stand in a chain, and each hands on the best so far.

A link compares the best candidate of one feature holder with what it has to beat: the label
holder's best, or of those that stand before it the best one. That one wins ties, as the first
column does with XGBoost. What comes out is shared: the label holder reads its colours, the feature
holder hands its own ones on to the next, and neither learns a bit of it.
"""

from __future__ import annotations

from functools import cache

from fedmq.privacy.contest import Place
from fedmq.privacy.garbling.circuit import Circuit
from fedmq.privacy.garbling.integers import at_least, constant, select, when
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.lattice.hidden.gain_circuit import GAIN_BITS

__all__ = ["link_schedule", "owner_bits", "taken_bits"]


def taken_bits(place: Place) -> dict[str, int]:
    """What a link takes of the best so far: its gain, and its owner, unless that is known."""
    bits = {"to beat": GAIN_BITS}
    return bits if place.is_first else bits | {"owner": owner_bits(place.number - 1)}


def owner_bits(number: int) -> int:
    """Of the owner's number behind the link of a party with this ``number``."""
    return number.bit_length()


@cache
def link_schedule(place: Place, index_bits: int) -> Schedule:
    """The best of this party and of those before it: its ``owner``, and ``gain`` for the next.

    ``won``: whether it is this party's; ``index``: of the candidate, 0 where not won.
    """
    c = Circuit()
    gain, index = c.input("gain", GAIN_BITS), c.input("index", index_bits)
    taken = {name: c.input(name, bits) for name, bits in taken_bits(place).items()}
    before = taken.get("owner", constant(0, owner_bits(place.number)))
    stays = at_least(c, taken["to beat"], gain)
    won = c.inverse(stays)
    c.output("won", [won])
    c.output("index", when(c, won, index))
    c.output("owner", select(c, won, constant(place.number, owner_bits(place.number)), before))
    if not place.is_last:
        c.output("gain", select(c, stays, taken["to beat"], gain))
    return Schedule.of(c)
