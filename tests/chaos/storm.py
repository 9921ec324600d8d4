"""Seeded faults, one after the other, on a federation that trains meanwhile."""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedmq.errors import DaemonError
from tests.chaos.federation import PARTIES, ChaosFederation

EngineOfTraining = tuple[str, Mapping[str, Any]]
"""Its name and options."""

PLAIN: EngineOfTraining = ("plain", {})

_TREES = 16
_DAY_SECONDS = 86_400.0
_DEADLINE_SECONDS = 120.0
"""A training that does not end within this after the last fault waits for something in vain."""


class Storm:
    """Trains model after model, ``engines`` by turns, until so many faults have struck.

    The calm training is the first engine's, and the first one in the storm the next engine's.
    """

    def __init__(
        self, federation: ChaosFederation, seed: int, engines: Sequence[EngineOfTraining] = (PLAIN,)
    ) -> None:
        self.federation = federation
        self.struck: Counter[str] = Counter()
        self.models: list[str] = []
        self.present: tuple[str, ...] = PARTIES
        """The parties that faults strike."""
        self.untouched: dict[str, float] = dict.fromkeys(PARTIES, 0.0)
        """By party: since when its process is ready, and neither stopped nor killed; endless where
        it is not."""
        self._broken: Counter[str] = Counter()
        self._healed = 0.0
        self._starting: list[threading.Thread] = []
        self._random = random.Random(seed)
        self._engines = engines
        self._cycle: list[str] = []
        self._kinds: dict[str, Callable[[], None]] = {
            "cut": self._cut,
            "cut every N bytes": self._cut_every,
            "delay": self._delay,
            "slow link": self._slow_down,
            "stalling link": self._stall,
            "frozen link": self._freeze_link,
            "killed party": self._kill,
            "stopped party": self._stop,
            "killed broker": self._kill_broker,
            "stopped broker": self._stop_broker,
            "wiped queues": self._wipe_queues,
            "full disk": self._fill_disk,
            "clock step": self._step_clock,
        }
        self.kinds = tuple(self._kinds)

    @property
    def healed_since(self) -> float:
        """Since when nothing is broken, and all daemons are ready; endless while anything is."""
        return math.inf if +self._broken else self._healed

    def calm(self) -> None:
        """One training without a fault, to compare with."""
        self.federation.train("calm", _TREES, *self._engines[0])
        self.federation.await_shares(["calm"], _DEADLINE_SECONDS)

    def rage(self, faults: int, kinds: tuple[str, ...] = ()) -> None:
        """Strike so many times, a training always under way."""
        for _ in range(faults):
            self._keep_training()
            self.strike(kinds)

    def strike(self, kinds: tuple[str, ...] = ()) -> str:
        """Strike once, in a moment; each kind comes round before any comes again; which it was."""
        if not self._cycle:
            self._cycle = list(kinds or self._kinds)
            self._random.shuffle(self._cycle)
        kind = self._cycle.pop()
        time.sleep(self._random.uniform(0.1, 1.0))
        with self._broken_by(kind):
            self._kinds[kind]()
        self.struck[kind] += 1
        return kind

    @contextlib.contextmanager
    def _broken_by(self, kind: str) -> Iterator[None]:
        self._broken[kind] += 1
        try:
            yield
        finally:
            self._healed = time.monotonic()
            self._broken[kind] -= 1

    def await_starts(self) -> None:
        """Return when all daemons that were killed are ready."""
        while self._starting:
            self._starting.pop().join()

    def settle(self) -> None:
        """Wait until all models are complete everywhere; AssertionError if one never is."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not all(self._complete(model) for model in self.models):
            self._keep_training(new=False)
            assert time.monotonic() < deadline, self.federation.tell()
            time.sleep(0.1)

    def _keep_training(self, new: bool = True) -> None:
        if new and (not self.models or self._complete(self.models[-1])):
            self.models.append(f"storm-{len(self.models)}")
        model = self.models[-1]
        settled = self.federation.settled(model)
        assert settled is None or settled[0] != "failed", f"{settled}\n{self.federation.tell()}"
        if settled is None and not self._complete(model):
            # It is new, or the daemon was hit before it had taken it down: its owner asks again.
            with contextlib.suppress(DaemonError):
                engine = self._engines[len(self.models) % len(self._engines)]
                self.federation.train(model, _TREES, *engine)

    def _complete(self, model: str) -> bool:
        return len(self.federation.shares(model)) == len(PARTIES)

    # Faults

    def _victim(self) -> str:
        return self._random.choice(self.present)

    def _a_while(self, longest: float = 3.0) -> None:
        time.sleep(self._random.uniform(0.2, longest))

    def _cut(self) -> None:
        self.federation.daemons[self._victim()].proxy.cut()

    def _cut_every(self) -> None:
        proxy = self.federation.daemons[self._victim()].proxy
        proxy.cut_every = self._random.randrange(5_000, 100_000)
        self._a_while()
        proxy.heal()

    def _delay(self) -> None:
        proxy = self.federation.daemons[self._victim()].proxy
        proxy.delay = self._random.uniform(0.02, 0.2)
        self._a_while()
        proxy.heal()

    def _slow_down(self) -> None:
        proxy = self.federation.daemons[self._victim()].proxy
        proxy.rate, proxy.delay = self._random.uniform(32_000, 250_000), 0.01
        self._a_while(longest=6.0)
        proxy.heal()

    def _stall(self) -> None:
        proxy = self.federation.daemons[self._victim()].proxy
        proxy.stall = self._random.uniform(0.5, 3.0)
        self._a_while(longest=6.0)
        proxy.heal()

    def _freeze_link(self) -> None:
        proxy = self.federation.daemons[self._victim()].proxy
        proxy.frozen = True
        # Once in a while for longer than a heartbeat allows.
        self._a_while(longest=self._random.choice([3.0, 3.0, 25.0]))
        proxy.heal()

    def _kill(self) -> None:
        victim = self._victim()
        daemon = self.federation.daemons[victim]
        self.untouched[victim] = math.inf
        daemon.kill()
        self._a_while(longest=1.0)
        daemon.start(ready=False)
        # The next faults may strike while it starts.
        starting = threading.Thread(target=self._until_ready, args=(victim,), daemon=True)
        starting.start()
        self._starting.append(starting)

    def _until_ready(self, party: str) -> None:
        daemon = self.federation.daemons[party]
        pid = daemon.pid
        with self._broken_by("start"):
            while not daemon.is_ready and daemon.pid == pid:
                time.sleep(0.05)
        if daemon.pid == pid and self.untouched[party] == math.inf:
            self.untouched[party] = time.monotonic()

    def _stop(self) -> None:
        victim = self._victim()
        daemon = self.federation.daemons[victim]
        self.untouched[victim] = math.inf
        daemon.freeze()
        self._a_while()
        daemon.thaw()
        if daemon.is_ready:
            self.untouched[victim] = time.monotonic()

    def _kill_broker(self) -> None:
        node = self.federation.node
        node.kill()
        for is_last in (False, False, True):
            try:
                node.start()
            except RuntimeError:  # a busy machine takes its time
                if is_last:
                    raise
            else:
                return

    def _stop_broker(self) -> None:
        self.federation.node.freeze()
        self._a_while()
        self.federation.node.thaw()

    def _wipe_queues(self) -> None:
        self.federation.node.empty()

    def _fill_disk(self) -> None:
        daemon = self.federation.daemons[self._victim()]
        # One that starts on a full disk ends at once; its service manager starts it again.
        daemon.await_ready()
        daemon.fill_disk()
        self._a_while()
        daemon.clear_disk()

    def _step_clock(self) -> None:
        clock = self.federation.daemons[self._victim()].clock
        clock.step(self._random.choice([-2.0, -0.1, 0.1, 2.0, 31.0]) * _DAY_SECONDS)
        self._a_while(longest=6.0)
        clock.step(0.0)
