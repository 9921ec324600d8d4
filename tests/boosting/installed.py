"""Which objectives the installed XGBoost has."""

from __future__ import annotations

from fedmq.boosting.objectives.registry import OBJECTIVES
from fedmq.boosting.xgboost_comparison.export import check_objective
from fedmq.errors import ConfigError

__all__ = ["installed_objectives"]


def installed_objectives() -> list[str]:
    """The names of fedmq's objectives that can be compared here."""

    def is_there(objective: str) -> bool:
        try:
            check_objective(objective)
        except ConfigError:
            return False
        return True

    return [objective for objective in OBJECTIVES if is_there(objective)]
