"""How does the active party read coefficients of two other parties' columns, and nothing else?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ProtocolError
from fedmq.messages import screen
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.column_products import SENT_WORDS, pair_coefficients
from fedmq.privacy.plan import single
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.machine import Machine, PeerConsents, on, on_message
from fedmq.protocol.screen.states import ACTIVE_PAIR, BOTH_READY, BOTH_TOLD, ActivePairState

__all__ = ["ActivePair"]


class ActivePair(Machine):
    """Lets the two parties of ``opening`` correlate their columns, ``answered`` of the second.

    It finishes with coefficients in hundredths, float64 (second party's, first party's columns).
    """

    TABLE = ACTIVE_PAIR
    PARTS = (PeerConsents,)
    failed_state = ActivePairState.FAILED

    def __init__(self, opening: screen.PairOpen, answered: int) -> None:
        super().__init__(ActivePairState.READY, (opening.asks, opening.answers))
        self._opening = opening
        self._columns = {opening.asks: opening.correlated, opening.answers: answered}
        self._waiting = set(self.peers)
        self._sums: dict[str, NDArray[np.uint32]] = {}
        self._consents = PeerConsents(self)
        self._attach(self._consents)

    @property
    def awaits_consent(self) -> bool:
        return bool(self._consents)

    @on(Start)
    def _on_start(self, _: Start) -> None:
        for peer in self.peers:
            self._send(peer, self._opening)

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body, "does not correlate its columns with those of others")

    @on_message(screen.PairReady)
    def _on_ready(self, peer: str, body: screen.PairReady) -> None:
        self._consents.answered(peer)
        self._discard(peer, self._waiting)
        if body.columns != self._columns[peer]:
            raise ProtocolError(f"{body.columns} columns, and the screen has {self._columns[peer]}")
        if not self._waiting:
            self._move(BOTH_READY)
            self._waiting = set(self.peers)
            for one, other in (self.peers, self.peers[::-1]):
                self._send(one, screen.PairBegin(columns=self._columns[other]))

    @on_message(screen.PairSums)
    def _on_sums(self, peer: str, body: screen.PairSums) -> None:
        self._discard(peer, self._waiting)
        asks, answers = self.peers
        shape = (self._columns[answers], self._columns[asks], SENT_WORDS)
        if body.sums.dtype != "<u4" or body.sums.shape != shape:
            raise ProtocolError("one sum for each pair of columns is needed")
        self._sums[peer] = body.sums.numpy()
        if not self._waiting:
            rows = min(self._opening.rows, self._opening.most_rows)
            read = pair_coefficients.bind(self._sums[answers], self._sums[asks], rows)
            self._run(BOTH_TOLD, single(read), lambda found: self._emit(Finish(found)))
