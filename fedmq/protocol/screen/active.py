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
from fedmq.privacy.column_products import (
    DEGREE,
    HINT_WORDS,
    SENT_WORDS,
    Seeds,
    column_seeds,
    decrypt_products,
    encrypt_columns,
    public_seed,
)
from fedmq.privacy.lattice.inner_products import ColumnKey
from fedmq.privacy.lattice.label_sums import decrypt_label, encrypt_label
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.machine import Machine, PeerConsents, on, on_message
from fedmq.protocol.screen.active_steps import ActiveSteps
from fedmq.protocol.screen.states import (
    ACTIVE_SCREEN,
    DECRYPTED,
    DESCRIBED,
    ENCRYPTED,
    SHARED,
    ActiveScreenState,
)

__all__ = ["ActiveScreen", "Shown", "ShownColumn", "ShownCorrelations"]

State = ActiveScreenState

_MOST_COLUMNS = 100_000
_COLUMNS_TOGETHER = 10
"""Columns of one computation, so that all processes of the pool encrypt."""


@dataclass(frozen=True, slots=True, eq=False)
class ShownColumn:
    """A column of another party: ``described`` as it came, and the label by its bins.

    ``by_bin`` as in `ScreenedLabel`; None where the party shows descriptions alone, or hides sums:
    then ``steps`` are those of its information value.
    """

    described: screen.DescribedColumn
    by_bin: NDArray[Any] | None
    steps: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ShownCorrelations:
    """Coefficients in hundredths of another party's ``columns``, by number from 1 on.

    ``own`` float64 (columns, columns): among themselves; ``joint`` float64 (columns, own columns):
    with the active party's. ``among``: those with other passive parties' may be asked for.
    """

    columns: tuple[int, ...]
    own: NDArray[np.float64]
    joint: NDArray[np.float64]
    among: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """All that another party shows; ``correlations`` is None where it shows none."""

    columns: Sequence[ShownColumn]
    correlations: ShownCorrelations | None = None


_Encrypted = tuple[NDArray[np.uint8] | None, NDArray[np.uint32] | None]
"""Numbers of labels (numbers, 12), and of columns (numbers, 3)."""


