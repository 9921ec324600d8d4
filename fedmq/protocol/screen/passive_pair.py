"""How are columns of two passive parties correlated, so that neither reads the other's?

One party asks, with encrypted columns, and the other answers. What each of them sends to the active
party is masked by what only the two know: the difference is a coefficient, under noise of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.privacy.column_products import (
    DEGREE,
    HINT_WORDS,
    SENT_WORDS,
    ColumnLayout,
    Multiplied,
    Seeds,
    add_products,
    asked_columns,
    column_marks,
    column_seeds,
    encrypt_columns,
    marked,
    masked_products,
    masked_readings,
    public_seed,
    seed_of,
)
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan, single
from fedmq.privacy.random_stream import SEED_BYTES
from fedmq.protocol.events import ComputationFailed, Finish, Save
from fedmq.protocol.machine import (
    Machine,
    OwnConsent,
    Speaker,
    on_message,
    turn_down,
)
from fedmq.protocol.screen.passive import CorrelatedNumbers, OwnColumns
from fedmq.protocol.screen.states import (
    COLUMNS,
    COMPLETE,
    ENCRYPTED_PAIR,
    MASKED,
    PASSIVE_PAIR,
    PassivePairState,
)
from fedmq.protocol.session_records import ConsentUsed

__all__ = ["PassivePair"]

_COLUMNS_TOGETHER = 8  # of a computation, and hints of a message, 25 kB each


class PassivePair(Machine):
    """One of two parties whose columns are correlated for ``active``; ``load`` computes OwnColumns.

    ``agree`` raises Refused. From ``secret``, which stays the same, follows the noise; ``fresh``
    32 bytes are of this session alone. ``consent_within`` as that of `PassiveScreen`.
    """

    TABLE = PASSIVE_PAIR
    PARTS = (OwnConsent,)
    SPEAKERS = dict.fromkeys((screen.PairOpen, screen.PairBegin), Speaker.ACTIVE)
    failed_state = PassivePairState.FAILED

    def __init__(
        self,
        active: str,
        other: str,
        load: Computation,
        agree: Callable[[], object],
        secret: bytes,
        fresh: bytes,
        consent_within: int = 0,
    ) -> None:
        super().__init__(PassivePairState.READY, (active, other), active=active)
        self._other = other
        self._load = load
        self._agree = agree
        self._secret = secret
        self._fresh = fresh
        self._consent = OwnConsent(self, consent_within, self._prepare, self._refuse)
        self._attach(self._consent)
        self._asks = False
        self._offered = 0
        """Columns of the asking party."""
        self._own: CorrelatedNumbers
        self._others = 0
        """Columns of the other party, once both agree."""
        self._marks: NDArray[np.uint8] | None = None
        self._seeds: Seeds = ()
        self._link: screen.PairLink | None = None
        self._arrived: list[NDArray[Any]] = []
        """What the other party sends: encrypted columns, or hints."""
        self._public = b""

    @property
    def awaits_consent(self) -> bool:
        return self.state is PassivePairState.ASKING

    @on_message(screen.PairOpen)
    def _on_open(self, _: str, body: screen.PairOpen) -> None:
        self._asks, self._offered = body.answers == self._other, body.correlated
        try:
            self._agree()
        except Refused as error:
            self._refuse(error)
            return
        self._consent.begin(self.active)

    def _prepare(self) -> None:
        self._run(COLUMNS, single(self._load), self._with_columns)

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is not PassivePairState.PREPARING:
            super()._on_computation_failed(event)
        elif isinstance(event.error, Refused):
            self._refuse(event.error)
        else:  # it may quote this party's data
            self._refuse(event.error, "its own columns could not be read; its log says why")

    def _refuse(self, error: FedmqError, disclosed: str = "") -> None:
        turn_down(self, self.active, disclosed or str(error))
        self._fail(error, except_for=self.active, disclosed="the active party was refused")

    def _with_columns(self, own: OwnColumns) -> None:
        self._emit(Save(ConsentUsed()))
        if own.people is not None:
            self._emit(Save(own.people))
        if own.numbers is None or (self._asks and len(own.numbers.columns) != self._offered):
            self._fail(Refused("other columns of numbers may be correlated than in the screen"))
            return
        self._own = own.numbers
        self._send(self.active, screen.PairReady(columns=len(self._own.columns)))

    # Both agree

    @on_message(screen.PairBegin)
    def _on_begin(self, _: str, body: screen.PairBegin) -> None:
        if self._others:
            raise ProtocolError("the pair has begun before")
        self._others = body.columns
        self._run(ENCRYPTED_PAIR, self._encrypted(), self._send_encrypted)

    def _encrypted(self) -> Plan[NDArray[np.uint32] | None]:
        standard = self._own.standard
        [self._marks] = yield Compute([column_marks.bind(self._secret, standard)])
        if not self._asks:
            return None
        [self._seeds] = yield Compute([column_seeds.bind(self._fresh, standard)])
        public = public_seed(self._fresh)
        found = yield Compute(
            [
                encrypt_columns.bind(public, self._seeds[part], standard[:, part])
                for part in _parts(len(self._seeds))
            ]
        )
        return np.concatenate(found).reshape(-1, SENT_WORDS)

    def _send_encrypted(self, numbers: NDArray[np.uint32] | None) -> None:
        assert self._marks is not None
        link = screen.PairLink(seed=seed_of(self._fresh, "link"), marks=Array.of(self._marks))
        self._send(self._other, link)
        if numbers is not None:
            seed, size = public_seed(self._fresh), PIECE_BYTES // numbers[0].nbytes
            for start in range(0, len(numbers), size):
                piece = Array.of(numbers[start : start + size])
                body = screen.ScreenNumbers(start=start, seed=seed, ciphertexts=piece)
                self._send(self._other, body)
        self._multiply_when_complete()

    # The other party's columns, or hints, arrive

    @on_message(screen.PairLink)
    def _on_link(self, peer: str, body: screen.PairLink) -> None:
        self._check_other(peer)
        marks = body.marks
        if self._link is not None or marks.dtype != "|u1" or marks.shape[1:] != (SEED_BYTES,):
            raise ProtocolError("marks came twice, or have another size")
        self._link = body
        self._multiply_when_complete()

    @on_message(screen.ScreenNumbers)
    def _on_numbers(self, peer: str, body: screen.ScreenNumbers) -> None:
        self._check_other(peer)
        numbers = body.ciphertexts
        if self._asks or self._public not in (b"", body.seed):
            raise ProtocolError("columns came that nobody wanted, or of different seeds")
        if numbers.dtype != "<u4" or numbers.shape[1:] != (SENT_WORDS,) or not numbers.shape[0]:
            raise ProtocolError("numbers of columns have three words each")
        self._public = body.seed
        self._add(body.start, numbers.numpy())

    @on_message(screen.ScreenHints)
    def _on_hints(self, peer: str, body: screen.ScreenHints) -> None:
        self._check_other(peer)
        hints = body.hints
        if not self._seeds or hints.dtype != "<u2" or not hints.shape[0]:
            raise ProtocolError("hints came that were not due")
        if hints.shape[1:] != (DEGREE, HINT_WORDS):
            raise ProtocolError("hints of columns have another size")
        self._add(body.first, hints.numpy())

    def _check_other(self, peer: str) -> None:
        if peer != self._other:
            raise ProtocolError("the active party has no columns in a pair of others")

    @property
    def _length(self) -> int:
        """How much is to come: a hint a column, or all numbers of encrypted columns."""
        if self._asks:
            return self._others
        return self._offered * ColumnLayout(len(self._own.standard)).length

    def _add(self, start: int, piece: NDArray[Any]) -> None:
        arrived = sum(map(len, self._arrived))
        if start != arrived or arrived + len(piece) > self._length:
            raise ProtocolError(f"it begins at {start}, not at {arrived} of {self._length}")
        self._arrived.append(piece)
        self._multiply_when_complete()

    def _multiply_when_complete(self) -> None:
        if self._marks is None or self._link is None or not self._arrived:
            return
        if sum(map(len, self._arrived)) < self._length:
            return
        if len(self._link.marks.numpy()) != self._others:
            raise ProtocolError("one mark for each column is needed")
        self._move(COMPLETE)
        arrived = np.concatenate(self._arrived)
        self._arrived.clear()
        if self._asks:
            self._run(MASKED, self._read(arrived), self._send_sums)
        else:
            columns = arrived.reshape(self._offered, -1, SENT_WORDS)
            self._run(MASKED, self._multiplied(columns), self._send_sums)

    @property
    def _mask(self) -> bytes:
        """The seed of the masks: both parties have a half of it."""
        assert self._link is not None
        own, others = seed_of(self._fresh, "link"), self._link.seed
        first, second = (own, others) if self._asks else (others, own)
        return seed_of(first, "mask", second)

    def _read(self, hints: NDArray[np.uint16]) -> Plan[tuple[None, NDArray[np.uint32]]]:
        assert self._link is not None and self._marks is not None
        noise = self._secret, self._marks, self._link.marks.numpy()
        rows = len(self._own.standard)
        [sums] = yield Compute([masked_readings.bind(self._seeds, hints, rows, noise, self._mask)])
        return None, sums

    def _multiplied(
        self, encrypted: NDArray[np.uint32]
    ) -> Plan[tuple[NDArray[np.uint16], NDArray[np.uint32]]]:
        assert self._link is not None
        [asked] = yield Compute([asked_columns.bind(self._public, encrypted)])
        asked = marked(asked, self._link.marks.numpy())
        standard = self._own.standard
        found: list[Multiplied] = yield Compute(
            [
                add_products.bind(self._secret, self._public, asked, encrypted, standard, part)
                for part in _parts(standard.shape[1])
            ]
        )
        products = Multiplied.joined(found)
        [sums] = yield Compute([masked_products.bind(products.sums, self._mask)])
        return products.hints, sums

    def _send_sums(self, sent: tuple[NDArray[np.uint16] | None, NDArray[np.uint32]]) -> None:
        hints, sums = sent
        if hints is not None:
            for part in _parts(len(hints)):
                body = screen.ScreenHints(first=part.start, hints=Array.of(hints[part]))
                self._send(self._other, body)
        self._send(self.active, screen.PairSums(sums=Array.of(sums)))
        self._emit(Finish(len(self._own.columns)))


def _parts(columns: int) -> list[slice]:
    firsts = range(0, columns, _COLUMNS_TOGETHER)
    return [slice(first, min(first + _COLUMNS_TOGETHER, columns)) for first in firsts]
