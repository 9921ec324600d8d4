"""Every objective and metric of the installed XGBoost is here, or refused by name."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
from packaging.version import Version

from fedmq.boosting.objectives.registry import OBJECTIVES, REFUSED, REFUSED_METRICS
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError
from tests.boosting.installed import installed_objectives

xgboost = pytest.importorskip("xgboost")
ROWS = xgboost.DMatrix(np.zeros((2, 1)), label=[0, 1])


NEWEST = os.environ.get("FEDMQ_NEWEST_XGBOOST", "")
"""The release that .ci/test-matrix asks for beside the newest versions of everything."""


def registered() -> set[str]:
    """The objectives of the installed XGBoost, which names them where one is unknown."""
    with pytest.raises(xgboost.core.XGBoostError) as unknown:
        xgboost.train({"objective": "no:such"}, ROWS, 1)
    return set(re.findall(r"Objective candidate: (\S+)", str(unknown.value)))


def test_every_objective_of_the_installed_xgboost_is_here_or_refused_with_a_reason() -> None:
    assert "binary:logistic" in registered()
    assert registered() <= OBJECTIVES.keys() | REFUSED.keys()
    assert not OBJECTIVES.keys() & REFUSED.keys()


def test_the_installed_xgboost_lacks_those_objectives_alone_that_say_so() -> None:
    assert OBJECTIVES.keys() - registered() == OBJECTIVES.keys() - set(installed_objectives())


@pytest.mark.skipif(not NEWEST, reason="make test-matrix asks for it, with the newest versions")
def test_beside_the_newest_xgboost_no_objective_is_left_uncompared() -> None:
    assert Version(xgboost.__version__) >= Version(NEWEST)
    assert set(installed_objectives()) == OBJECTIVES.keys()
    assert registered() <= OBJECTIVES.keys() | REFUSED.keys()


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
