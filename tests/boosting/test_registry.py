"""Every objective and metric of the installed XGBoost is here, or refused by name."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedmq.boosting.objectives.registry import OBJECTIVES, REFUSED, REFUSED_METRICS
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError

xgboost = pytest.importorskip("xgboost")
ROWS = xgboost.DMatrix(np.zeros((2, 1)), label=[0, 1])


def test_every_objective_of_the_installed_xgboost_is_here_or_refused_with_a_reason() -> None:
    with pytest.raises(xgboost.core.XGBoostError) as unknown:
        xgboost.train({"objective": "no:such"}, ROWS, 1)
    registered = set(re.findall(r"Objective candidate: (\S+)", str(unknown.value)))
    assert "binary:logistic" in registered
    assert registered <= OBJECTIVES.keys() | REFUSED.keys()
    assert not OBJECTIVES.keys() & REFUSED.keys()


# XGBoost names no metric where one is unknown, and keeps short names in its code.
METRICS = """rmse rmsle mae mape mphe logloss error error@0.7 merror mlogloss auc aucpr pre pre@2
    ndcg ndcg@3- map map@3 poisson-nloglik gamma-nloglik cox-nloglik gamma-deviance
    tweedie-nloglik@1.5 aft-nloglik interval-regression-accuracy quantile ams@0.15"""


@pytest.mark.parametrize("metric", METRICS.split())
def test_every_metric_of_xgboosts_documentation_is_here_or_refused_with_a_reason(
    metric: str,
) -> None:
    known = set().union(*(objective.metrics for objective in OBJECTIVES.values()))
    assert metric.partition("@")[0] in known | REFUSED_METRICS.keys()


def test_a_refused_name_says_why() -> None:
    with pytest.raises(ConfigError, match=r"objective = 'reg:linear': it is called reg:squarederr"):
        TrainParams(objective="reg:linear")
    with pytest.raises(ConfigError, match=r"eval_metric = 'ams@0.15': it was made for one compet"):
        TrainParams(eval_metric="ams@0.15")
