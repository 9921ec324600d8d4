"""How does the active party intersect? All lists end here, and it finds what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.errors import DataError, ProtocolError
from fedmq.messages import alignment
from fedmq.messages.array import Array
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.kept_blinding import inverse_key
from fedmq.privacy.plan import single
from fedmq.privacy.set_intersection import LACKED, Common, IdList, Points, intersect
from fedmq.protocol.alignment.blinded_lists import Alignment
from fedmq.protocol.alignment.states import (
    ACTIVE_ALIGNMENT,
    ALL_AGREED,
    ALL_KNOW,
    COMMON,
    ENOUGH,
    STORED,
    TOO_FEW,
    ActiveAlignmentState,
)
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.machine import PeerConsents, on, on_message
from fedmq.protocol.travelling_list import POINTS, Pieces

__all__ = ["ActiveAlignment", "KeptList", "PeopleFound"]

State = ActiveAlignmentState


class KeptList(Protocol):
    """The points of the other party's list that this party keeps, under that party's key."""

    @property
    def name(self) -> str:
        """The list's name; empty if none is kept."""

    @property
    def kept(self) -> int:
        """How many points they are."""

    def find(
        self,
        own: Sequence[Points],
        name: str,
        kept: int,
        fresh: Sequence[Points],
        required: Sequence[int] | None,
    ) -> Computation:
        """What keeps ``fresh`` points behind the first ``kept`` ones, and then intersects.

        ``name``: of the list from now on; ``own``: this party's list under the other party's key.
        """


@dataclass(frozen=True, slots=True, eq=False)
class PeopleFound:
    """How many people each choice of an alignment has: ``left`` all of the active party's.

    ``inner``: those whom all parties hold. ``known_to``: the people of the active party whom each
    passive party holds. ``lacking`` bool (rows,): which of the alignment's people a party lacks;
    parties that lack nobody are left out.
    """

    left: int
    inner: int
    known_to: Mapping[str, int]
    lacking: Mapping[str, NDArray[np.bool_]]

    @property
    def lacked_at(self) -> dict[str, int]:
        """How many of these people each party lacks."""
        return {party: int(rows.sum()) for party, rows in self.lacking.items()}


