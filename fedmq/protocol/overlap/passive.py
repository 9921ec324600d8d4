"""How does a passive party help to count shared people? Lists pass it, and the last one counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages import overlap
from fedmq.privacy.noisy_count import told
from fedmq.privacy.plan import single
from fedmq.privacy.set_intersection import Common, IdList, Points, intersect
from fedmq.protocol.events import ComputationFailed, Fail, Finish, Save
from fedmq.protocol.machine import Machine, OwnConsent, on_message, turn_down
from fedmq.protocol.overlap.passing_lists import PassingLists
from fedmq.protocol.overlap.states import (
    ALL_PASSED,
    COUNTED,
    IDS,
    LIST_REFUSED,
    PASSIVE_OVERLAP,
    PassiveOverlapState,
)
from fedmq.protocol.session_records import ConsentUsed

__all__ = ["OverlapLimits", "PassiveOverlap"]

State = PassiveOverlapState


@dataclass(frozen=True, slots=True)
class OverlapLimits:
    """What a party lets be told of the number, and which lists it blinds.

    ``exact``: the number itself may be told. A number below ``fewest`` is told to nobody, and no
    list of fewer or of more than ``longest`` ids is blinded.
    """

    exact: bool
    fewest: int = 1
    longest: int = 2**28


class PassiveOverlap(Machine):
    """Passes the lists of ``parties`` on; the last of them counts, and adds ``noise`` if need be.

    ``load`` computes this party's ids. ``agree`` raises Refused if the terms do not suit it.
    ``key`` and ``noise`` are fresh. ``consent_within``: seconds that this party's owner has to
    answer, before any id is read; 0: the owner is not asked.
    """

    TABLE = PASSIVE_OVERLAP
    PARTS = (PassingLists, OwnConsent)
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED

    def __init__(
        self,
        party: str,
        parties: Sequence[str],
        load: Computation,
        agree: Callable[[overlap.OverlapOpen], object],
        key: bytes,
        noise: int,
        limits: OverlapLimits,
        consent_within: int = 0,
    ) -> None:
        super().__init__(State.READY, [peer for peer in parties if peer != party])
        self._party = party
        self._parties = tuple(parties)
        self._load = load
        self._agree = agree
        self._noise = noise
        self._own_limits = limits
        self._limits = {party: overlap.OverlapLimits(exact=limits.exact, fewest=limits.fewest)}
        self._ids: IdList
        self._blinded: list[list[Points]] | None = None
        """All lists under all keys, at the party that counts."""
        self._lists = PassingLists(self, party, parties, key, self._with_passed, self._accepts)
        self._consent = OwnConsent(self, consent_within, self._prepare, self._refuse)
        self._attach(self._lists)
        self._attach(self._consent)

    @property
    def awaits_consent(self) -> bool:
        return self.state is State.ASKING

    @property
    def _counts(self) -> bool:
        return self._party == self._parties[-1]

    # Opening

    @on_message(overlap.OverlapOpen)
    def _on_open(self, peer: str, terms: overlap.OverlapOpen) -> None:
        try:
            if terms.parties != self._parties:
                raise Refused(f"the count is among {', '.join(terms.parties)}, not all of us")
            self._agree(terms)
        except Refused as error:
            self._refuse(error)
            return
        self._consent.begin(peer)

    def _prepare(self) -> None:
        self._run(IDS, single(self._load), self._with_ids)

    def _with_ids(self, ids: IdList) -> None:
        self._ids = ids
        self._send(self._parties[0], overlap.OverlapAccept(rows=len(ids)))

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is State.PREPARING:
            # The error may quote this party's data, so the peer does not read it.
            self._refuse(event.error, "its own ids could not be read; its log says why")
        else:
            super()._on_computation_failed(event)

    def _refuse(self, error: FedmqError, disclosed: str = "") -> None:
        # The other parties may not have been asked yet; the active party tells them.
        turn_down(self, self._parties[0], disclosed or str(error))
        self._emit(Fail(error))

    @on_message(overlap.OverlapBegin)
    def _on_begin(self, peer: str, __: overlap.OverlapBegin) -> None:
        if peer != self._parties[0]:
            raise ProtocolError(f"{peer} does not begin a count")
        # A disclosed list cannot be withdrawn: another run needs another consent.
        self._emit(Save(ConsentUsed()))
        if not self._counts:
            self._send(self._parties[-1], self._limits[self._party])
        self._lists.begin(self._ids)

    # Lists pass

    def _accepts(self, owner: str, rows: int) -> bool:
        fewest, longest = self._own_limits.fewest, self._own_limits.longest
        if fewest <= rows <= longest:
            return True
        self._move(LIST_REFUSED)
        self._fail(
            Refused(
                f"{owner}'s list holds {rows} ids; {self._party} counts with {fewest} to {longest}"
            ),
            disclosed=f"{self._party} counts with lists of {fewest} to {longest} ids",
        )
        return False

    def _with_passed(self, blinded: list[list[Points]]) -> None:
        if not self._counts:
            self._move(ALL_PASSED)
            self._emit(Finish(None))
            return
        self._blinded = blinded
        self._count_when_all_have_spoken()

    # The last passive party counts

    @on_message(overlap.OverlapLimits)
    def _on_limits(self, peer: str, body: overlap.OverlapLimits) -> None:
        if not self._counts or peer == self._parties[0] or peer in self._limits:
            raise ProtocolError(f"unrequested limits of {peer}")
        self._limits[peer] = body
        self._count_when_all_have_spoken()

    def _count_when_all_have_spoken(self) -> None:
        if self._blinded is not None and len(self._limits) == len(self.peers):
            self._run(COUNTED, single(intersect.bind(self._blinded)), self._with_count)

    def _with_count(self, common: Common) -> None:
        exact = all(limits.exact for limits in self._limits.values())
        fewest = max(limits.fewest for limits in self._limits.values())
        # The limit is held against what is told: a limit on the number itself would tell whether
        # one more person reaches it.
        people = common.by_all if exact else told(common.by_all, self._noise)
        self._send(
            self._parties[0],
            overlap.OverlapCount(
                people=people if people >= fewest else None, exact=exact, fewest=fewest
            ),
        )
        self._emit(Finish(None))
