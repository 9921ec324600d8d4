"""How does a list pass a party that counts shared people? The part that both machines share.

A list passes through all other parties and ends at the last passive one. Every party on the way
multiplies its points by a key of its own and sorts the whole list anew. So the last one finds how
many points all lists share, and nobody knows which id a point was: the owner's order is lost at the
first party, and no list comes back but that of the party which counts, in an order of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fedmq.computation import Given
from fedmq.errors import ProtocolError
from fedmq.messages import overlap
from fedmq.messages.array import Array
from fedmq.privacy.plan import single
from fedmq.privacy.set_intersection import (
    IdList,
    Points,
    Sorted,
    blind,
    blind_ids,
    sort_points,
)
from fedmq.protocol.events import Report
from fedmq.protocol.machine import Machine, Part, on_message
from fedmq.protocol.overlap.states import BLINDED, BURST, SORTED
from fedmq.protocol.travelling_list import IN_ONE_GO, POINTS, Pieces, after, before, parts

__all__ = ["PassingLists"]


def _anyhow(_: str, __: int) -> bool:
    return True


class PassingLists(Part):
    """The lists of all ``parties`` as they pass ``party``; the last of ``parties`` keeps them.

    ``key`` (32 random bytes) must be fresh: a key used twice would link two counts. ``done`` takes
    the lists that all parties have blinded, empty where they end elsewhere, once every list has
    passed. ``accepts`` takes the owner and length of an arriving list; False: it ended the session.
    """

    def __init__(
        self,
        machine: Machine,
        party: str,
        parties: Sequence[str],
        key: bytes,
        done: Callable[[list[list[Points]]], None],
        accepts: Callable[[str, int], bool] = _anyhow,
    ) -> None:
        super().__init__(machine)
        self._party = party
        self._parties = tuple(parties)
        self._order = (parties[-1], *parties[:-1])
        """The party at which all lists end, then the others."""
        self._key = key
        self._is_done = done
        self._accepts = accepts
        self._own_rows = 0
        self._lists: dict[str, Pieces] = {}
        """The lists under this party's key, by owner."""
        self._arriving: dict[str, Pieces] = {}
        self._passed: set[str] = set()
        """The owners of lists that have left, or that end here."""
        self._worked = 0

    def begin(self, ids: IdList) -> None:
        """Blind the party's own list, which then leaves."""
        self._own_rows = len(ids)
        self._lists[self._party] = Pieces(len(ids), POINTS)
        for start in range(0, len(ids), POINTS):
            computation = blind_ids.bind(self._key, ids.part(start, start + POINTS))
            self._run(BLINDED, single(computation), partial(self._with_blinded, self._party, start))

    @on_message(overlap.ShuffledIds)
    def _on_piece(self, peer: str, body: overlap.ShuffledIds) -> None:
        owner = body.owner
        if owner not in self._parties or peer != before(self._order, owner, self._party):
            raise ProtocolError(f"{owner}'s list takes another route")
        if owner == self._party and not self._own_has_left:
            raise ProtocolError("its own list comes back before it left")
        if owner not in self._arriving:
            if owner == self._party and body.rows != self._own_rows:
                raise ProtocolError(
                    f"its own list of {self._own_rows} ids comes back with {body.rows}"
                )
            self._arriving[owner] = Pieces(body.rows, POINTS)
            self._lists[owner] = Pieces(body.rows, POINTS)
            if not self._accepts(owner, body.rows):
                return
        arriving = self._arriving[owner]
        points = body.points.numpy()
        if arriving.rows != body.rows:
            raise ProtocolError(f"{owner}'s list had {arriving.rows} rows, now {body.rows}")
        arriving.add(body.start, points[:, :0])  # note the arrival, not the content
        if owner == self._party:
            self._add(owner, body.start, points)
        else:
            computation = blind.bind(self._key, points)
            self._run(BLINDED, single(computation), partial(self._with_blinded, owner, body.start))

    @property
    def _own_has_left(self) -> bool:
        return bool(self._own_rows) and (
            self._party in self._arriving or self._party not in self._lists
        )

    def _with_blinded(self, owner: str, start: int, points: Points) -> None:
        self._worked += len(points)
        total = sum(pieces.rows for pieces in self._arriving.values()) + self._own_rows
        self._emit(Report(self._worked, max(self._worked, total), "id", {}))
        self._add(owner, start, points)

    def _add(self, owner: str, start: int, points: Points) -> None:
        pieces = self._lists[owner]
        pieces.add(start, points)
        if not pieces.complete:
            return
        if self._party == self._order[0] and owner in self._arriving:
            self._has_passed(owner)  # it ends here
        else:
            sorting = sort_points.bind(pieces.in_order())
            self._run(SORTED, single(sorting), partial(self._with_sorted, owner))

    def _with_sorted(self, owner: str, ordered: Sorted) -> None:
        del self._lists[owner]
        self._pass_on(owner, ordered.points)

    def _pass_on(self, owner: str, points: Points, first: int = 0) -> None:
        """Send the list from row ``first`` on, with pauses."""
        stop = first + IN_ONE_GO * POINTS
        for start, part in parts(points[first:stop], POINTS):
            self._send(
                after(self._order, owner, self._party),
                overlap.ShuffledIds(
                    owner=owner, start=first + start, rows=len(points), points=Array.of(part)
                ),
            )
        if stop < len(points):
            self._run(BURST, single(Given(None)), lambda _: self._pass_on(owner, points, stop))
        elif self._party != self._order[0]:
            self._has_passed(owner)

    def _has_passed(self, owner: str) -> None:
        self._passed.add(owner)
        if len(self._passed) == len(self._parties):
            self._is_done([pieces.in_order() for pieces in self._lists.values()])
