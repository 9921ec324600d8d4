"""How does a party let its columns be looked at? It adds up what it cannot read, by its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.screened_columns import ScreenedColumn
from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.privacy.column_products import (
    SENT_WORDS,
    ColumnLayout,
    Multiplied,
    add_products,
    asked_columns,
)
from fedmq.privacy.hidden_screen.label import shared_numbers
from fedmq.privacy.lattice.inner_products import NUMBER_BYTES
from fedmq.privacy.lattice.label_sums import add_label, numbers_of
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan, single
from fedmq.privacy.random_stream import fresh_seed
from fedmq.protocol.events import ComputationFailed, Fail, Finish, Save
from fedmq.protocol.machine import Machine, OwnConsent, on_message, turn_down
from fedmq.protocol.screen.passive_steps import PassiveSteps
from fedmq.protocol.screen.states import (
    COLUMNS,
    COUNTED,
    MASKED_SUMS,
    PASSIVE_SCREEN,
    SHOWS,
    PassiveScreenState,
)
from fedmq.protocol.session_records import ConsentUsed, PeopleAnswered

__all__ = ["CorrelatedNumbers", "OwnColumns", "PassiveScreen", "ScreenTerms"]

State = PassiveScreenState

_COLUMNS_TOGETHER = 4
"""Columns of one computation, so that all processes of the pool count."""
_PRODUCTS_TOGETHER = 8
"""Columns of one computation of inner products, so that all processes of the pool multiply."""
_HINTS_TOGETHER = 8
"""Hints of a message, 25 kB each."""


@dataclass(frozen=True, slots=True, eq=False)
class CorrelatedNumbers:
    """The columns that others may correlate with theirs: ``standard`` float64 (rows, columns).

    ``columns``: their numbers among all that are shown, from 1 on.
    """

    columns: tuple[int, ...]
    standard: NDArray[np.float64]

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """Those of the columns among themselves, float64 (columns, columns)."""
        return self.standard.T @ self.standard / max(1, len(self.standard))

    @property
    def own(self) -> NDArray[np.int8]:
        """The `coefficients` in hundredths, int8."""
        return np.rint(100 * np.clip(self.coefficients, -1.0, 1.0)).astype(np.int8)


@dataclass(frozen=True, slots=True, eq=False)
class OwnColumns:
    """The columns of the rows that are looked at, as others may see them.

    ``people``: all whom these are about; None if they are not kept. ``numbers``: what may be
    correlated; None where nothing may.
    """

    columns: Sequence[ScreenedColumn]
    people: PeopleAnswered | None = None
    numbers: CorrelatedNumbers | None = None


@dataclass(frozen=True, slots=True)
class ScreenTerms:
    """What an owner shows: ``names`` of columns, and, ``measured``, how they tell the label.

    ``correlating``: also how columns of numbers are correlated; ``among``: with those of other
    passive parties, too.
    """

    names: bool
    measured: bool
    correlating: bool = False
    among: bool = False


class PassiveScreen(Machine):
    """Shows ``peer`` the columns that ``load`` computes: :class:`OwnColumns`.

    ``agree`` gives the terms, or raises Refused. ``consent_within``: seconds that this party's
    owner has to answer, before any row is read; 0: the owner is not asked. ``secret``: 32 bytes
    that stay the same, from which the noise of coefficients follows, and the question.
    """

    TABLE = PASSIVE_SCREEN
    PARTS = (OwnConsent, PassiveSteps)
    failed_state = State.FAILED

    def __init__(
        self,
        peer: str,
        load: Computation,
        agree: Callable[[], ScreenTerms],
        consent_within: int = 0,
        secret: bytes = b"",
    ) -> None:
        super().__init__(State.READY, (peer,))
        self._load = load
        self._agree = agree
        self._terms: ScreenTerms
        self._own: OwnColumns
        self._elements: bytes
        self._labels: list[NDArray[np.uint8]] = []
        self._numbers: list[NDArray[np.uint32]] = []
        self._seed = b""
        """Of the elements that the active party encrypts with."""
        self._secret = secret
        self._offered = 0
        self._classes = 2
        self._steps: PassiveSteps | None = None
        """Garbles how well columns tell the label, if sums are hidden."""
        self._consent = OwnConsent(self, consent_within, self._prepare, self._refuse)
        self._attach(self._consent)

    @property
    def awaits_consent(self) -> bool:
        return self.state is State.ASKING

    @on_message(screen.ScreenOpen)
    def _on_open(self, peer: str, body: screen.ScreenOpen) -> None:
        self._offered, self._elements = body.correlated, bytes.fromhex(body.elements)
        self._classes = body.classes
        if body.least_steps:
            self._steps = PassiveSteps(self, body.least_steps, self._finish)
            self._attach(self._steps)
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
        if not self._terms.measured and self._correlated is None:
            self._move(SHOWS)
            self._show([])
        else:
            self._send(
                self.peers[0],
                screen.ScreenReady(
                    label=self._terms.measured,
                    correlates=self._correlated is not None,
                    among=self._correlated is not None and self._terms.among,
                ),
            )

    @property
    def _correlated(self) -> CorrelatedNumbers | None:
        return self._own.numbers if self._terms.correlating else None

    # Labels and columns arrive

    @on_message(screen.ScreenLabels)
    def _on_labels(self, _: str, body: screen.ScreenLabels) -> None:
        if not self._terms.measured:
            raise ProtocolError("labels came that nobody wanted")
        numbers, of = body.numbers, self._numbers_of_labels
        if numbers.dtype != "|u1" or numbers.shape[1:] != (NUMBER_BYTES,) or not numbers.shape[0]:
            raise ProtocolError(f"numbers of {NUMBER_BYTES} bytes are needed")
        self._add(self._labels, body.start, numbers, of)

    @on_message(screen.ScreenNumbers)
    def _on_numbers(self, _: str, body: screen.ScreenNumbers) -> None:
        if self._correlated is None:
            raise ProtocolError("columns came that nobody wanted")
        numbers = body.ciphertexts
        if numbers.dtype != "<u4" or numbers.shape[1:] != (SENT_WORDS,) or not numbers.shape[0]:
            raise ProtocolError("numbers of columns have three words each")
        if self._seed not in (b"", body.seed):
            raise ProtocolError("columns of different seeds")
        self._seed = body.seed
        self._add(self._numbers, body.start, numbers, self._length)

    @property
    def _length(self) -> int:
        """Numbers that are to come, of all columns together."""
        return self._offered * ColumnLayout(self._rows).length

    def _add(self, before: list[Any], start: int, numbers: Array, whole: int) -> None:
        arrived = sum(map(len, before))
        if start != arrived or arrived + numbers.shape[0] > whole:
            raise ProtocolError(f"numbers begin at {start}, not at {arrived} of {whole}")
        before.append(numbers.numpy())
        wanted: list[tuple[list[Any], int]] = []
        wanted += [(self._labels, self._numbers_of_labels)] * self._terms.measured
        wanted += [(self._numbers, self._length)] * (self._correlated is not None)
        if all(sum(map(len, each)) == of for each, of in wanted):
            hides = self._terms.measured and self._steps is not None
            self._run(MASKED_SUMS if hides else COUNTED, self._summed(), self._show_sums)

    @property
    def _numbers_of_labels(self) -> int:
        if self._steps is not None:
            return shared_numbers(self._rows)
        return numbers_of(self._rows, self._classes)

    @property
    def _rows(self) -> int:
        return len(self._own.columns[0].bin_of)

    def _summed(self) -> Plan[tuple[list[NDArray[np.uint8]], Multiplied | None]]:
        ones = (yield from self._counted(np.concatenate(self._labels))) if self._labels else []
        products = None
        if self._correlated is not None:
            numbers = np.concatenate(self._numbers)
            self._numbers.clear()
            products = yield from self._multiplied(
                self._correlated.standard, numbers.reshape(self._offered, -1, SENT_WORDS)
            )
        return ones, products

    def _multiplied(
        self, standard: NDArray[np.float64], encrypted: NDArray[np.uint32]
    ) -> Plan[Multiplied]:
        [asked] = yield Compute([asked_columns.bind(self._seed, encrypted)])
        found: list[Multiplied] = yield Compute(
            [
                add_products.bind(
                    self._secret,
                    self._seed,
                    asked,
                    encrypted,
                    standard,
                    slice(first, first + _PRODUCTS_TOGETHER),
                )
                for first in range(0, standard.shape[1], _PRODUCTS_TOGETHER)
            ]
        )
        return Multiplied.joined(found)

    def _counted(self, labels: NDArray[np.uint8]) -> Plan[list[NDArray[np.uint8]]]:
        if self._steps is not None:
            return (yield from self._steps.masked(self._elements, labels, self._own.columns))
        bins = [column.bin_of for column in self._own.columns]
        found = yield Compute(
            [
                add_label.bind(
                    self._elements,
                    labels,
                    bins[first : first + _COLUMNS_TOGETHER],
                    self._classes,
                    fresh_seed(),
                )
                for first in range(0, len(bins), _COLUMNS_TOGETHER)
            ]
        )
        return [ones for part in found for ones in part]

    def _show_sums(self, sums: tuple[list[NDArray[np.uint8]], Multiplied | None]) -> None:
        ones, products = sums
        if products is not None:
            self._show_products(products)
        if ones and self._steps is not None:
            self._steps.begin()
        self._show(ones)

    def _show_products(self, products: Multiplied) -> None:
        numbers = self._correlated
        assert numbers is not None
        for first in range(0, len(products.hints), _HINTS_TOGETHER):
            part = Array.of(products.hints[first : first + _HINTS_TOGETHER])
            self._send(self.peers[0], screen.ScreenHints(first=first, hints=part))
        body = screen.ScreenProducts(
            columns=Array.of(np.array(numbers.columns, np.uint32)),
            own=Array.of(numbers.own),
            sums=Array.of(products.sums),
        )
        self._send(self.peers[0], body)

    def _show(self, ones: Sequence[NDArray[np.uint8]]) -> None:
        garbles = bool(ones) and self._steps is not None
        counted = bool(ones) and self._steps is None
        ones = ones or [np.empty((0, 0), np.uint8)] * len(self._own.columns)
        described = [
            screen.DescribedColumn(
                name=column.name[:200] if self._terms.names else "",
                type=column.kind,
                missing=round(100 * column.missing),
                distinct=column.distinct,
                counts=Array.of((column.counts if counted else np.empty(0)).astype(np.uint32)),
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
        if not garbles:
            self._finish()

    def _finish(self) -> None:
        self._emit(Finish(len(self._own.columns)))
