"""When does a training end early?"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["EarlyStopping"]


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
