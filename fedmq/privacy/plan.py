"""How does an engine describe what to compute and what to ask?

A plan is a generator that yields steps and receives their results. The protocol's machines run a
plan without I/O, threads or clocks; the daemon runs its computations in other processes.

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

Gradients of ``plain``, parcels of circuits and queries of a lattice, about sums and directions, may
have ``LARGEST_PIECE_BYTES``.
"""


PIECE_BYTES = 400_000
"""Less than half of the largest message. Other work of the event loop waits while it handles a
piece; each piece also has a fixed cost."""

LARGEST_PIECE_BYTES = 1_000_000
"""For data of hundreds of megabytes: each message costs a broker and two event loops some work.
"""

PARCELS_AHEAD = 3
"""Parcels of circuits that may arrive before the next request."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Run these computations, in any order and in parallel."""

    computations: Sequence[Computation]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Ask the other half about the node at hand; pieces of at most ``PIECE_BYTES`` each.

    With ``later`` the exchange is about several nodes at once. ``later`` pieces per node follow as
    they are made for all peers (`engine.Question.parts`); the payloads come by node.
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
    """Wait for the payloads that the previous party of a chain hands on; sends no pieces."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The plan has returned ``value``."""

    value: Any


Plan = Generator[Compute | Exchange | Reply, Any, T]


def single(computation: Any) -> Plan[Any]:
    """The plan of one computation, and its result."""
    [result] = yield Compute([computation])
    return result