class ActiveScreen(Machine):
    """Asks ``peer`` to describe its columns, and to add up ``label`` by their bins.

    ``label`` of the rows that are looked at, under ``key``, which is of this session alone.
    ``standard`` float64 (rows, columns): the standardised columns that are to be correlated with
    the peer's, as many as the opening says. What hides them follows from ``secret``, 32 bytes that
    stay the same, so that the same columns get the same answer. It finishes with a :class:`Shown`.
    """

    TABLE = ACTIVE_SCREEN
    PARTS = (PeerConsents, ActiveSteps)
    failed_state = State.FAILED

    def __init__(
        self,
        peer: str,
        opening: screen.ScreenOpen,
        label: ScreenedLabel,
        key: ColumnKey,
        standard: NDArray[np.float64] | None = None,
        secret: bytes = b"",
    ) -> None:
        super().__init__(State.READY, (peer,))
        self._opening = opening
        self._label = label
        self._key = key
        self._standard = standard
        self._secret = secret
        self._seeds: Seeds = ()
        self._hints: list[NDArray[np.uint16]] = []
        self._columns: list[screen.DescribedColumn] = []
        self._asked: screen.ScreenReady
        self._products: screen.ScreenProducts | None = None
        self._sent = False
        self._consents = PeerConsents(self)
        self._attach(self._consents)
        self._steps: ActiveSteps | None = None
        """Finds how well columns tell the label, if sums are hidden."""
        if opening.least_steps:
            self._steps = ActiveSteps(
                self, label.values, key, opening.least_steps, self._with_steps
            )
            self._attach(self._steps)
        self._coefficients: NDArray[np.float64] | None = None

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

    def _encrypted(self) -> Plan[_Encrypted]:
        labels = numbers = None
        if self._asked.label:
            label = self._label
            encrypts: Computation = encrypt_label.bind(self._key, label.values, label.classes)
            if self._steps is not None:
                encrypts = self._steps.encrypted()
            [labels] = yield Compute([encrypts])
        if self._asked.correlates:
            assert self._standard is not None
            [self._seeds] = yield Compute([column_seeds.bind(self._secret, self._standard)])
            public = public_seed(self._secret)
            columns = [
                slice(first, first + _COLUMNS_TOGETHER)
                for first in range(0, len(self._seeds), _COLUMNS_TOGETHER)
            ]
            found = yield Compute(
                [
                    encrypt_columns.bind(public, self._seeds[part], self._standard[:, part])
                    for part in columns
                ]
            )
            numbers = np.concatenate(found).reshape(-1, SENT_WORDS)
        return labels, numbers

    def _send_encrypted(self, encrypted: _Encrypted) -> None:
        self._sent = True
        labels, numbers = encrypted
        if labels is not None:
            for start, piece in _pieces(labels):
                self._send(self.peers[0], screen.ScreenLabels(start=start, numbers=piece))
        if numbers is not None:
            seed = public_seed(self._secret)
            for start, piece in _pieces(numbers):
                body = screen.ScreenNumbers(start=start, seed=seed, ciphertexts=piece)
                self._send(self.peers[0], body)

    @on_message(screen.ScreenHints)
    def _on_hints(self, _: str, body: screen.ScreenHints) -> None:
        if not self._sent or not self._asked.correlates or self._products is not None:
            raise ProtocolError("hints came that were not due")
        arrived, hints = sum(map(len, self._hints)), body.hints
        if hints.dtype != "<u2" or hints.shape[1:] != (DEGREE, HINT_WORDS) or not hints.shape[0]:
            raise ProtocolError("hints of columns have another size")
        if body.first != arrived or arrived + hints.shape[0] > screen.MOST_CORRELATED:
            raise ProtocolError(f"hints from {body.first} on, not from {arrived}")
        self._hints.append(hints.numpy())

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
        if body.sums.dtype != "<u4" or body.sums.shape != (
            number,
            self._opening.correlated,
            SENT_WORDS,
        ):
            raise ProtocolError("one sum for each pair of columns is needed")
        if sum(map(len, self._hints)) != number:
            raise ProtocolError("one hint for each column is needed")
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
        if self._asked.label and self._steps is not None:
            self._run(SHARED, self._decrypted(), self._with_shares)
        else:
            self._run(DECRYPTED, self._decrypted(), self._with_figures)

    def _check(self, column: screen.DescribedColumn) -> None:
        counts, ones = column.counts.numpy(), column.ones
        if self._steps is not None:
            if counts.size or ones.dtype != "|u1" or len(ones.shape) != 2:
                raise ProtocolError("a masked sum for each bin is needed, and no counts")
            return
        if ones.dtype != "|u1" or len(ones.shape) != 2 or ones.shape[0] != len(counts):
            raise ProtocolError("one sum for each bin is needed")
        if int(counts.sum()) != len(self._label):
            raise ProtocolError(f"bins of {int(counts.sum())} rows, not {len(self._label)}")

    def _decrypted(self) -> Plan[list[Any]]:
        rows, wanted = len(self._label), list[Computation]()
        ones = [column.ones.numpy() for column in self._columns]
        if self._asked.label and self._steps is not None:
            wanted += self._steps.decrypted(ones)
        elif self._asked.label:
            counts = [column.counts.numpy() for column in self._columns]
            wanted.append(decrypt_label.bind(self._key, ones, counts, self._label.classes))
        if self._products is not None:
            sums = self._products.sums.numpy()
            hints = np.concatenate([np.empty((0, DEGREE, HINT_WORDS), np.uint16), *self._hints])
            wanted.append(decrypt_products.bind(self._seeds, hints, sums, rows))
        found: list[Any] = yield Compute(wanted)
        return found

    def _with_figures(self, found: list[Any]) -> None:
        if self._products is not None:
            self._coefficients = found[-1]
        by_bin: Sequence[NDArray[Any] | None] = [None] * len(self._columns)
        if self._asked.label:
            by_bin = found[0]
        pairs = zip(self._columns, by_bin, strict=True)
        self._finish([ShownColumn(*column) for column in pairs])

    def _with_shares(self, found: list[Any]) -> None:
        assert self._steps is not None
        if self._products is not None:
            self._coefficients = found.pop()
        self._steps.begin(found)

    def _with_steps(self, steps: NDArray[np.int64]) -> None:
        pairs = zip(self._columns, steps.tolist(), strict=True)
        self._finish([ShownColumn(column, None, told) for column, told in pairs])

    def _finish(self, shown: Sequence[ShownColumn]) -> None:
        correlations = None
        if self._products is not None:
            assert self._coefficients is not None
            correlations = ShownCorrelations(
                tuple(self._products.columns.numpy().tolist()),
                self._products.own.numpy() / 100,
                self._coefficients,
                self._asked.among,
            )
        self._emit(Finish(Shown(shown, correlations)))


def _pieces(numbers: NDArray[Any]) -> Iterator[tuple[int, Array]]:
    """``numbers`` (count, ...) as messages hold them, each with the place where it begins."""
    size = max(1, PIECE_BYTES // numbers[0].nbytes)
    for start in range(0, len(numbers), size):
        yield start, Array.of(numbers[start : start + size])
