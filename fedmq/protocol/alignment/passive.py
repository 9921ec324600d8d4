"""How does a passive party blind? It blinds lists that pass, and learns its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages import alignment
from fedmq.privacy.kept_blinding import Blinding
from fedmq.privacy.plan import single
from fedmq.privacy.set_intersection import LACKED, IdList, Points, Sorted, sort_points
from fedmq.protocol.alignment.blinded_lists import Alignment
from fedmq.protocol.alignment.states import (
    IDS,
    LIST_REFUSED,
    LIST_SORTED,
    PASSIVE_ALIGNMENT,
    ROWS_KNOWN,
    STORED,
    TOO_FEW,
    PassiveAlignmentState,
)
from fedmq.protocol.events import ComputationFailed, Fail, Finish, Save
from fedmq.protocol.machine import OwnConsent, on_message, turn_down
from fedmq.protocol.session_records import ConsentUsed
from fedmq.protocol.travelling_list import Pieces

__all__ = ["OwnIds", "PassiveAlignment"]

State = PassiveAlignmentState


class OwnIds(Protocol):
    """A party's ids, and how to store an alignment of them."""

    @property
    def ids(self) -> IdList:
        """The ids, normalised, each once."""

    @property
    def blinding(self) -> Blinding | None:
        """How they are blinded with a key that is kept; None: with a fresh one."""

    def keep(
        self, rows: NDArray[np.uint32], *, counts: NDArray[np.uint32] | None = None
    ) -> Computation:
        """The computation that stores the alignment: the ids at ``rows``, in this order.

        ``LACKED`` stands for a person whom this party lacks. ``counts``: how many rows each person
        has at the active party; None: one each.
        """


