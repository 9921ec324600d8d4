"""How fast circuits are garbled and evaluated, and transfers extended, on one core.

::

    python -m benchmarks.garbling [--instances 546] [--transfers 500000] [--repeat 5] [--json]

The circuit divides and adds float32 numbers. Every number is millions a second, the best of
``--repeat`` rounds in time of the processor, of one side; sides take turns in one process.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from fedmq.privacy.garbling.circuit import Circuit, Format, Real
from fedmq.privacy.garbling.half_gates import Evaluation, Garbling
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.oblivious_transfer.base_transfers import ChooseSeeds, MakeOffer, OfferedSeeds
from fedmq.privacy.oblivious_transfer.correlated import offer, receive
from fedmq.privacy.oblivious_transfer.extension import (
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
    draw_choices,
)
from fedmq.privacy.random_stream import fresh_seed

_PERMUTATION = Permutation(b"benchmark")


def _quotients() -> Schedule:
    """Two quotients of integers of 110 and 57 bits, and their sum and a third number."""
    c, form = Circuit(), Format(8, 128)
    quotients = []
    for side in ("left", "right"):
        above = Real.of_whole(c, form, c.input(f"{side} above", 110), once=True)
        below = Real.of_whole(c, form, c.input(f"{side} below", 57), once=True)
        quotients.append(above.single().over(below.single()))
    more = Real.of_input(c, form, c.input("more", 32), signed=False)
    c.output("sum", (quotients[0] + quotients[1] + more).word)
    return Schedule.of(c)


class _Clock:
    """The fastest round of each action."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}

    def timed(self, name: str, count: int, action: Callable[[], object]) -> None:
        """Millions of ``count`` a second."""
        start = time.process_time()
        action()
        rate = count / (time.process_time() - start) / 1e6
        self.rates[name] = max(rate, self.rates.get(name, 0.0))


def measure_circuit(clock: _Clock, instances: int) -> None:
    """ANDs a second of both halves."""
    schedule = _quotients()
    random = np.random.default_rng(0)
    labels = {
        name: random.integers(0, 2**64, (place.stop - place.start, instances, 2), np.uint64)
        for name, place in schedule.inputs.items()
    }
    secret = np.array([1, 2], np.uint64)
    pieces: list[np.ndarray] = []

    def garble() -> None:
        tweaks = Tweaks(0, instances)
        garbling = Garbling(schedule, labels, secret, _PERMUTATION, tweaks)
        pieces.extend(garbling.pieces())

    def evaluate() -> None:
        evaluation = Evaluation(schedule, labels, _PERMUTATION, Tweaks(0, instances))
        for piece in pieces:
            evaluation.take(piece)

    clock.timed("ANDs garbled", schedule.ands * instances, garble)
    clock.timed("ANDs evaluated", schedule.ands * instances, evaluate)


def measure_transfers(clock: _Clock, count: int) -> None:
    """Transfers a second of both sides."""
    random = np.random.default_rng(0)
    secret, own = draw_choices(fresh_seed()), fresh_seed()
    chosen, seeds = ChooseSeeds(MakeOffer(own).run(), ~secret, fresh_seed()).run()
    receiver = ExtensionReceiver(OfferedSeeds(chosen, own).run())
    sender = ExtensionSender(secret, seeds)
    choices = random.random(count) < 0.5
    numbers = random.integers(0, 2**64, (count, 1, 2), np.uint64)
    message, rows = receiver.extend(choices, Tweaks(0, count))
    extended = sender.extend(message, count, Tweaks(0, count))
    _, sent = offer(extended, sender.secret, numbers, _PERMUTATION, Tweaks(0, count))

    def choose() -> object:
        return receiver.extend(choices, Tweaks(0, count))

    def answer() -> object:
        return sender.extend(message, count, Tweaks(0, count))

    def offered() -> object:
        return offer(extended, sender.secret, numbers, _PERMUTATION, Tweaks(0, count))

    def received() -> object:
        return receive(rows, choices, sent, 1, _PERMUTATION, Tweaks(0, count))

    clock.timed("transfers extended, receiver", count, choose)
    clock.timed("transfers extended, sender", count, answer)
    clock.timed("correlated numbers sent", count, offered)
    clock.timed("correlated numbers received", count, received)


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=546)
    parser.add_argument("--transfers", type=int, default=500_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    clock = _Clock()
    for _ in range(given.repeat):
        measure_circuit(clock, given.instances)
        measure_transfers(clock, given.transfers)
    if given.json:
        print(json.dumps(clock.rates))
    else:
        for name, rate in clock.rates.items():
            print(f"{name:32}{rate:8.1f} million a second")


if __name__ == "__main__":
    main()
