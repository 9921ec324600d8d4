"""How does a list of blinded ids pass through the parties? The part that both machines share.

A list starts at its owner, passes through all other passive parties and ends at the active party,
which then has every list under all keys. Each passive party re-sorts the active party's own list.
So the active party finds common rows in it, but not which of its ids they are. The places on the
way back identify its ids for the common rows alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Given
from fedmq.errors import ProtocolError
from fedmq.messages import alignment
from fedmq.messages.array import Array
from fedmq.privacy.plan import single
from fedmq.privacy.set_intersection import (
    LACKED,
    IdList,
    Points,
    Sorted,
    blind,
    blind_ids,
    sort_points,
)
from fedmq.protocol.alignment.states import BLINDED, BURST, OWN_BLINDED, OWN_SORTED
from fedmq.protocol.events import Report
from fedmq.protocol.machine import Machine, on_message
from fedmq.protocol.travelling_list import IN_ONE_GO, POINTS, Pieces, after, before, parts

__all__ = ["Alignment"]

_PLACES = 200_000  # per message: 800 kB


class Alignment(Machine, ABC):
    """One party's side of an alignment among ``parties``, the active party first.

    ``key`` (32 random bytes) must be fresh: a key used twice would link two alignments.
    """

    def __init__(self, state: Enum, party: str, parties: Sequence[str], key: bytes) -> None:
        super().__init__(state, [peer for peer in parties if peer != party])
        self._party = party
        self._parties = tuple(parties)
        self._active = parties[0]
        self._key = key
        self._sent_order: NDArray[np.uint32]
        """The index of this party's id at each place of its sent list."""
        self._lists: dict[str, Pieces] = {}
        """The lists under this party's key, by owner."""
        self._arriving: dict[str, Pieces] = {}
        self._places: dict[str, Pieces] = {}
        self._keeps_order = False
        """Whether its own list has an order already, which is not sorted."""
        self._done = 0
        self._total = 0

    # A list leaves its owner

    def _blind_own(self, ids: IdList) -> None:
        self._lists[self._party] = Pieces(len(ids), POINTS)
        self._total += len(ids)
        for start in range(0, len(ids), POINTS):
            computation = blind_ids.bind(self._key, ids.part(start, start + POINTS))
            self._run(OWN_BLINDED, single(computation), partial(self._with_own, start))

    def _with_own(self, start: int, points: Points) -> None:
        own = self._lists[self._party]
        own.add(start, points)
        self._worked(len(points))
        if own.complete and self._keeps_order:
            del self._lists[self._party]
            self._pass_on(self._party, np.concatenate(own.in_order()))
        elif own.complete:
            # A sorted list does not disclose the order in which its owner holds the ids.
            self._run(OWN_SORTED, single(sort_points.bind(own.in_order())), self._send_own)

    def _send_own(self, ordered: Sorted) -> None:
        del self._lists[self._party]
        self._sent_order = ordered.origin
        self._pass_on(self._party, ordered.points)

    # A list passes

    @on_message(alignment.BlindedIds)
    def _on_blinded(self, peer: str, body: alignment.BlindedIds) -> None:
        owner = body.owner
        if owner not in self._parties or peer != self._before(owner):
            raise ProtocolError(f"{owner}'s list takes another route")
        if owner not in self._arriving:
            self._arriving[owner] = Pieces(body.rows, POINTS)
            self._lists[owner] = Pieces(body.rows, POINTS)
            if not self._announced(owner, body.rows):
                return
        arriving = self._arriving[owner]
        points = body.points.numpy()
        if arriving.rows != body.rows:
            raise ProtocolError(f"{owner}'s list had {arriving.rows} rows, now {body.rows}")
        arriving.add(body.start, np.empty((len(points), 0)))  # note the arrival, not the content
        key = self._factor(owner)
        if key is None:
            self._with_points(owner, body.start, points)
        else:
            computation = blind.bind(key, points)
            self._run(BLINDED, single(computation), partial(self._with_product, owner, body.start))

    def _factor(self, owner: str) -> bytes | None:
        """The key by which an arriving list is multiplied; None: it is complete."""
        return None if owner == self._party else self._key

    def _announced(self, owner: str, rows: int) -> bool:
        """Take the length of an arriving list; False if it ends the session."""
        return True

    def _with_product(self, owner: str, start: int, points: Points) -> None:
        self._worked(len(points))
        self._with_points(owner, start, points)

    @abstractmethod
    def _with_points(self, owner: str, start: int, points: Points) -> None:
        """Take a piece of a list that is now under this party's key."""

    def _pass_on(self, owner: str, points: Points, first: int = 0) -> None:
        """Send the list from row ``first`` on, with pauses."""
        stop = first + IN_ONE_GO * POINTS
        for start, part in parts(points[first:stop], POINTS):
            self._send_points(owner, first + start, len(points), part)
        if stop < len(points):
            self._run(BURST, single(Given(None)), lambda _: self._pass_on(owner, points, stop))

    def _send_points(self, owner: str, start: int, rows: int, points: Points) -> None:
        body = alignment.BlindedIds(owner=owner, start=start, rows=rows, points=Array.of(points))
        self._send(self._after(owner), body)

    def _before(self, owner: str) -> str:
        """The party before this one on the way of ``owner``'s list; empty if it does not pass."""
        return before(self._parties, owner, self._party)

    def _after(self, owner: str) -> str:
        """The party after this one on the way of ``owner``'s list."""
        return after(self._parties, owner, self._party)

    # Places of the common rows come back

    def _arrived_places(self, body: alignment.CommonRows) -> NDArray[np.uint32] | None:
        """All places in the list of ``body.owner``; None until the last has arrived."""
        pieces = self._places.setdefault(body.owner, self._places_of(body.rows))
        if pieces.rows != body.rows:
            raise ProtocolError(f"{pieces.rows} rows were common, now {body.rows}")
        pieces.add(body.start, body.places.numpy())
        return np.concatenate(pieces.in_order()) if pieces.complete else None

    def _own_rows(self, places: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The indices of this party's ids at ``places`` of its list; ``LACKED`` stays."""
        held = places != LACKED
        rows = np.full(len(places), LACKED, np.uint32)
        rows[held] = self._found(self._sent_order, places[held])
        return rows

    @staticmethod
    def _found(origin: NDArray[np.uint32], places: NDArray[np.uint32]) -> NDArray[np.uint32]:
        if int(places.max(initial=0)) >= len(origin):
            raise ProtocolError(f"row {int(places.max())} of a list of {len(origin)} rows")
        return origin[places]

    def _send_places(self, recipient: str, owner: str, places: NDArray[np.uint32]) -> None:
        for start, part in self._in_parts(places):
            self._send(
                recipient,
                alignment.CommonRows(
                    owner=owner, start=start, rows=len(places), places=Array.of(part)
                ),
            )

    @staticmethod
    def _places_of(rows: int) -> Pieces:
        """So many numbers, which arrive as `_in_parts` cuts them."""
        return Pieces(rows, _PLACES)

    @staticmethod
    def _in_parts(numbers: NDArray[np.uint32]) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        return parts(numbers, _PLACES)

    def _worked(self, ids: int) -> None:
        self._done += ids
        self._emit(Report(self._done, self._total, "id", {}))
