"""What happens between the rounds of a training? Early stopping, and a caller's own code.

Callers' code follows the protocol of XGBoost's callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from fedmq.errors import ConfigError

__all__ = [
    "CallbackModel",
    "Callbacks",
    "EarlyStopping",
    "EvalsLog",
    "TrainingCallback",
    "evals_log",
]


class EarlyStopping(BaseModel):
    """Ends a training after ``rounds`` rounds without a better score, as XGBoost does."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    rounds: int
    maximize: bool
    best_score: float | None = None
    best_iteration: int = 0
    rounds_without_gain: int = 0

    def after(self, iteration: int, score: float) -> EarlyStopping:
        """The state after round ``iteration`` (from 0) scored ``score``."""
        best = self.best_score
        if best is None or (score > best if self.maximize else score < best):
            gain = {"best_score": score, "best_iteration": iteration, "rounds_without_gain": 0}
        else:
            gain = {"rounds_without_gain": self.rounds_without_gain + 1}
        return self.model_copy(update=gain)

    @property
    def is_due(self) -> bool:
        """Whether training ends now."""
        return self.rounds_without_gain >= self.rounds


class EvalsLog(dict[str, dict[str, list[float]]]):
    """Each metric after each round, by set of rows and name: ``["eval"]["logloss"]``.

    A model's ``evals_result`` is a property, and XGBoost's a method: called, it returns itself.
    """

    def __call__(self) -> EvalsLog:
        return self


_METHODS = ("before_training", "after_training", "before_iteration", "after_iteration")


def evals_log(history: Mapping[str, Sequence[float]]) -> EvalsLog:
    """``history`` by set of rows and metric; its keys are as XGBoost prints them, eval-logloss."""
    log = EvalsLog()
    for name, values in history.items():
        rows, _, metric = name.partition("-")
        log.setdefault(rows, {})[metric] = list(values)
    return log


class CallbackModel:
    """A growing model for callbacks: the part of a ``Booster`` that they need.

    The finished model takes over the attribute ``best_iteration``, and predicts with trees up to
    it.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self._attributes: dict[str, str] = {}

    def num_boosted_rounds(self) -> int:
        """How many rounds there are so far."""
        return self.rounds

    def attr(self, key: str) -> str | None:
        """The attribute ``key``, or None."""
        return self._attributes.get(key)

    def attributes(self) -> dict[str, str]:
        """All attributes."""
        return dict(self._attributes)

    def set_attr(self, **kwargs: object) -> None:
        """Set attributes, as text; None removes one."""
        for key, value in kwargs.items():
            if value is None:
                self._attributes.pop(key, None)
            else:
                self._attributes[key] = str(value)

    def set_param(self, params: object, value: object = None) -> None:
        """Refuse: all parties have agreed to the parameters.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("callbacks: the parameters of a training do not change while it runs")

    @property
    def best_iteration(self) -> int | None:
        """The last round that predictions use, from 0; None while no callback has set it."""
        best = self.attr("best_iteration")
        return None if best is None else int(best)


class TrainingCallback:
    """Base of callbacks; a subclass of ``xgboost.callback.TrainingCallback`` works as well.

    ``evals_log`` has each metric by set of rows, ``["eval"]["logloss"]``, a value for each round.
    """

    def before_training(self, model: Any) -> Any:
        """Called once before the first round; returns ``model``."""
        return model

    def after_training(self, model: Any) -> Any:
        """Called once after the last round; returns ``model``."""
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """Called before round ``epoch``, from 0; True ends the training without it."""
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """Called after round ``epoch``, from 0; True ends the training."""
        return False


class Callbacks:
    """The callbacks of one training, called in their order as ``xgboost.train`` calls them.

    An exception within a round ends the training as if the callback had returned True, so the other
    parties end in good order. ``failure`` keeps the exception for the caller.

    Raises:
        ConfigError: a callback lacks a method of the protocol.
    """

    def __init__(self, callbacks: Sequence[Any] = ()) -> None:
        for callback in callbacks:
            for method in _METHODS:
                if not callable(getattr(callback, method, None)):
                    raise ConfigError(f"callbacks: {callback!r} has no method {method}")
        self._callbacks = tuple(callbacks)
        self.model = CallbackModel()
        self.failure: Exception | None = None

    def before_training(self) -> None:
        """Call each callback's ``before_training``."""
        for callback in self._callbacks:
            self._check_returned(callback.before_training(self.model), "before_training")

    def after_training(self) -> None:
        """Call each callback's ``after_training``; raise the exception of a round, if any."""
        if self.failure is not None:
            raise self.failure
        for callback in self._callbacks:
            self._check_returned(callback.after_training(self.model), "after_training")

    def before_round(self, epoch: int, history: Mapping[str, Sequence[float]]) -> bool:
        """Whether the training ends before round ``epoch``, from 0."""
        return self._called(lambda callback: callback.before_iteration, epoch, history)

    def after_round(self, epoch: int, history: Mapping[str, Sequence[float]]) -> bool:
        """Whether the training ends after round ``epoch``, from 0."""
        self.model.rounds = epoch + 1
        return self._called(lambda callback: callback.after_iteration, epoch, history)

    def _called(
        self,
        method: Callable[[Any], Callable[..., Any]],
        epoch: int,
        history: Mapping[str, Sequence[float]],
    ) -> bool:
        if not self._callbacks:
            return False
        log = evals_log(history)
        try:
            return any(method(callback)(self.model, epoch, log) for callback in self._callbacks)
        except Exception as error:  # of the caller's code; raised again after the training
            self.failure = error
            return True

    def _check_returned(self, returned: object, method: str) -> None:
        if returned is not self.model:
            raise ConfigError(f"callbacks: {method} returns the model that it was given")
