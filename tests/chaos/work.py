"""Sessions of all kinds, asked for as owners would: again where a daemon went down meanwhile."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.errors import ConfigError, DaemonError, DataError
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.documents import Deployments, cross_validations
from tests.chaos.federation import PARTIES
from tests.chaos.storm import EngineOfTraining, Storm

T = TypeVar("T")

KINDS = (
    "training",
    "cross-validation",
    "continuation",
    "join and leave",
    "quick series",
    "deletion",
    "alignment",
    "evaluation",
    "activation",
)
"""Those that need an engine come first, so that each engine has its turn early."""

LIMITS = """
most_trainings_per_day = 100000
most_alignments_per_day = 100000
most_equations_per_row = 100000000
delete_models = true
smallest_alignment = 1
"""
"""No policy ends so many sessions, and all parties delete what they are asked to."""

_TREES = 3
_SERIES = 5
_MOST_FILES = 400
"""Of a daemon with some sessions that have ended a moment ago."""
_PATIENCE = 480.0
"""Seconds after which a session that has not come to its end waits in vain."""
_IDS = [f"p{row}" for row in range(40)]
_BASE = "base"
_ROUGH = (DaemonError, ConfigError, DataError, OSError)
"""What an owner reads while daemons come and go."""


class Work:
    """Sessions of all kinds, one after the other, each compared with that of a calm round.

    Models of exact engines are equal, so one calm round serves for all of them.
    """

    def __init__(self, storm: Storm) -> None:
        self.done: Counter[str] = Counter()
        """Sessions that came to their end, by kind; all of them with the result of a calm one."""
        self.asked_again: Counter[str] = Counter()
        """By kind: how often a session was asked for again, for a daemon had gone down."""
        self.engines: Counter[str] = Counter()
        """Trainings of all kinds that ended, by engine."""
        self.calm = threading.Lock()
        """Held where no fault may strike: a party leaves the federation or joins it."""
        self._storm = storm
        self._federation = storm.federation
        self._found: dict[str, Any] = {}
        self._sessions = 0

    def calm_round(self, engine: EngineOfTraining) -> None:
        """One session of each kind, with which all others are compared, and the model ``base``.

        Nothing of it counts.
        """
        self._train("training", _BASE, engine)
        for kind in KINDS:
            self.session(kind, engine)
        self.done.clear()
        self.engines.clear()
        self.asked_again.clear()

    def session(self, kind: str, engine: EngineOfTraining) -> None:
        """A session of ``kind``; AssertionError if it ends otherwise than in calm weather."""
        name = f"session-{self._sessions}"
        self._sessions += 1
        match kind:
            case "training":
                self._train(kind, name, engine)
            case "cross-validation":
                self._cross_validate(name, engine)
            case "continuation":
                self._train(kind, name, engine, continue_from=_BASE)
            case "join and leave":
                self._leave_and_join(name, engine)
            case "quick series":
                self._series(name, engine)
            case "deletion":
                self._train(kind, name, engine)
                self._delete(name)
            case "alignment":
                self._align(name)
            case "evaluation":
                self._same(kind, self._scores(_BASE))
            case "activation":
                self._activate()
        self.done[kind] += 1

    def _series(self, name: str, engine: EngineOfTraining) -> None:
        """Small trainings one right after the other: what they hold open is soon closed again."""
        for number in range(_SERIES):
            self._train("quick series", f"{name}-{number}", engine, trees=1)
        for party, daemon in self._federation.daemons.items():
            files = self._until("quick series", lambda at=daemon: at.open_files)
            assert files < _MOST_FILES, f"{party} holds {files} files"

    def _align(self, name: str) -> None:
        job = {"party": str(self._federation.bank.file), "name": name}

        def aligned() -> Any:
            self._federation.ask("bank", "align", job=job)
            states = [daemon.state for daemon in self._federation.daemons.values()]
            found = [AlignmentStore(state).load(name) for state in states]
            assert len({alignment.session for alignment in found}) == 1
            assert all(alignment.ids == found[0].ids for alignment in found)
            return sorted(map(str, found[0].ids))

        self._same("alignment", self._until("alignment", aligned))

    def _train(
        self, kind: str, model: str, engine: EngineOfTraining, trees: int = _TREES, **job: Any
    ) -> None:
        def trained() -> Any:
            if not self._complete(model):
                self._ask_to_train(model, engine, trees, **job)
            shares = self._federation.shares(model)
            return {
                party: text.replace(f'"{model}"', '"MODEL"')
                for party, text in shares.items()
                if party in self._storm.present
            }

        # What is deleted then is a model like others.
        self._same("training" if kind == "deletion" else kind, self._until(kind, trained))
        self.engines[_shown(engine)] += 1

    def _complete(self, model: str) -> bool:
        return self._federation.shares(model).keys() >= set(self._storm.present)

    def _ask_to_train(self, model: str, engine: EngineOfTraining, trees: int, **job: Any) -> Any:
        name, options = engine
        weak = {"key_bits": 512, "allow_weak_keys": True} if name in ("paillier", "ou") else {}
        wanted = TrainingJob(
            model=model,
            engine=name,
            engine_options={**weak, **options},
            params=TrainParams(
                num_boost_round=trees, max_depth=2, max_bin=8, xgboost_arithmetic=OLDEST
            ),
            **job,
        )
        return self._federation.ask("bank", "train", job=wanted.model_dump(mode="json"))

    def _cross_validate(self, name: str, engine: EngineOfTraining) -> None:
        state = self._federation.bank.state

        def validated() -> Any:
            found = cross_validations(state).find(f"{name}-cv")
            if found is None:
                self._ask_to_train(name, engine, _TREES, nfold=2)
                found = cross_validations(state).read(f"{name}-cv")
            return found.figures

        self._same("cross-validation", self._until("cross-validation", validated))
        self.engines[_shown(engine)] += 1

    def _scores(self, model: str) -> Any:
        def scored() -> Any:
            answer = self._federation.ask("bank", "predict", model=model, ids=_IDS)
            return answer["scores"]

        return self._until("evaluation", scored)

    def _activate(self) -> None:
        """Callers ask for this name, so it is the same model again."""

        def active() -> Any:
            self._federation.ask("bank", "activate", model=_BASE, name="production")
            return Deployments.read(self._federation.bank.state).names_of(_BASE)

        self._same("activation", self._until("activation", active))

    def _delete(self, model: str) -> None:
        def gone() -> Any:
            if "bank" in self._federation.shares(model):
                answers = self._federation.ask(
                    "bank", "delete_everywhere", model=model, seconds=20.0
                )
                refused = [answer for answer in answers.values() if "refused" in answer]
                if refused:
                    raise DaemonError(str(refused))
            return sorted(self._federation.shares(model))

        self._same("deletion", self._until("deletion", gone))

    def _leave_and_join(self, model: str, engine: EngineOfTraining) -> None:
        """Retail leaves, the others train, and retail is back."""
        kind = "join and leave"
        with self.calm:
            self._until(kind, lambda: self._federation.ask("retail", "status"))
            self._storm.present = ("bank", "telco")
            self._federation.leave("retail")
        try:
            self._reload(("bank", "telco"))
            self._train(kind, model, engine)
        finally:
            with self.calm:
                self._federation.come_back()
                self._storm.present = PARTIES
        self._reload(("bank", "telco"))

    def _reload(self, parties: tuple[str, ...]) -> None:
        for party in parties:
            self._until("join and leave", lambda at=party: self._federation.ask(at, "reload"))

    def _until(self, kind: str, ask: Callable[[], T]) -> T:
        """What ``ask`` finds, asked again while daemons are away."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return ask()
            except _ROUGH as error:
                assert time.monotonic() < deadline, f"{kind}: {error}\n{self._federation.tell()}"
                self.asked_again[kind] += 1
                print(f"{kind} again: {error}", file=sys.stderr)
                time.sleep(0.2)

    def _same(self, kind: str, found: Any) -> None:
        text = json.dumps(found, sort_keys=True)
        assert text == self._found.setdefault(kind, text), f"{kind}: {text} is not as in calm"


