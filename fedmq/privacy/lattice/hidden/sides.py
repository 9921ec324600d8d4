"""What does each party do transfers and circuits with, in one level? Its rows, and unused tweaks.

Both sides call methods of the same meaning in the same order: so no tweak travels.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.half_gates import Evaluation, Garbling, Labels
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.lattice.hidden.circuits import Run
from fedmq.privacy.lattice.hidden.parcels import Unpacked, extension_arrays, take_extension
from fedmq.privacy.oblivious_transfer.correlated import (
    Wide,
    offer,
    offer_narrow,
    receive,
    receive_narrow,
)
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_WORDS,
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
)
from fedmq.privacy.oblivious_transfer.pool import PoolReceiver, PoolSender, turned_bytes

__all__ = ["Made", "ReceiverSide", "SenderSide", "finished"]

Made = list[NDArray[Any]]
"""The arrays of the next parcel."""

T = TypeVar("T")


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

    def offer_narrow(
        self, parcel: Unpacked, numbers: NDArray[np.uint64], bits: int
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """The same modulo 2^bits: ``numbers`` (n, k)."""
        rows, tweaks = self.rows(parcel, len(numbers)), self.tweaks.take(len(numbers))
        return offer_narrow(rows, self.secret, numbers, bits, self.permutation, tweaks)

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


class ReceiverSide:
    """The active party's: it chooses, and evaluates."""

    def __init__(
        self, receiver: ExtensionReceiver, permutation: Permutation, tweaks: Tweaks
    ) -> None:
        self._receiver = receiver
        self.permutation = permutation
        self.tweaks = tweaks
        self._pool: PoolReceiver
        self._chosen: list[tuple[NDArray[np.bool_], NDArray[np.uint64]]] = []

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
