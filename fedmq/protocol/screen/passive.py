"""How does a party let its columns be looked at? It counts labels that it cannot read, by bin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.screened_columns import ScreenedColumn
from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.privacy.homomorphic.label_counts import count_ones
from fedmq.privacy.homomorphic.paillier import PublicKey
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan, single
from fedmq.protocol.events import ComputationFailed, Fail, Finish, Save
from fedmq.protocol.machine import Machine, OwnConsent, on_message, turn_down
from fedmq.protocol.screen.states import (
    COLUMNS,
    COUNTED,
    PASSIVE_SCREEN,
    SHOWS,
    PassiveScreenState,
)
from fedmq.protocol.session_records import ConsentUsed, PeopleAnswered

__all__ = ["OwnColumns", "PassiveScreen", "ScreenTerms"]

State = PassiveScreenState

_COLUMNS_TOGETHER = 16
"""Columns of one computation: it takes some seconds where rows are many."""
_MOST_BYTES = 2**27  # of 100,000 rows under a key of 5,000 bits


@dataclass(frozen=True, slots=True, eq=False)
class OwnColumns:
    """The columns of the rows that are looked at, as others may see them.

    ``people``: all whom these are about; None if they are not kept.
    """

    columns: Sequence[ScreenedColumn]
    people: PeopleAnswered | None = None


@dataclass(frozen=True, slots=True)
class ScreenTerms:
    """What an owner shows: names of columns, and, with a ``key``, how they tell the label."""

    names: bool
    key: PublicKey | None


class PassiveScreen(Machine):
    """Shows ``peer`` the columns that ``load`` computes: :class:`OwnColumns`.

    ``agree`` gives the terms, or raises Refused. ``consent_within``: seconds that this party's
    owner has to answer, before any row is read; 0: the owner is not asked.
    """

    TABLE = PASSIVE_SCREEN
    PARTS = (OwnConsent,)
    failed_state = State.FAILED

    def __init__(
        self,
        peer: str,
        load: Computation,
        agree: Callable[[], ScreenTerms],
        consent_within: int = 0,
    ) -> None:
        super().__init__(State.READY, (peer,))
        self._load = load
        self._agree = agree
        self._terms: ScreenTerms
        self._own: OwnColumns
        self._labels: list[NDArray[np.uint8]] = []
        self._arrived = 0
        self._consent = OwnConsent(self, consent_within, self._prepare, self._refuse)
        self._attach(self._consent)

    @property
    def awaits_consent(self) -> bool:
        return self.state is State.ASKING

    @on_message(screen.ScreenOpen)
    def _on_open(self, peer: str, _: screen.ScreenOpen) -> None:
        try:
            self._terms = self._agree()
        except Refused as error:
            self._refuse(error)
            return
        self._consent.begin(peer)

    def _prepare(self) -> None:
        self._run(COLUMNS, single(self._load), self._with_columns)

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is not State.PREPARING:
            super()._on_computation_failed(event)
        elif isinstance(event.error, Refused):
            self._refuse(event.error)
        else:  # it may quote this party's data
            self._refuse(event.error, "its own columns could not be read; its log says why")

    def _refuse(self, error: FedmqError, disclosed: str = "") -> None:
        turn_down(self, self.peers[0], disclosed or str(error))
        self._emit(Fail(error))

    def _with_columns(self, own: OwnColumns) -> None:
        self._own = own
        self._emit(Save(ConsentUsed()))
        if own.people is not None:
            self._emit(Save(own.people))
        if self._terms.key is None:
            self._move(SHOWS)
            self._show([np.empty((0, 0), np.uint8)] * len(own.columns))
        else:
            self._send(self.peers[0], screen.ScreenReady())

    # Labels arrive

    @on_message(screen.ScreenLabels)
    def _on_labels(self, _: str, body: screen.ScreenLabels) -> None:
        numbers, rows = body.ciphertexts, len(self._own.columns[0].bin_of)
        if numbers.dtype != "|u1" or len(numbers.shape) != 2 or not numbers.shape[0]:
            raise ProtocolError("one ciphertext for each row is needed")
        if body.start != self._arrived or self._arrived + numbers.shape[0] > rows:
            raise ProtocolError(f"labels begin at {body.start}, not at {self._arrived} of {rows}")
        if rows * numbers.shape[1] > _MOST_BYTES:
            raise ProtocolError(f"ciphertexts of more than {_MOST_BYTES:,} bytes together")
        if self._labels and self._labels[0].shape[1] != numbers.shape[1]:
            raise ProtocolError("ciphertexts of different lengths")
        self._labels.append(numbers.numpy())
        self._arrived += numbers.shape[0]
        if self._arrived == rows:
            self._run(COUNTED, self._counted(np.concatenate(self._labels)), self._show)

    def _counted(self, ciphertexts: NDArray[np.uint8]) -> Plan[list[NDArray[np.uint8]]]:
        assert self._terms.key is not None
        bins = [column.bin_of for column in self._own.columns]
        found = yield Compute(
            [
                count_ones.bind(
                    self._terms.key, ciphertexts, bins[first : first + _COLUMNS_TOGETHER]
                )
                for first in range(0, len(bins), _COLUMNS_TOGETHER)
            ]
        )
        return [ones for part in found for ones in part]

    def _show(self, ones: Sequence[NDArray[np.uint8]]) -> None:
        described = [
            screen.DescribedColumn(
                name=column.name[:200] if self._terms.names else "",
                type=column.kind,
                missing=round(100 * column.missing),
                distinct=column.distinct,
                counts=Array.of((column.counts if sums.size else np.empty(0)).astype(np.uint32)),
                ones=Array.of(sums),
            )
            for column, sums in zip(self._own.columns, ones, strict=True)
        ]
        widest = max((sums.size for sums in ones), default=0) + 1000
        together = max(1, PIECE_BYTES // widest)
        for first in range(0, max(1, len(described)), together):
            part = tuple(described[first : first + together])
            self._send(
                self.peers[0],
                screen.ScreenColumns(first=first, of=len(described), described=part),
            )
        self._emit(Finish(len(described)))