def turns(engines: Sequence[EngineOfTraining]) -> Iterator[tuple[str, EngineOfTraining]]:
    """Kinds and engines, without end: all kinds at first, each with another engine, then shifted.

    So whatever ends early has seen most of both.
    """
    for number in itertools.count():
        round_, place = divmod(number, len(KINDS))
        yield KINDS[place], engines[(place + round_) % len(engines)]


def _shown(engine: EngineOfTraining) -> str:
    name, options = engine
    return f"{name}, hidden sums" if options.get("sums") == "hidden" else name


@dataclass
class Answers:
    """What callers of online scores got. Lateness counts where the bank's process was untouched."""

    right: int = 0
    degraded: int = 0
    wrong: int = 0
    broken: int = 0
    """Refused or unanswered while a fault lasted or a daemon started."""
    recovering: int = 0
    """Refused or unanswered within `Callers.RECOVERY` seconds after that."""
    healthy: int = 0
    """Refused or unanswered later."""
    late: int = 0
    slowest: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    """Of refusals while nothing was broken: their beginnings."""
    back_after: dict[str, list[float]] = field(default_factory=dict)
    """By fault: how many seconds after its end the first right answer came."""

    @property
    def asked(self) -> int:
        """All requests."""
        without = self.broken + self.recovering + self.healthy
        return self.right + self.degraded + self.wrong + without