class ActiveAlignment(Alignment):
    """Aligns ``ids`` with all other ``parties``; finishes with the result of ``keep``.

    ``normalise``: the names of the normalisation steps of the ids. ``known_to``: the passive
    parties that must hold a person, None: all. If a party holds fewer than ``fewest`` of the
    alignment's people, the alignment fails. ``rows_of`` uint32 (ids,): how many rows each person
    has here, if some have several; other parties hear of those whom they share.
    ``kept_list``: the other party, of two, may keep its blinding; None: all keys are fresh.
    """

    TABLE = ACTIVE_ALIGNMENT
    PARTS = (PeerConsents,)
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED

    def __init__(
        self,
        name: str,
        parties: Sequence[str],
        ids: IdList,
        normalise: Sequence[str],
        key: bytes,
        keep: Callable[[NDArray[np.uint32], PeopleFound, NDArray[np.uint32] | None], Computation],
        fewest: int = 1,
        known_to: Sequence[str] | None = None,
        rows_of: NDArray[np.uint32] | None = None,
        kept_list: KeptList | None = None,
    ) -> None:
        super().__init__(State.READY, parties[0], parties, key)
        self._name = name
        self._ids = ids
        self._normalise = tuple(normalise)
        self._keep = keep
        self._rows_of = rows_of
        self._fewest = {self._party: fewest}
        self._known_to = None if known_to is None else tuple(known_to)
        self._kept_list = kept_list
        self._kept_name, self._kept, self._fresh = "", 0, 0
        self._inverse = b"" if kept_list is None else inverse_key(key)
        self._found_people: PeopleFound
        self._own_places: NDArray[np.uint32] | None = None
        self._ready: set[str] = set()
        self._storing = set(self.peers)
        self._consents = PeerConsents(self)
        self._attach(self._consents)

    @property
    def reused(self) -> int:
        """How many points of the other party's list were kept from an earlier alignment."""
        return self._kept

    @property
    def awaits_consent(self) -> bool:
        return bool(self._consents)

    @on(Start)
    def _on_start(self, _: Start) -> None:
        opening = alignment.AlignmentOpen(
            name=self._name,
            parties=self._parties,
            normalise=self._normalise,
            known_to=self._known_to,
            keeps=None if self._kept_list is None else self._kept_list.name,
            kept=0 if self._kept_list is None else self._kept_list.kept,
        )
        for peer in self.peers:
            self._send(peer, opening)

    @on_message(alignment.AlignmentAccept)
    def _on_accept(self, peer: str, body: alignment.AlignmentAccept) -> None:
        if peer in self._fewest:
            raise ProtocolError("the alignment was accepted twice")
        self._consents.answered(peer)
        self._fewest[peer] = body.fewest
        if self._kept_list is None:
            self._total += body.rows
        else:
            self._take_blinding(peer, self._kept_list, body)
        if len(self._fewest) == len(self._parties):
            self._move(ALL_AGREED)
            for peer in self.peers:
                self._send(peer, alignment.AlignmentBegin())
            self._blind_own(self._ids)

    def _take_blinding(
        self, peer: str, kept_list: KeptList, body: alignment.AlignmentAccept
    ) -> None:
        if not body.keeps:
            raise ProtocolError("it was to keep its blinding, and does not say which it is")
        same = body.keeps == kept_list.name and body.kept == kept_list.kept
        if body.kept > body.rows or not (same or body.kept == 0):
            raise ProtocolError(f"it counts on {body.kept} kept points, which are not here")
        self._kept_name, self._kept = body.keeps, body.kept
        self._fresh = body.rows - body.kept
        self._total += len(self._ids)  # the other party's key stays on: only the own is taken off
        if not self._fresh:  # nothing will arrive
            self._lists[peer] = Pieces(0, POINTS)

    def _announced(self, owner: str, rows: int) -> bool:
        if self._kept_list is not None and owner != self._party and rows != self._fresh:
            raise ProtocolError(f"{rows} points arrive of a list that lacks {self._fresh}")
        return True

    def _factor(self, owner: str) -> bytes | None:
        if self._kept_list is None:
            return super()._factor(owner)
        return self._inverse if owner == self._party else None

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body, "refused")

    def _with_points(self, owner: str, start: int, points: Points) -> None:
        self._lists[owner].add(start, points)
        lists = [self._lists[party] for party in self._parties if party in self._lists]
        if (
            len(lists) == len(self._parties)
            and all(pieces.complete for pieces in lists)
            and self._party in self._arriving
        ):
            points_of = [pieces.in_order() for pieces in lists]
            required = self._required()
            if self._kept_list is not None:
                own, fresh = points_of
                finding = self._kept_list.find(
                    own, self._kept_name, self._kept, fresh, self._required()
                )
                self._run(COMMON, single(finding), self._with_common)
                return
            finding = (
                intersect.bind(points_of)
                if required is None
                else intersect.bind(points_of, required)
            )
            self._run(COMMON, single(finding), self._with_common)

    def _required(self) -> tuple[int, ...] | None:
        """The numbers of the parties that must hold a person; None: all."""
        if self._known_to is None:
            return None
        return (0, *(self._parties.index(party) for party in self._known_to))

    def _with_common(self, common: Common) -> None:
        self._lists.clear()
        held = dict(zip(self._parties, common.held, strict=True))
        held[self._party] = min(common.held)  # it wants as many people of each other party
        few = [party for party in self._fewest if held[party] < max(1, self._fewest[party])]
        if few:
            wanting = max(few, key=lambda party: self._fewest[party])
            fewest = max(1, self._fewest[wanting])
            # The count stays hidden: a party with a minimum wants no smaller count disclosed.
            why = (
                "the parties have no id in common; do all use the same kind of id?"
                if fewest == 1
                else f"the parties have fewer ids in common than the {fewest} that {wanting} "
                "wants; do all write ids alike (data.normalise)?"
            )
            self._move(TOO_FEW)
            self._fail(
                DataError(why),
                disclosed=(
                    why
                    if fewest == 1
                    else "the parties have fewer ids in common than one of them wants"
                ),
            )
        else:
            self._move(ENOUGH)
            self._found_people = self._people_found(common)
            for owner, places in zip(self._parties, common.places, strict=True):
                # Lists of others are here in their owners' order; the own list was reordered.
                back = self._before(owner) if owner == self._party else owner
                self._send_places(back, owner, places)

    def _people_found(self, common: Common) -> PeopleFound:
        rows = common.count
        held = dict(zip(self._parties, common.held, strict=True))
        lacking = {
            peer: places == LACKED
            for peer, places in zip(self.peers, common.places[1:], strict=True)
            if held[peer] < rows
        }
        return PeopleFound(
            left=len(self._ids),
            inner=common.by_all,
            known_to=dict(zip(self.peers, common.shared[1:], strict=True)),
            lacking=lacking,
        )

    @on_message(alignment.CommonRows)
    def _on_common(self, peer: str, body: alignment.CommonRows) -> None:
        if body.owner != self._party or peer != self._after(self._party):
            raise ProtocolError("unrequested places of common rows")
        places = self._arrived_places(body)
        if places is not None:
            self._own_places = self._own_rows(places)
            self._store_when_ready()

    @on_message(alignment.AlignmentReady)
    def _on_ready(self, peer: str, _: alignment.AlignmentReady) -> None:
        self._ready.add(peer)
        self._store_when_ready()

    def _store_when_ready(self) -> None:
        if self._own_places is not None and len(self._ready) == len(self.peers):
            self._move(ALL_KNOW)
            for peer in self.peers:
                self._tell_counts(peer)
                self._send(peer, alignment.StoreAlignment())

    @property
    def _counts(self) -> NDArray[np.uint32] | None:
        """How many rows each of the alignment's people has; None: one each."""
        assert self._own_places is not None
        return None if self._rows_of is None else self._rows_of[self._own_places]

    def _tell_counts(self, peer: str) -> None:
        if (counts := self._counts) is None:
            return
        for start, part in self._in_parts(counts):
            body = alignment.RepeatedRows(start=start, people=len(counts), counts=Array.of(part))
            self._send(peer, body)

    @on_message(alignment.AlignmentStored)
    def _on_stored(self, peer: str, _: alignment.AlignmentStored) -> None:
        # This party stores last: an alignment stored here is stored everywhere.
        assert self._own_places is not None
        self._discard(peer, self._storing)
        if not self._storing:
            keeping = self._keep(self._own_places, self._found_people, self._counts)
            self._run(STORED, single(keeping), self._finish)

    def _finish(self, kept: object) -> None:
        self._emit(Finish(kept))
