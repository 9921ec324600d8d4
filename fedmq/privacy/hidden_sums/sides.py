"""What does each party do transfers and circuits with, in one level? Its rows, and unused tweaks.

Both sides call methods of the same meaning in the same order: so no tweak travels. First: how
arrays travel, one after the other, cut into pieces. Both halves know which arrays come next, and of
which shape: nothing but their bytes travels.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedmq.errors import MessageError
from fedmq.privacy.garbling.half_gates import Evaluation, Garbling, Labels, colours
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.hidden_sums.circuits import Run
from fedmq.privacy.oblivious_transfer.correlated import (
    Offered,
    Wide,
    offer,
    offer_narrow,
    receive,
    receive_narrow,
    turned_offer,
    turned_offer_narrow,
    turned_receipt,
    turned_receipt_narrow,
)
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_WORDS,
    Extended,
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    PoolReceiver,
    PoolSender,
    Tweaks,
    turned_bytes,
)
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Values

__all__ = [
    "Made",
    "Opened",
    "ReceiverSide",
    "SenderSide",
    "Unpacked",
    "extended_bytes",
    "extension_arrays",
    "finished",
    "packed_bits",
    "pieces_of",
    "take_bits",
    "take_extension",
]


def pieces_of(*arrays: NDArray[Any]) -> Sequence[Values]:
    """A parcel of ``arrays``: at least one piece, of `LARGEST_PIECE_BYTES` at most.

    A piece is cut when it is read, so that a long parcel does not lie in memory twice.
    """
    return _Pieces([np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays])


class _Pieces(Sequence[Values]):
    def __init__(self, parts: Sequence[NDArray[np.uint8]]) -> None:
        self._parts = parts
        self._bytes = sum(map(len, parts))

    def __len__(self) -> int:
        return max(1, -(-self._bytes // LARGEST_PIECE_BYTES))

    @overload
    def __getitem__(self, index: int) -> Values: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Values]: ...

    def __getitem__(self, index: int | slice) -> Values | Sequence[Values]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [self[place] for place in places]
        start = places * LARGEST_PIECE_BYTES
        cut, end = [np.empty(0, np.uint8)], 0
        for part in self._parts:
            first, end = end, end + len(part)
            if first < start + LARGEST_PIECE_BYTES and start < end:
                cut.append(part[max(0, start - first) : start + LARGEST_PIECE_BYTES - first])
        return {"bytes": cut[1] if len(cut) == 2 else np.concatenate(cut)}


class Unpacked:
    """The arrays of a parcel, one after the other.

    Raises:
        MessageError: ``parcel`` has other pieces than bytes.
    """

    def __init__(self, parcel: Sequence[Values] | NDArray[np.uint64]) -> None:
        self._left: deque[NDArray[np.uint8]] = deque()
        """Pieces of which bytes are left: what is taken of a long parcel is not kept here."""
        if isinstance(parcel, np.ndarray):
            self._left.append(parcel.view(np.uint8))
        else:
            for piece in parcel:
                part = piece.get("bytes")
                if len(piece) != 1 or not isinstance(part, np.ndarray) or part.dtype != np.uint8:
                    raise MessageError("a parcel of other pieces than bytes")
                self._left.append(part.reshape(-1))
        self._bytes = sum(map(len, self._left))

    def take(self, dtype: DTypeLike, shape: Sequence[int]) -> NDArray[Any]:
        """The next array. Raises `MessageError` if it is missing."""
        return np.frombuffer(
            self._next(math.prod(shape) * np.dtype(dtype).itemsize), dtype
        ).reshape(shape)

    def _next(self, size: int) -> NDArray[np.uint8]:
        """The next ``size`` bytes, without a copy where they are of one piece."""
        parts: list[NDArray[np.uint8]] = []
        while size and self._left:
            part = self._left.popleft()
            if len(part) > size:
                self._left.appendleft(part[size:])
            parts.append(part[:size])
            size -= len(parts[-1])
        if size:
            raise MessageError(f"a parcel of {self._bytes:,} bytes, which is too short")
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])

    def rest(self) -> NDArray[np.uint8]:
        """All bytes that were not taken."""
        return self._next(sum(map(len, self._left)))

    def end(self) -> None:
        """Raise `MessageError` unless all bytes are taken."""
        if any(map(len, self._left)):
            raise MessageError(f"a parcel of {self._bytes:,} bytes, which is too long")


def packed_bits(bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Bits of any shape for `take_bits`."""
    return np.packbits(bits.reshape(-1))


