"""How does an engine describe what to compute and what to ask?

A plan is a generator that yields steps and receives their results, so that the protocol's machines
can run it without I/O, threads or clocks, and the daemon its computations in other processes.

========================  ==================================================================
step                      resumes with
========================  ==================================================================
:class:`Compute`          the results of its computations, in their order
:class:`Exchange`         (active half) the payloads with which the passive half answered
:class:`Reply`            (passive half) nothing, once the payloads are on their way
:class:`HandOn`           (either half) nothing, once the next of a chain has the payloads
:class:`Handed`           (either half) the payloads that the one before it in a chain hands on
========================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedmq.computation import Computation

__all__ = [
    "Compute",
    "Ended",
    "Exchange",
    "HandOn",
    "Handed",
    "Plan",
    "Reply",
    "Values",
    "single",
]


T = TypeVar("T")


Values = dict[str, Any]
"""Named arrays and scalars that one half sends to the other; at most ``PIECE_BYTES`` together.

Parcels of circuits and queries of a lattice may have ``LARGEST_PIECE_BYTES``.
"""


PIECE_BYTES = 400_000
"""Below half of the greatest message: what else an event loop has to do waits for a piece, and each
piece takes it some time, however long it is."""

LARGEST_PIECE_BYTES = 1_000_000
"""Of what goes by the hundred megabytes: a broker and two event loops have work with each message.
"""

PARCELS_AHEAD = 3
"""Parcels of circuits that may come before one more is asked for."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Run these computations, in any order and in parallel."""

    computations: Sequence[Computation]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Ask the other half about the node at hand; pieces of at most ``PIECE_BYTES`` each.

    With ``later`` it is asked about several nodes at once. So many pieces about each of them follow
    as they are made for all peers (`engine.Question.parts`), and the payloads come by node.
    """

    pieces: Sequence[Values] = ()
    later: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the query about ``node``; at least one piece of at most ``PIECE_BYTES``."""

    node: int
    pieces: Sequence[Values]


@dataclass(frozen=True, slots=True)
class HandOn(Reply):
    """Hand ``pieces`` about ``node`` on to the next of a chain: see `fedmq.privacy.engine`."""


@dataclass(frozen=True, slots=True)
class Handed(Exchange):
    """Wait for what the one before in a chain hands on; there are no pieces of one's own."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The plan has returned ``value``."""

    value: Any


Plan = Generator[Compute | Exchange | Reply, Any, T]


def single(computation: Any) -> Plan[Any]:
    """The plan of one computation, and its result."""
    [result] = yield Compute([computation])
    return result
