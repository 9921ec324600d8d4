"""Callers' code between rounds, as ``xgboost.train`` calls it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_digits

import fedmq
from fedmq.boosting.callbacks import CallbackModel
from fedmq.errors import ConfigError
from tests.boosting.tables import scattered

X, Y = scattered(400, 5, seed=2, missing=0.05)
HELD_OUT = np.arange(400) % 4 == 0
SETTINGS = {"num_boost_round": 30, "max_depth": 3, "max_bin": 16, "eta": 1.0}


def train(callbacks: list[Any], **changes: Any) -> fedmq.SimulatedModel:
    settings = {**SETTINGS, **changes.pop("params", {})}
    given = {"active": X[:, :2], "label": Y, "passive": {"telco": X[:, 2:]}, "engine": "plain"}
    return fedmq.simulate(
        **{**given, "evaluation": HELD_OUT, **changes}, params=settings, callbacks=callbacks
    )


class Written(fedmq.TrainingCallback):
    """Keeps what it is called with, and ends before or after a round."""

    def __init__(self, before: int | None = None, after: int | None = None) -> None:
        self.before, self.after = before, after
        self.calls: list[Any] = []

    def before_training(self, model: Any) -> Any:
        self.calls.append("begins")
        return model

    def after_training(self, model: Any) -> Any:
        self.calls.append("ended")
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self.calls.append(("before", epoch, model.num_boosted_rounds(), rounds_of(evals_log)))
        return epoch == self.before

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self.calls.append(("after", epoch, model.num_boosted_rounds(), rounds_of(evals_log)))
        return epoch == self.after


def rounds_of(log: Any) -> int:
    """How many rounds the last metric of the last set has values for."""
    return len(list(list(log.values())[-1].values())[-1]) if log else 0


def test_they_are_called_around_every_round() -> None:
    written = Written()
    train([written], params={"num_boost_round": 2})
    assert written.calls == [
        "begins",
        ("before", 0, 0, 0),
        ("after", 0, 1, 1),
        ("before", 1, 1, 1),
        ("after", 1, 2, 2),
        "ended",
    ]


class OfXGBoost(Written, xgboost.callback.TrainingCallback):
    """The same for ``xgboost.train``, whose log holds no training rows."""


@pytest.mark.parametrize(
    ("before", "after"), [(0, None), (3, None), (None, 0), (None, 2), (2, 2), (None, None)], ids=str
)
def test_xgboost_calls_them_in_the_same_order_and_ends_in_the_same_round(
    before: int | None, after: int | None
) -> None:
    ours, theirs = Written(before, after), OfXGBoost(before, after)
    model = train([ours], params={"num_boost_round": 4})
    matrices = [xgboost.DMatrix(X[rows], label=Y[rows]) for rows in (~HELD_OUT, HELD_OUT)]
    reference = xgboost.train(
        {"objective": "binary:logistic", "nthread": 1}, matrices[0], 4,
        evals=[(matrices[1], "eval")], callbacks=[theirs], verbose_eval=False,
    )  # fmt: skip
    assert ours.calls == theirs.calls
    assert len(model.share.trees) == reference.num_boosted_rounds()


def test_a_later_callback_is_not_asked_when_an_earlier_one_ends_the_training() -> None:
    first, second = Written(after=0), Written()
    train([first, second])
    assert ("after", 0, 1, 1) not in second.calls
    assert second.calls[-1] == "ended"


def test_rounds_of_several_classes_are_one_round() -> None:
    digits, classes = load_digits(n_class=3, return_X_y=True)
    written = Written(after=1)
    model = train(
        [written],
        active=digits[:, :32],
        label=classes,
        passive={"telco": digits[:, 32:]},
        evaluation=None,
        params={"objective": "multi:softprob", "num_class": 3},
    )
    assert len(model.share.trees) == 6
    assert [call[:3] for call in written.calls[1:-1]] == [
        ("before", 0, 0), ("after", 0, 1), ("before", 1, 1), ("after", 1, 2)
    ]  # fmt: skip


@pytest.mark.parametrize("metric", ["logloss", "auc"])
def test_early_stopping_of_xgboost_ends_where_ours_does(metric: str) -> None:
    stopped = train([xgboost.callback.EarlyStopping(rounds=3)], params={"eval_metric": metric})
    own = train([], params={"eval_metric": metric, "early_stopping_rounds": 3})
    assert stopped.best_iteration == own.best_iteration is not None
    assert len(stopped.share.trees) == len(own.share.trees) < 30
    given = {"active": X[:, :2], "passive": {"telco": X[:, 2:]}}
    np.testing.assert_array_equal(stopped.predict(**given), own.predict(**given))


class Pruned(Exception):
    """What a search raises to give up a training."""


class Pruning(fedmq.TrainingCallback):
    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == 1:
            raise Pruned("no better than others")
        return False


def test_what_a_callback_raises_ends_the_training_and_reaches_its_caller() -> None:
    with pytest.raises(Pruned, match="no better"):
        train([Pruning()])


def test_a_training_of_encrypted_gradients_can_be_ended() -> None:
    options = {"key_bits": 512, "allow_weak_keys": True}
    model = train([Written(after=0)], engine="paillier", engine_options=options, workers=1)
    assert len(model.share.trees) == 1
    assert model.departures == ()


def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^callbacks: .* has no method before_training$"):
        train([print])


class Forgetful(fedmq.TrainingCallback):
    def before_training(self, model: Any) -> Any:
        return None


def test_a_callback_that_returns_no_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="before_training returns the model that it was given"):
        train([Forgetful()])


def test_parameters_cannot_be_changed_between_rounds() -> None:
    scheduler = xgboost.callback.LearningRateScheduler(lambda epoch: 0.1)
    with pytest.raises(ConfigError, match="parameters of a training do not change"):
        train([scheduler])


def test_attributes_are_text_and_can_be_removed() -> None:
    model = CallbackModel()
    model.set_attr(best_iteration=4, seen="yes")
    model.set_attr(seen=None)
    assert model.attributes() == {"best_iteration": "4"}
    assert (model.attr("seen"), model.best_iteration) == (None, 4)
