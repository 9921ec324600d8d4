"""How does the active party look at another party's columns? Labels and columns leave encrypted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.screened_label import ScreenedLabel
from fedmq.computation import Computation
from fedmq.errors import ProtocolError
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.homomorphic.inner_products import decrypt_products, encrypt_columns
from fedmq.privacy.homomorphic.paillier import PrivateKey
from fedmq.privacy.lattice.inner_products import ColumnKey
from fedmq.privacy.lattice.label_sums import decrypt_label, encrypt_label
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.machine import Machine, PeerConsents, on, on_message
from fedmq.protocol.screen.states import (
    ACTIVE_SCREEN,
    DECRYPTED,
    DESCRIBED,
    ENCRYPTED,
    ActiveScreenState,
)

__all__ = ["ActiveScreen", "Shown", "ShownColumn", "ShownCorrelations"]

State = ActiveScreenState

_MOST_COLUMNS = 100_000
_ROWS_TOGETHER = 2048
"""Rows of one computation, so that all processes of the pool encrypt columns of numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class ShownColumn:
    """A column of another party: ``described`` as it came, and the label by its bins.

    ``by_bin`` as in `ScreenedLabel`; None where the party shows descriptions alone.
    """

    described: screen.DescribedColumn
    by_bin: NDArray[Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class ShownCorrelations:
    """Coefficients in hundredths of another party's ``columns``, by number from 1 on.

    ``own`` float64 (columns, columns): among themselves; ``joint`` float64 (columns, own columns):
    with the active party's.
    """

    columns: tuple[int, ...]
    own: NDArray[np.float64]
    joint: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """All that another party shows; ``correlations`` is None where it shows none."""

    columns: Sequence[ShownColumn]
    correlations: ShownCorrelations | None = None


class ActiveScreen(Machine):
    """Asks ``peer`` to describe its columns, and to add up ``label`` by their bins.

    ``label`` of the rows that are looked at, under ``key``. ``standard`` float64 (rows, columns):
    the standardised columns that are to be correlated with the peer's, as many as the opening says,
    under ``of_numbers``. Both keys are of this session alone. It finishes with a :class:`Shown`.
    """

    TABLE = ACTIVE_SCREEN
    PARTS = (PeerConsents,)
    failed_state = State.FAILED

    def __init__(
        self,
        peer: str,
        opening: screen.ScreenOpen,
        label: ScreenedLabel,
        key: ColumnKey,
        standard: NDArray[np.float64] | None = None,
        of_numbers: PrivateKey | None = None,
    ) -> None:
        super().__init__(State.READY, (peer,))
        self._opening = opening
        self._label = label
        self._key = key
        self._standard = standard
        self._of_numbers = of_numbers
        self._columns: list[screen.DescribedColumn] = []
        self._asked: screen.ScreenReady
        self._products: screen.ScreenProducts | None = None
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
    def _on_ready(self, peer: str, body: screen.ScreenReady) -> None:
        self._consents.answered(peer)
        if not (body.label or body.correlates) or (
            body.correlates and not self._opening.correlated
        ):
            raise ProtocolError("nothing is wanted, or columns that nobody offered")
        self._asked = body
        self._run(ENCRYPTED, self._encrypted(), self._send_encrypted)

    def _encrypted(self) -> Plan[list[NDArray[np.uint8]]]:
        rows, wanted = len(self._label), list[Computation]()
        if self._asked.label:
            label = self._label
            wanted.append(encrypt_label.bind(self._key, label.values, label.classes))
        if self._asked.correlates:
            assert self._standard is not None and self._of_numbers is not None
            wanted += [
                encrypt_columns.bind(
                    self._of_numbers, self._standard[first : first + _ROWS_TOGETHER], rows
                )
                for first in range(0, rows, _ROWS_TOGETHER)
            ]
        found: list[NDArray[np.uint8]] = yield Compute(wanted)
        return found

    def _send_encrypted(self, encrypted: list[NDArray[np.uint8]]) -> None:
        self._sent = True
        [peer] = self.peers
        labels = encrypted[: int(self._asked.label)]
        for numbers in labels:
            for start, piece in _pieces(numbers):
                self._send(peer, screen.ScreenLabels(start=start, numbers=piece))
        if columns := encrypted[len(labels) :]:
            for start, piece in _pieces(np.concatenate(columns)):
                self._send(peer, screen.ScreenNumbers(start=start, ciphertexts=piece))

    @on_message(screen.ScreenProducts)
    def _on_products(self, _: str, body: screen.ScreenProducts) -> None:
        if not self._sent or not self._asked.correlates or self._products is not None:
            raise ProtocolError("coefficients came that were not due")
        columns, number = body.columns.numpy().astype(np.int64), len(body.columns.numpy())
        if number > screen.MOST_CORRELATED or (np.diff(columns, prepend=0) < 1).any():
            raise ProtocolError("columns with coefficients are not in order, or too many")
        if body.own.dtype != "|i1" or body.own.shape != (number, number):
            raise ProtocolError("one coefficient for each pair of columns is needed")
        if (np.abs(body.own.numpy().astype(np.int64)) > 100).any():
            raise ProtocolError("a coefficient is beyond 1")
        if body.sums.dtype != "|u1" or len(body.sums.shape) != 3 or body.sums.shape[0] != number:
            raise ProtocolError("one row of sums for each column is needed")
        self._products = body

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
            self._emit(Finish(Shown([ShownColumn(column, None) for column in self._columns])))
            return
        if self._asked.label:
            for column in self._columns:
                self._check(column)
        if self._asked.correlates:
            if self._products is None:
                raise ProtocolError("coefficients are missing")
            if self._products.columns.numpy().max(initial=0) > len(self._columns):
                raise ProtocolError("coefficients of a column that there is not")
        self._run(DECRYPTED, self._decrypted(), self._with_figures)

    def _check(self, column: screen.DescribedColumn) -> None:
        counts, ones = column.counts.numpy(), column.ones
        if ones.dtype != "|u1" or len(ones.shape) != 2 or ones.shape[0] != len(counts):
            raise ProtocolError("one sum for each bin is needed")
        if int(counts.sum()) != len(self._label):
            raise ProtocolError(f"bins of {int(counts.sum())} rows, not {len(self._label)}")

    def _decrypted(self) -> Plan[list[Any]]:
        rows, wanted = len(self._label), list[Computation]()
        if self._asked.label:
            sums = [column.ones.numpy() for column in self._columns]
            counts = [column.counts.numpy() for column in self._columns]
            wanted.append(decrypt_label.bind(self._key, sums, counts, self._label.classes))
        if self._products is not None:
            assert self._of_numbers is not None
            products = self._products.sums.numpy()
            wanted.append(
                decrypt_products.bind(self._of_numbers, products, rows, self._opening.correlated)
            )
        found: list[Any] = yield Compute(wanted)
        return found

    def _with_figures(self, found: list[Any]) -> None:
        by_bin: Sequence[NDArray[Any] | None] = [None] * len(self._columns)
        if self._asked.label:
            by_bin = found[0]
        correlations = None
        if self._products is not None:
            correlations = ShownCorrelations(
                tuple(self._products.columns.numpy().tolist()),
                self._products.own.numpy() / 100,
                found[-1],
            )
        shown = [ShownColumn(*column) for column in zip(self._columns, by_bin, strict=True)]
        self._emit(Finish(Shown(shown, correlations)))


def _pieces(numbers: NDArray[np.uint8]) -> Iterator[tuple[int, Array]]:
    """Neighbouring numbers in messages of a fair size, and where each begins."""
    size = max(1, PIECE_BYTES // numbers[0].size)
    for start in range(0, len(numbers), size):
        yield start, Array.of(numbers[start : start + size])
