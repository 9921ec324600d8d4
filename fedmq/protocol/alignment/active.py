"""How does the active party intersect? All lists end here, and it finds what they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError, ProtocolError
from fedmq.messages import alignment
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.plan import single
from fedmq.privacy.set_intersection import Common, IdList, Points, intersect
from fedmq.protocol.alignment.blinded_lists import Alignment, Keep
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

__all__ = ["ActiveAlignment"]

State = ActiveAlignmentState


class ActiveAlignment(Alignment):
    """Aligns ``ids`` with all other ``parties``; finishes with the result of ``keep``.

    ``normalise``: the names of the normalisation steps of the ids. With fewer than ``fewest``
    common ids the alignment fails.
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
        keep: Keep,
        fewest: int = 1,
    ) -> None:
        super().__init__(State.READY, parties[0], parties, key)
        self._name = name
        self._ids = ids
        self._normalise = tuple(normalise)
        self._keep = keep
        self._fewest = {self._party: fewest}
        self._own_places: NDArray[np.uint32] | None = None
        self._ready: set[str] = set()
        self._storing = set(self.peers)
        self._consents = PeerConsents(self)
        self._attach(self._consents)

    @property
    def awaits_consent(self) -> bool:
        return bool(self._consents)

    @on(Start)
    def _on_start(self, _: Start) -> None:
        opening = alignment.AlignmentOpen(
            name=self._name, parties=self._parties, normalise=self._normalise
        )
        for peer in self.peers:
            self._send(peer, opening)

    @on_message(alignment.AlignmentAccept)
    def _on_accept(self, peer: str, body: alignment.AlignmentAccept) -> None:
        if peer in self._fewest:
            raise ProtocolError("the alignment was accepted twice")
        self._consents.answered(peer)
        self._fewest[peer] = body.fewest
        self._total += body.rows
        if len(self._fewest) == len(self._parties):
            self._move(ALL_AGREED)
            for peer in self.peers:
                self._send(peer, alignment.AlignmentBegin())
            self._blind_own(self._ids)

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
            self._run(COMMON, single(intersect.bind(points_of)), self._with_common)

    def _with_common(self, common: Common) -> None:
        self._lists.clear()
        wanting = max(self._fewest, key=lambda party: self._fewest[party])
        fewest = max(1, self._fewest[wanting])
        if common.count < fewest:
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
            for owner, places in zip(self._parties, common.places, strict=True):
                # Lists of others are here in their owners' order; the own list was reordered.
                back = self._before(owner) if owner == self._party else owner
                self._send_places(back, owner, places)

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
                self._send(peer, alignment.StoreAlignment())

    @on_message(alignment.AlignmentStored)
    def _on_stored(self, peer: str, _: alignment.AlignmentStored) -> None:
        # This party stores last: an alignment stored here is stored everywhere.
        assert self._own_places is not None
        self._discard(peer, self._storing)
        if not self._storing:
            self._run(STORED, single(self._keep(self._own_places)), self._finish)

    def _finish(self, kept: object) -> None:
        self._emit(Finish(kept))