def take_bits(parcel: Unpacked, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The next bits of a parcel, of this shape."""
    count = int(np.prod(shape))
    packed = parcel.take(np.uint8, (-(-count // 8),))
    return np.unpackbits(packed, count=count).reshape(shape).astype(np.bool_)


def extension_arrays(sent: Extended) -> Iterator[NDArray[np.uint8]]:
    """The arrays that the receiver of transfers sends."""
    yield from (sent.sums, sent.proof, sent.columns, sent.choice_hash, sent.column_hashes)


def take_extension(parcel: Unpacked, count: int) -> Extended:
    """The next extension of a parcel, of ``count`` transfers."""
    return Extended(*(parcel.take(np.uint8, shape) for shape in Extended.shapes(count).values()))


def extended_bytes(count: int) -> int:
    """Bytes of an extension of ``count`` transfers."""
    return sum(int(np.prod(shape)) for shape in Extended.shapes(count).values())


# What does each party do transfers and circuits with? Its rows, and unused tweaks.

Made = list[NDArray[Any]]
"""The arrays of the next parcel."""

T = TypeVar("T")


NarrowOffer = tuple[NDArray[np.uint64], NDArray[np.uint8]]
"""Own shares of numbers, (n, k), and the message, (n, k, bytes)."""


class SenderSide:
    """The passive party's: it sends transfers, and garbles."""

    def __init__(self, sender: ExtensionSender, permutation: Permutation, tweaks: Tweaks) -> None:
        self._sender = sender
        self.permutation = permutation
        self.tweaks = tweaks
        self._pool: PoolSender

    @property
    def secret(self) -> NDArray[np.uint64]:
        return self._sender.secret

    def fill(self, parcel: Unpacked, count: int) -> None:
        """Take an extension of ``count`` transfers."""
        sent = take_extension(parcel, count)
        self._pool = PoolSender(self._sender, sent, count, self.tweaks.take(count))

    def rows(self, parcel: Unpacked, count: int) -> NDArray[np.uint64]:
        """The rows of the next ``count`` choices: uint64 (count, 2)."""
        return self._pool.take(parcel.take(np.uint8, (turned_bytes(count),)), count)

    def offer(self, parcel: Unpacked, numbers: Wide) -> tuple[Wide, Wide]:
        """Own shares, and the message, of the next choices among ``numbers`` (n, k, 2)."""
        rows, tweaks = self.rows(parcel, len(numbers)), self.tweaks.take(len(numbers))
        return offer(rows, self.secret, numbers, self.permutation, tweaks)

    def offer_narrow(self, parcel: Unpacked, offered: Offered) -> Iterator[NarrowOffer]:
        """The same of each part of what is ``offered``."""
        rows, first = self.rows(parcel, offered.transfers), 0
        for numbers in offered.parts():
            yield self._offer_narrow(rows[first : first + len(numbers)], numbers, offered.bits)
            first += len(numbers)

    def offer_ahead(self, numbers: Wide) -> tuple[Wide, Wide]:
        """As `offer`, for random choices: `turn` makes the real ones of them."""
        rows, tweaks = self._pool.drawn(len(numbers)), self.tweaks.take(len(numbers))
        return offer(rows, self.secret, numbers, self.permutation, tweaks)

    def offer_ahead_narrow(self, offered: Offered) -> Iterator[NarrowOffer]:
        """The same of each part of what is ``offered``."""
        for numbers in offered.parts():
            yield self._offer_narrow(self._pool.drawn(len(numbers)), numbers, offered.bits)

    def _offer_narrow(
        self, rows: NDArray[np.uint64], numbers: NDArray[np.uint64], bits: int
    ) -> NarrowOffer:
        tweaks = self.tweaks.take(len(numbers))
        return offer_narrow(rows, self.secret, numbers, bits, self.permutation, tweaks)

    def drop_used(self) -> None:
        """Free the memory of the rows that were used."""
        self._pool.drop_used()

    def turn(self, parcel: Unpacked, own: Wide, numbers: Wide) -> Wide:
        """Own shares of the choices that ``parcel`` turns, of what was offered ahead."""
        return turned_offer(own, numbers, take_bits(parcel, (len(own),)))

    def turn_narrow(
        self, parcel: Unpacked, own: NDArray[np.uint64], offered: Offered
    ) -> Iterator[NDArray[np.uint64]]:
        """The same of each part of what was ``offered``: ``own`` are the shares of all of it."""
        turned, first = take_bits(parcel, (offered.transfers,)), 0
        for numbers in offered.parts():
            part = slice(first, first + len(numbers))
            yield turned_offer_narrow(own[part], numbers, turned[part], offered.bits)
            first = part.stop

    def read_bits(self, parcel: Unpacked, zeros: Labels) -> NDArray[np.bool_]:
        """The bits of which the active party returns a label each: bool (bits, instances).

        ``zeros``: the labels of 0, (bits, instances, 2). Raises `MessageError` for labels that are
        neither.
        """
        labels = parcel.take(np.uint64, zeros.shape)
        bits: NDArray[np.bool_] = (labels == zeros ^ self.secret).all(axis=2)
        if not (bits | (labels == zeros).all(axis=2)).all():
            raise MessageError("labels of bits that no circuit has shown")
        return bits

    def garble(self, tables: Made) -> Run:
        """What garbles a circuit, and puts its tables among ``tables``."""

        def run(
            schedule: Schedule, inputs: Mapping[str, Labels]
        ) -> Generator[Any, Any, dict[str, Labels]]:
            instances = next(iter(inputs.values())).shape[1]
            tweaks = self.tweaks.take(instances)
            garbling = Garbling(schedule, inputs, self.secret, self.permutation, tweaks)
            tables.extend(garbling.pieces())
            return garbling.outputs
            yield

        return run


@dataclass(slots=True, eq=False)
class Opened:
    """A copy whose labels the active party knows, for they differ by ``secret``, uint64 (2,).

    In place of what its circuits show it tells the ``bits`` that those of the real copy showed, the
    next ones first: so the passive party cannot tell one copy from the other.
    """

    secret: NDArray[np.uint64] = field(repr=False)
    bits: list[NDArray[np.bool_]] = field(default_factory=list)


class ReceiverSide:
    """The active party's: it chooses, and evaluates. ``opened``: in a copy that it checks."""

    def __init__(
        self,
        receiver: ExtensionReceiver,
        permutation: Permutation,
        tweaks: Tweaks,
        opened: Opened | None = None,
    ) -> None:
        self._receiver = receiver
        self.permutation = permutation
        self.tweaks = tweaks
        self._pool: PoolReceiver
        self._chosen: list[tuple[NDArray[np.bool_], NDArray[np.uint64]]] = []
        self.opened = opened
        self.told: list[NDArray[np.bool_]] = []
        """The bits of which it told labels."""

    def fill(self, count: int) -> Made:
        """Make an extension of ``count`` transfers."""
        self._pool = PoolReceiver(self._receiver, count, self.tweaks.take(count))
        return list(extension_arrays(self._pool.message))

    def choose(self, choices: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """The message of ``choices``, bool (n,)."""
        turned, rows = self.choose_rows(choices)
        self._chosen.append((choices, rows))
        return turned

    def choose_rows(
        self, choices: NDArray[np.bool_]
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        """The message of ``choices``, bool (n,), and their rows, for which no numbers come."""
        return self._pool.choose(choices)

    def draw(self, count: int) -> NDArray[np.bool_]:
        """The next ``count`` choices at random, bool (n,): `turn` makes the real ones of them.

        Their numbers come before that.
        """
        drawn, rows = self._pool.drawn(count)
        self._chosen.append((drawn, rows))
        return drawn

    def turn(
        self, shares: Wide, drawn: NDArray[np.bool_], choices: NDArray[np.bool_]
    ) -> tuple[NDArray[np.uint8], Wide]:
        """The message that turns ``drawn`` choices to real ones, and own shares of these."""
        turned = drawn ^ choices
        return packed_bits(turned), turned_receipt(shares, turned)

    def turn_narrow(
        self,
        shares: NDArray[np.uint64],
        drawn: NDArray[np.bool_],
        choices: NDArray[np.bool_],
        bits: int,
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        """The same modulo 2^bits."""
        turned = drawn ^ choices
        return packed_bits(turned), turned_receipt_narrow(shares, turned, bits)

    def receive(self, parcel: Unpacked, width: int) -> Wide:
        """Own shares of the oldest choices not received yet: (n, width, 2)."""
        choices, rows = self._chosen.pop(0)
        sent = parcel.take(np.uint64, (len(choices), width, BLOCK_WORDS))
        tweaks = self.tweaks.take(len(choices))
        return receive(rows, choices, sent, width, self.permutation, tweaks)

    def receive_narrow(self, parcel: Unpacked, width: int, bits: int) -> NDArray[np.uint64]:
        """The same modulo 2^bits: uint64 (n, width)."""
        choices, rows = self._chosen.pop(0)
        sent = parcel.take(np.uint8, (len(choices), width, -(-bits // 8)))
        tweaks = self.tweaks.take(len(choices))
        return receive_narrow(rows, choices, sent, bits, self.permutation, tweaks)

    def tell(self, labels: Labels, unset: NDArray[np.bool_]) -> tuple[Labels, NDArray[np.bool_]]:
        """Labels that prove bits to the passive party, and the bits, by the colours of 0."""
        bits = colours(labels) ^ unset
        if self.opened is not None:
            found, bits = bits, self.opened.bits[len(self.told)]
            turned = (found ^ bits)[..., np.newaxis]
            labels = labels ^ np.where(turned, self.opened.secret, np.uint64(0))
        self.told.append(bits)
        return labels, bits

    def evaluate(self, parcel: Unpacked) -> Run:
        """What evaluates a circuit by the next tables of ``parcel``."""

        def run(
            schedule: Schedule, inputs: Mapping[str, Labels]
        ) -> Generator[Any, Any, dict[str, Labels]]:
            instances = next(iter(inputs.values())).shape[1]
            tweaks = self.tweaks.take(instances)
            evaluation = Evaluation(schedule, inputs, self.permutation, tweaks)
            while (shape := evaluation.awaited) is not None:
                evaluation.take(parcel.take(np.uint64, shape))
            return evaluation.outputs
            yield

        return run


def finished(running: Generator[Any, Any, T]) -> T:
    """What a generator returns that waits for nothing."""
    try:
        next(running)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a circuit that waits for something")
