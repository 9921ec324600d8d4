from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.params import ALIASES, DEEPEST, TrainParams
from fedmq.errors import ConfigError
from fedmq.messages.training import MOST_DEPTH
from tests.boosting.installed import installed_objectives


def test_the_defaults_are_those_of_xgboost() -> None:
    params = TrainParams()
    assert (params.eta, params.max_depth, params.reg_lambda, params.max_bin) == (0.3, 6, 1.0, 256)
    assert params.eval_metric == ("logloss",)
    assert TrainParams(objective="reg:squarederror").eval_metric == ("rmse",)


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_stands_for_its_name(alias: str) -> None:
    value = 3 if alias in ("n_estimators", "random_state") else 0.25
    assert getattr(TrainParams(**{alias: value}), ALIASES[alias]) == value


def test_an_alias_beside_its_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^lambda and reg_lambda are the same parameter"):
        TrainParams(**{"lambda": 1.0, "reg_lambda": 1.0})


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"max_dept": 3}, "max_dept: no such parameter; did you mean max_depth?"),
        ({"max_depth": 17}, "max_depth = 17: input should be less than or equal to 16"),
        ({"max_depth": 0}, "max_depth = 0: without a limit on depth max_leaves is needed, 53"),
        ({"max_depth": 0, "max_leaves": 54}, "max_depth = 0: without a limit on depth"),
        ({"grow_policy": "leafwise"}, "grow_policy = 'leafwise': input should be 'depthwise'"),
        ({"reg_alpha": -1}, "reg_alpha = -1: input should be greater than or equal to 0"),
        ({"monotone_constraints": {"f0": 2}}, "monotone_constraints = "),
        ({"max_depth": True}, "max_depth = True: input should be a valid integer"),
        ({"eta": "0.3"}, "eta = '0.3': input should be a valid number"),
        ({"eta": float("nan")}, "eta = nan: input should be"),
        ({"reg_lambda": 1e39}, "reg_lambda = 1e+39: input should be less than or equal to 34028"),
        (
            {"objective": "reg:squarederror", "base_score": -1e39},
            "base_score = -1e+39: input should be greater than or equal to -34028",
        ),
        ({"subsample": 0}, "subsample = 0: input should be greater than 0"),
        ({"base_score": 1}, "base_score = 1.0: a probability strictly between 0 and 1"),
        ({"eval_metric": ["rmse", "map"]}, "eval_metric = 'map'"),
        (
            {"objective": "reg:squarederror", "eval_metric": "auc"},
            "eval_metric = 'auc' does not fit",
        ),
        ({"objective": "reg:linear"}, "objective = 'reg:linear'"),
        ({"updater": "shotgun"}, "updater: XGBoost has this parameter, fedmq does not yet"),
        (
            {"tree_method": "exact"},
            "tree_method = 'exact': fedmq grows the trees of tree_method = 'hist'; leave it out",
        ),
        ({"device": "cuda"}, "device = 'cuda': fedmq computes on processors alone; leave it out"),
        ({"sampling_method": "gradient_based"}, "sampling_method = 'gradient_based': of several"),
        ({"objective": "reg:quantileerror"}, "quantile_alpha is missing: which quantile"),
        ({"objective": "reg:gamma", "base_score": 0.0}, "base_score = 0.0: reg:gamma predicts"),
        ({"eval_metric": "error@2"}, "eval_metric = 'error@2': write error@0.5, say"),
        (
            {"objective": "reg:tweedie", "eval_metric": "tweedie-nloglik"},
            "eval_metric = 'tweedie-nloglik': write tweedie-nloglik@1.5, say",
        ),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_key(values: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TrainParams(**values)
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


def test_what_changes_no_model_is_accepted_and_forgotten() -> None:
    usual = {"nthread": 4, "n_jobs": 2, "verbosity": 0, "validate_parameters": True}
    usual |= {"tree_method": "hist", "device": "cpu", "sampling_method": "uniform"}
    usual |= {"enable_categorical": True}
    assert TrainParams(max_depth=3, **usual) == TrainParams(max_depth=3)


def test_a_tree_is_no_deeper_than_messages_can_say() -> None:
    assert DEEPEST == MOST_DEPTH
    deepest = TrainParams(max_depth=0, max_leaves=DEEPEST + 1, grow_policy="lossguide")
    assert (deepest.depth_limit, deepest.leaf_limit) == (MOST_DEPTH, 53)
    assert (TrainParams().depth_limit, TrainParams().leaf_limit) == (6, 0)
    assert TrainParams(grow_policy="lossguide").leaf_limit == 64


def test_parsing_names_the_place() -> None:
    with pytest.raises(ConfigError, match=r"^job\.toml: gamma = -1: "):
        TrainParams.parse({"gamma": -1}, "job.toml")


def test_numbers_of_numpy_are_numbers() -> None:
    assert TrainParams(max_depth=np.int64(3), eta=np.float32(0.5)).max_depth == 3


def test_json_returns_the_same_parameters() -> None:
    params = TrainParams(eta=0.1, eval_metric=("auc", "logloss"), early_stopping_rounds=5)
    assert TrainParams.model_validate_json(params.model_dump_json()) == params


def test_a_frozen_model_stays_as_it_is() -> None:
    with pytest.raises(ValueError, match="frozen"):
        TrainParams().eta = 0.5


def test_xgboost_understands_all_of_its_parameters(capfd: pytest.CaptureFixture[str]) -> None:
    xgb = pytest.importorskip("xgboost")
    xgb.train(TrainParams().to_xgboost(), xgb.DMatrix(np.zeros((2, 1)), label=[0, 1]), 1)
    printed = capfd.readouterr()
    assert "not used" not in printed.out + printed.err


def test_poisson_regression_bounds_its_steps_as_xgboost_does() -> None:
    assert TrainParams(objective="count:poisson").max_delta_step == 0.7
    assert TrainParams(objective="count:poisson", max_delta_step=0.0).max_delta_step == 0
    assert TrainParams().max_delta_step == 0


@pytest.mark.parametrize("objective", installed_objectives())
def test_xgboost_has_the_same_default_metric(objective: str) -> None:
    xgb = pytest.importorskip("xgboost")
    own = {"num_class": 3} if objective.startswith("multi:") else {}
    own |= {"quantile_alpha": 0.5} if objective == "reg:quantileerror" else {}
    own |= {"expectile_alpha": 0.5} if objective == "reg:expectileerror" else {}
    params = TrainParams(objective=objective, **own)
    labels = np.array([0.5, 1] if objective == "reg:gamma" else [1, 0], np.float32)
    data = xgb.DMatrix(np.zeros((2, 1)), label=labels)
    if objective == "survival:aft":
        data = xgb.DMatrix(np.zeros((2, 1)), label_lower_bound=[1, 2], label_upper_bound=[1, 2])
    history: dict[str, dict[str, list[float]]] = {}
    settings = {key: value for key, value in params.to_xgboost().items() if key != "eval_metric"}
    xgb.train(settings, data, 1, evals=[(data, "t")], evals_result=history, verbose_eval=False)
    assert list(history["t"]) == list(params.eval_metric)
