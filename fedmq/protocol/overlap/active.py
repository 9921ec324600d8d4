"""How does the active party have shared people counted? It asks, and reads a number at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedmq.errors import ProtocolError
from fedmq.messages import overlap
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.set_intersection import IdList, Points
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.machine import Machine, PeerConsents, on, on_message
from fedmq.protocol.overlap.passing_lists import PassingLists
from fedmq.protocol.overlap.states import ACTIVE_OVERLAP, ALL_AGREED, ActiveOverlapState

__all__ = ["ActiveOverlap", "SharedPeople"]

State = ActiveOverlapState


@dataclass(frozen=True, slots=True)
class SharedPeople:
    """How many people all parties share: ``people``, None if fewer than ``fewest``.

    ``exact``: it is the number itself, not a rounded one with noise.
    """

    people: int | None
    exact: bool
    fewest: int


class ActiveOverlap(Machine):
    """Has the ids counted that ``ids`` shares with those of all other ``parties``.

    ``normalise``: the names of the normalisation steps of the ids. ``key`` is fresh. It finishes
    with :class:`SharedPeople`.
    """

    TABLE = ACTIVE_OVERLAP
    PARTS = (PassingLists, PeerConsents)
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED

    def __init__(
        self, name: str, parties: Sequence[str], ids: IdList, normalise: Sequence[str], key: bytes
    ) -> None:
        super().__init__(State.READY, parties[1:])
        self._opening = overlap.OverlapOpen(
            name=name, parties=tuple(parties), normalise=tuple(normalise)
        )
        self._ids = ids
        self._agreed: set[str] = set()
        self._lists = PassingLists(self, parties[0], parties, key, self._with_passed)
        self._consents = PeerConsents(self)
        self._attach(self._lists)
        self._attach(self._consents)

    @property
    def awaits_consent(self) -> bool:
        return bool(self._consents)

    @on(Start)
    def _on_start(self, _: Start) -> None:
        for peer in self.peers:
            self._send(peer, self._opening)

    @on_message(overlap.OverlapAccept)
    def _on_accept(self, peer: str, _: overlap.OverlapAccept) -> None:
        if peer in self._agreed:
            raise ProtocolError("the count was accepted twice")
        self._agreed.add(peer)
        self._consents.answered(peer)
        if len(self._agreed) == len(self.peers):
            self._move(ALL_AGREED)
            for other in self.peers:
                self._send(other, overlap.OverlapBegin())
            self._lists.begin(self._ids)

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body, "refused")

    def _with_passed(self, _: list[list[Points]]) -> None:
        """All lists have left: the last passive party counts."""

    @on_message(overlap.OverlapCount)
    def _on_count(self, peer: str, body: overlap.OverlapCount) -> None:
        if peer != self.peers[-1]:
            raise ProtocolError(f"{self.peers[-1]} counts, not {peer}")
        self._emit(Finish(SharedPeople(body.people, body.exact, body.fewest)))