class PassiveAlignment(Alignment):
    """Aligns with all other ``parties``; ``load`` computes this party's :class:`OwnIds`.

    ``agree`` raises Refused if the terms do not suit this party. The alignment needs at least
    ``fewest`` common ids, so the party blinds no list shorter than that: too few would be common.
    Nor does it blind a list of more than ``longest`` ids. ``consent_within``: seconds that this
    party's owner has to answer, before any id is read; 0: the owner is not asked.
    """

    TABLE = PASSIVE_ALIGNMENT
    PARTS = (OwnConsent,)
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED

    def __init__(
        self,
        party: str,
        parties: Sequence[str],
        load: Computation,
        agree: Callable[[alignment.AlignmentOpen], object],
        key: bytes,
        fewest: int = 1,
        longest: int = 2**28,
        consent_within: int = 0,
    ) -> None:
        super().__init__(State.READY, party, parties, key)
        self._load = load
        self._agree = agree
        self._fewest = fewest
        self._longest = longest
        self._consent = OwnConsent(self, consent_within, self._prepare, self._refuse)
        self._attach(self._consent)
        self._own: OwnIds
        self._may_lack = False
        self._list_origin: NDArray[np.uint32] | None = None
        """The place of each row of the active party's list before this party sorted it."""
        self._own_places: NDArray[np.uint32]
        self._counts: Pieces | None = None
        """How many rows each person has at the active party, if it says so."""

    @property
    def awaits_consent(self) -> bool:
        return self.state is State.ASKING

    # Opening

    @on_message(alignment.AlignmentOpen)
    def _on_open(self, _: str, terms: alignment.AlignmentOpen) -> None:
        try:
            if terms.parties != self._parties:
                raise Refused(f"the alignment is among {', '.join(terms.parties)}, not all of us")
            if terms.keeps is not None and len(terms.parties) > 2:
                raise Refused(
                    "a key is kept for alignments of two parties; name one in `parties` of the job"
                )
            if unknown := set(terms.known_to or ()) - set(terms.parties[1:]):
                raise Refused(f"no passive party of the alignment is called {min(unknown)}")
            self._agree(terms)
        except Refused as error:
            self._refuse(error)
            return
        self._may_lack = terms.known_to is not None and self._party not in terms.known_to
        self._consent.begin(self._active)

    def _prepare(self) -> None:
        self._run(IDS, single(self._load), self._with_ids)

    def _with_ids(self, own: OwnIds) -> None:
        self._own = own
        keeps, kept = "", 0
        if own.blinding is not None:
            self._key, self._keeps_order = own.blinding.key, True
            self._sent_order = own.blinding.order
            keeps, kept = own.blinding.name, own.blinding.kept
        accept = alignment.AlignmentAccept(
            rows=len(own.ids), fewest=self._fewest, keeps=keeps, kept=kept
        )
        self._send(self._active, accept)

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is State.PREPARING:
            # The error may quote this party's data, so the peer does not read it.
            self._refuse(event.error, "its own ids could not be read; its log says why")
        else:
            super()._on_computation_failed(event)

    def _refuse(self, error: FedmqError, disclosed: str = "") -> None:
        # The other parties may not have been asked yet; the active party tells them.
        turn_down(self, self._active, disclosed or str(error))
        self._emit(Fail(error))

    @on_message(alignment.AlignmentBegin)
    def _on_begin(self, _: str, __: alignment.AlignmentBegin) -> None:
        # A disclosed list cannot be withdrawn: another run needs another consent.
        self._emit(Save(ConsentUsed()))
        blinding = self._own.blinding
        self._blind_own(self._own.ids if blinding is None else blinding.fresh)

    # Lists pass

    def _announced(self, owner: str, rows: int) -> bool:
        self._total += rows
        if self._fewest <= rows <= self._longest:
            return True
        self._move(LIST_REFUSED)
        self._fail(
            Refused(
                f"{owner}'s list holds {rows} ids; {self._party} aligns with {self._fewest} to "
                f"{self._longest}"
            ),
            disclosed=f"{self._party} aligns with lists of {self._fewest} to {self._longest} ids",
        )
        return False

    def _with_points(self, owner: str, start: int, points: Points) -> None:
        passing = self._lists[owner]
        if owner != self._active:
            self._send_points(owner, start, passing.rows, points)
            return
        passing.add(start, points)
        if passing.complete:
            self._run(LIST_SORTED, single(sort_points.bind(passing.in_order())), self._pass_sorted)

    def _pass_sorted(self, ordered: Sorted) -> None:
        del self._lists[self._active]
        self._list_origin = ordered.origin
        self._pass_on(self._active, ordered.points)

    # Places come back

    @on_message(alignment.CommonRows)
    def _on_common(self, peer: str, body: alignment.CommonRows) -> None:
        if body.owner == self._party and peer == self._active:
            self._take_own(body)
        elif body.owner == self._active and peer == self._after(self._active):
            self._pass_back(body)
        else:
            raise ProtocolError(f"places of common rows of {body.owner} take another route")

    def _pass_back(self, body: alignment.CommonRows) -> None:
        if self._list_origin is None:
            raise ProtocolError("places of common rows came before the list")
        places = self._arrived_places(body)
        if places is not None:
            back = self._found(self._list_origin, places)
            self._send_places(self._before(self._active), self._active, back)

    def _take_own(self, body: alignment.CommonRows) -> None:
        if body.rows < self._fewest:
            self._refuse_few()
            return
        places = self._arrived_places(body)
        if places is not None:
            self._own_places = self._own_rows(places)
            held = int(np.count_nonzero(self._own_places != LACKED))
            if held < len(places) and not self._may_lack:
                raise ProtocolError(f"{self._party} must hold all people of the alignment")
            if held < self._fewest:
                self._refuse_few()
                return
            self._move(ROWS_KNOWN)
            self._send(self._active, alignment.AlignmentReady())

    def _refuse_few(self) -> None:
        self._move(TOO_FEW)
        self._fail(
            Refused(f"{self._party} wants at least {self._fewest} common ids"),
            disclosed=f"{self._party} wants more common ids",
        )

    @on_message(alignment.RepeatedRows)
    def _on_repeated(self, peer: str, body: alignment.RepeatedRows) -> None:
        people = len(self._own_places)
        if peer != self._active or body.people != people:
            raise ProtocolError(f"rows of {body.people} people, and {people} are common")
        if self._counts is None:
            self._counts = self._places_of(people)
        self._counts.add(body.start, body.counts.numpy())

    @on_message(alignment.StoreAlignment)
    def _on_store(self, _: str, __: alignment.StoreAlignment) -> None:
        counts = None
        if self._counts is not None:
            if not self._counts.complete:
                raise ProtocolError("the alignment is to be stored, and some rows were not counted")
            counts = np.concatenate(self._counts.in_order())
            if int(counts.min()) < 1 or int(counts.sum(dtype=np.int64)) > self._longest:
                raise ProtocolError(f"a person has no row, or all have more than {self._longest}")
        keeping = self._own.keep(self._own_places, counts=counts)
        self._run(STORED, single(keeping), self._finish)

    def _finish(self, kept: object) -> None:
        self._send(self._active, alignment.AlignmentStored())
        self._emit(Finish(kept))
