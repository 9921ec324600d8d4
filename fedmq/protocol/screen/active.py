"""How does the active party look at another party's columns? Its labels leave encrypted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ProtocolError
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.homomorphic.label_counts import decrypt_counts, encrypt_labels
from fedmq.privacy.homomorphic.paillier import PrivateKey
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan, single
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.machine import Machine, PeerConsents, on, on_message
from fedmq.protocol.screen.states import (
    ACTIVE_SCREEN,
    DECRYPTED,
    DESCRIBED,
    ENCRYPTED,
    ActiveScreenState,
)

__all__ = ["ActiveScreen", "ShownColumn"]

State = ActiveScreenState

_MOST_COLUMNS = 100_000
_ROWS_TOGETHER = 2048
"""Rows of one computation, so that all processes of the pool encrypt: it takes half a second."""


@dataclass(frozen=True, slots=True, eq=False)
class ShownColumn:
    """A column of another party: ``described`` as it came, and its ones by bin, int64 (bins,).

    ``ones`` is None where the party shows descriptions alone.
    """

    described: screen.DescribedColumn
    ones: NDArray[np.int64] | None


class ActiveScreen(Machine):
    """Asks ``peer`` to describe its columns, and to add up ``label`` by their bins.

    ``label`` bool (rows,) of the rows that are looked at, under ``key``, which is of this session
    alone. It finishes with a list of :class:`ShownColumn`.
    """

    TABLE = ACTIVE_SCREEN
    PARTS = (PeerConsents,)
    failed_state = State.FAILED

    def __init__(
        self, peer: str, opening: screen.ScreenOpen, label: NDArray[np.bool_], key: PrivateKey
    ) -> None:
        super().__init__(State.READY, (peer,))
        self._opening = opening
        self._label = label
        self._key = key
        self._columns: list[screen.DescribedColumn] = []
        self._sent = False
        self._consents = PeerConsents(self)
        self._attach(self._consents)

    @property
    def awaits_consent(self) -> bool:
        return bool(self._consents)

    @on(Start)
    def _on_start(self, _: Start) -> None:
        self._send(self.peers[0], self._opening)

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body, "does not show its columns")

    @on_message(screen.ScreenReady)
    def _on_ready(self, peer: str, _: screen.ScreenReady) -> None:
        self._consents.answered(peer)
        self._run(ENCRYPTED, self._encrypted(), self._send_labels)

    def _encrypted(self) -> Plan[NDArray[np.uint8]]:
        parts = yield Compute(
            [
                encrypt_labels.bind(self._key, self._label[first : first + _ROWS_TOGETHER])
                for first in range(0, len(self._label), _ROWS_TOGETHER)
            ]
        )
        return np.concatenate(parts)

    def _send_labels(self, ciphertexts: NDArray[np.uint8]) -> None:
        self._sent = True
        size = max(1, PIECE_BYTES // ciphertexts.shape[1])
        for start in range(0, len(ciphertexts), size):
            piece = Array.of(ciphertexts[start : start + size])
            self._send(self.peers[0], screen.ScreenLabels(start=start, ciphertexts=piece))

    @on_message(screen.ScreenColumns)
    def _on_columns(self, peer: str, body: screen.ScreenColumns) -> None:
        self._consents.answered(peer)
        if body.first != len(self._columns) or body.of > _MOST_COLUMNS:
            raise ProtocolError(f"columns from {body.first} on of {body.of}")
        if self.state is State.COUNTING and not self._sent:
            raise ProtocolError("columns came before the labels were sent")
        self._columns.extend(body.described)
        if len(self._columns) < body.of:
            if not body.described:
                raise ProtocolError("no columns")
            return
        if len(self._columns) > body.of:
            raise ProtocolError(f"{len(self._columns)} columns, not {body.of}")
        if self.state is State.ASKING:
            self._move(DESCRIBED)
            self._emit(Finish([ShownColumn(column, None) for column in self._columns]))
            return
        for column in self._columns:
            self._check(column)
        sums = [column.ones.numpy() for column in self._columns]
        counting = decrypt_counts.bind(self._key, sums, len(self._label))
        self._run(DECRYPTED, single(counting), self._with_ones)

    def _check(self, column: screen.DescribedColumn) -> None:
        counts, ones = column.counts.numpy(), column.ones
        if ones.dtype != "|u1" or len(ones.shape) != 2 or ones.shape[0] != len(counts):
            raise ProtocolError("one sum for each bin is needed")
        if int(counts.sum()) != len(self._label):
            raise ProtocolError(f"bins of {int(counts.sum())} rows, not {len(self._label)}")

    def _with_ones(self, ones: Sequence[NDArray[np.int64]]) -> None:
        for column, found in zip(self._columns, ones, strict=True):
            if (found > column.counts.numpy()).any():
                raise ProtocolError("more ones than rows in a bin")
        shown = zip(self._columns, ones, strict=True)
        self._emit(Finish([ShownColumn(*column) for column in shown]))
