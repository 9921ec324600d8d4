"""Sessions of all kinds, asked for as owners would: again where a daemon went down meanwhile."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
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
    "alignment",
    "training",
    "cross-validation",
    "evaluation",
    "activation",
    "continuation",
    "deletion",
    "join and leave",
)

LIMITS = """
most_trainings_per_day = 100000
most_alignments_per_day = 100000
most_equations_per_row = 100000000
delete_models = true
smallest_alignment = 1
"""
"""No policy ends so many sessions, and all parties delete what they are asked to."""

_TREES = 3
_PATIENCE = 240.0
"""Seconds after which a session that has not come to its end waits in vain."""
_IDS = [f"p{row}" for row in range(40)]
_ROUGH = (DaemonError, ConfigError, DataError, OSError)
"""What an owner reads while daemons come and go."""


class Work:
    """Round after round of all kinds of sessions, each compared with that of a calm round.

    Models of exact engines are equal, so one calm round serves for all of them.
    """

    def __init__(self, storm: Storm) -> None:
        self.done: Counter[str] = Counter()
        """Sessions that came to their end, by kind; all of them with the result of a calm one."""
        self.asked_again: Counter[str] = Counter()
        """By kind: how often a session was asked for again, for a daemon had gone down."""
        self.engines: Counter[str] = Counter()
        """Rounds by engine."""
        self.calm = threading.Lock()
        """Held where no fault may strike: a party leaves the federation or joins it."""
        self._storm = storm
        self._federation = storm.federation
        self._found: dict[str, Any] = {}
        self._rounds = 0

    def round(self, engine: EngineOfTraining) -> None:
        """One session of each kind; AssertionError if one ends otherwise than in calm weather."""
        name, options = engine
        first, more = f"round-{self._rounds}", f"round-{self._rounds}-more"
        shown = f"{name}, hidden sums" if options.get("sums") == "hidden" else name
        self._align(f"people-{self._rounds}")
        self._train("training", first, engine)
        self._cross_validate(f"folds-{self._rounds}", engine)
        self._same("evaluation", self._scores(first))
        self._activate(first)
        # A session that continues a model does so with any engine.
        self._train("continuation", more, engine, continue_from=first)
        self._delete(more)
        self._leave_and_join(f"round-{self._rounds}-two", engine)
        self.engines[shown] += 1
        self._rounds += 1

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

    def _train(self, kind: str, model: str, engine: EngineOfTraining, **job: Any) -> None:
        def trained() -> Any:
            if not self._complete(model):
                self._ask_to_train(model, engine, **job)
            shares = self._federation.shares(model)
            return {
                party: text.replace(f'"{model}"', '"MODEL"')
                for party, text in shares.items()
                if party in self._storm.present
            }

        self._same(kind, self._until(kind, trained))

    def _complete(self, model: str) -> bool:
        return self._federation.shares(model).keys() >= set(self._storm.present)

    def _ask_to_train(self, model: str, engine: EngineOfTraining, **job: Any) -> Any:
        name, options = engine
        weak = {"key_bits": 512, "allow_weak_keys": True} if name in ("paillier", "ou") else {}
        wanted = TrainingJob(
            model=model,
            engine=name,
            engine_options={**weak, **options},
            params=TrainParams(
                num_boost_round=_TREES, max_depth=2, max_bin=8, xgboost_arithmetic=OLDEST
            ),
            **job,
        )
        return self._federation.ask("bank", "train", job=wanted.model_dump(mode="json"))

    def _cross_validate(self, name: str, engine: EngineOfTraining) -> None:
        state = self._federation.bank.state

        def validated() -> Any:
            found = cross_validations(state).find(f"{name}-cv")
            if found is None:
                self._ask_to_train(name, engine, nfold=2)
                found = cross_validations(state).read(f"{name}-cv")
            return found.figures

        self._same("cross-validation", self._until("cross-validation", validated))

    def _scores(self, model: str) -> Any:
        def scored() -> Any:
            answer = self._federation.ask("bank", "predict", model=model, ids=_IDS)
            return answer["scores"]

        return self._until("evaluation", scored)

    def _activate(self, model: str) -> None:
        def active() -> Any:
            if Deployments.read(self._federation.bank.state).names_of(model):
                return True
            self._federation.ask("bank", "activate", model=model, name="production")
            return True

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
        file, kind = self._federation.file, "join and leave"
        whole = file.read_text()
        with self.calm:
            self._until(kind, lambda: self._federation.ask("retail", "status"))
            self._storm.present = ("bank", "telco")
            left = whole.replace('"telco", "retail"', '"telco"').splitlines()
            file.write_text("\n".join(line for line in left if not line.startswith("retail")))
            assert file.read_text() != whole
        try:
            self._reload(("bank", "telco"))
            self._train(kind, model, engine)
        finally:
            with self.calm:
                file.write_text(whole)
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
        self.done[kind] += 1


@dataclass
class Answers:
    """What callers of online scores got. Lateness counts where the bank's process was untouched."""

    right: int = 0
    degraded: int = 0
    refused: int = 0
    wrong: int = 0
    unanswered: int = 0
    """While the daemon was down or stopped, or at any time after which it was."""
    late: int = 0
    slowest: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def asked(self) -> int:
        """All requests."""
        return self.right + self.degraded + self.refused + self.wrong + self.unanswered


class Callers:
    """Ask the bank for scores of the name ``production``, one after the other, until stopped."""

    DEADLINE = 2.0
    GRACE = 0.1

    def __init__(self, storm: Storm) -> None:
        self.answers = Answers()
        self._storm = storm
        self._stopped = threading.Event()
        self._truth: Mapping[str, Any] = {}
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

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            self._ask()

    def _ask(self) -> None:
        answers, begun = self.answers, time.monotonic()
        healthy = self._storm.untouched["bank"] < begun
        try:
            found = self._storm.federation.ask("bank", "score", name="production", ids=_IDS[:5])
        except DaemonError as error:
            if not healthy or self._storm.untouched["bank"] > begun:
                answers.unanswered += 1
                return
            reason = str(error)
            answers.refused += 1
            answers.reasons[reason[:60]] += 1
        except OSError:
            answers.unanswered += 1
            return
        else:
            if found["scores"] == self._truth["scores"]:
                answers.right += 1
            elif found.get("degraded"):
                answers.degraded += 1
            else:
                answers.wrong += 1
        seconds = time.monotonic() - begun
        if healthy and self._storm.untouched["bank"] < begun:
            answers.slowest = max(answers.slowest, seconds)
            answers.late += seconds > self.DEADLINE + self.GRACE