class Callers:
    """Ask the bank for scores of the name ``production``, one after the other, until stopped.

    Who gets no score asks again after a quarter of a second, as a client that retries.
    """

    DEADLINE = 2.0
    GRACE = 0.1
    RECOVERY = 2.0
    AGAIN = 0.25

    def __init__(self, storm: Storm) -> None:
        self.answers = Answers()
        self._storm = storm
        self._stopped = threading.Event()
        self._truth: Mapping[str, Any] = {}
        self._last_right = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Take down the scores in calm weather, and begin to ask."""
        deadline = time.monotonic() + 60
        while True:
            answer = self._storm.federation.ask("bank", "score", name="production", ids=_IDS[:5])
            if not answer.get("degraded"):
                break
            assert time.monotonic() < deadline, answer
            time.sleep(0.2)
        self._truth = answer
        self._thread.start()

    def stop(self) -> Answers:
        """Stop asking; what was answered."""
        self._stopped.set()
        self._thread.join(60)
        return self.answers

    def await_recovery(self, fault: str, longest: float) -> None:
        """Return once a right answer has come after all faults, or after so many seconds."""
        self._storm.await_starts()
        healed = self._storm.healed_since
        while self._last_right < healed and time.monotonic() < healed + longest:
            time.sleep(0.01)
        seconds = max(0.0, min(self._last_right - healed, longest))
        took = seconds if self._last_right >= healed else longest
        self.answers.back_after.setdefault(fault, []).append(took)

    def _run(self) -> None:
        pause = 0.02
        while not self._stopped.wait(pause):
            pause = 0.02 if self._ask() else self.AGAIN

    def _ask(self) -> bool:
        """Whether there were scores."""
        answers, begun = self.answers, time.monotonic()
        untouched = self._storm.untouched["bank"] < begun
        found, reason = None, ""
        try:
            found = self._storm.federation.ask("bank", "score", name="production", ids=_IDS[:5])
        except (DaemonError, OSError) as error:
            reason = str(error)
        ended = time.monotonic()
        if untouched and self._storm.untouched["bank"] < begun:
            answers.slowest = max(answers.slowest, ended - begun)
            answers.late += ended - begun > self.DEADLINE + self.GRACE
        if found is None:
            self._count_refusal(ended - self._storm.healed_since, reason)
        elif found["scores"] == self._truth["scores"]:
            answers.right += 1
            self._last_right = ended
        elif found.get("degraded"):
            answers.degraded += 1
        else:
            answers.wrong += 1
        return found is not None

    def _count_refusal(self, healed: float, reason: str) -> None:
        answers = self.answers
        if healed < 0:
            answers.broken += 1
        elif healed <= self.RECOVERY:
            answers.recovering += 1
        else:
            answers.healthy += 1
        if healed >= 0:
            answers.reasons[reason[:70]] += 1
