from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.errors import ConfigError, DataError, FedmqError
from fedmq.protocol.session import Mailbox
from fedmq.protocol.training.offers import ScoreCandidates
from tests.boosting.tables import scattered

WEAK = {"key_bits": 512, "allow_weak_keys": True}
NAMES = ["age", "income", "debt", "calls", "data"]
X, Y = scattered(400, 5, seed=2, missing=0.05)
PARAMS = fedmq.TrainParams(num_boost_round=3, max_depth=3, max_bin=16)


def columns(values: NDArray[np.float32], start: int, end: int) -> dict[str, NDArray[np.float32]]:
    return dict(zip(NAMES[start:end], values[:, start:end].T, strict=True))


def train(**changes: Any) -> fedmq.SimulatedModel:
    given = {
        "active": X[:, :2],
        "label": Y,
        "passive": {"telco": X[:, 2:]},
        "params": PARAMS,
        "engine": "plain",
    }
    return fedmq.simulate(**{**given, **changes})


def scores(model: fedmq.SimulatedModel, values: NDArray[np.float32], **more: Any) -> Any:
    return model.predict(active=values[:, :2], passive={"telco": values[:, 2:]}, **more)


def shares(model: fedmq.SimulatedModel) -> dict[str, str]:
    others = {party: share.dumps() for party, share in model.passive_shares.items()}
    return {"active": model.share.dumps(), **others}


# What goes in


@pytest.mark.parametrize(
    ("frame", "series"),
    [(pd.DataFrame, pd.Series), (pl.DataFrame, pl.Series), (pa.table, pa.array)],
    ids=["pandas", "polars", "arrow"],
)
def test_a_data_frame_gives_the_model_of_its_array(
    frame: Callable[..., Any], series: Callable[..., Any]
) -> None:
    active, telco = frame(columns(X, 0, 2)), frame(columns(X, 2, 5))
    model = train(active=active, label=series(Y), passive={"telco": telco})
    plain = train()
    for ours, theirs in zip(model.share.trees, plain.share.trees, strict=True):
        assert ours.model_dump_json() == theirs.model_dump_json()
    assert model.share.lookup_table.feature_names == ("age", "income")
    found = model.predict(active=active, passive={"telco": telco})
    np.testing.assert_array_equal(found, scores(plain, X))


def test_a_label_may_be_a_column() -> None:
    assert shares(train(label=Y[:, None])) == shares(train())


def test_parameters_have_xgboosts_defaults() -> None:
    model = train(params=None)
    assert model.share.params == fedmq.TrainParams(base_score=model.share.base_score)
    assert len(model.share.trees) == 10


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"label": Y[:-1]}, "active has 400 rows, there are 399 labels"),
        ({"passive": {"telco": X[:9]}}, "telco has 9 rows, there are 400 labels"),
        ({"label": np.where(Y == 1, 2, 0)}, "active: label in row . is 2; binary:logistic takes"),
        ({"label": Y.astype(str)}, "active: the label holds <U32, numbers are needed"),
        ({"label": Y.reshape(4, 10, 10)}, r"active: the label has shape \(4, 10, 10\), one value"),
        ({"active": X[:, 0]}, "active: a table has rows and columns"),
        ({"passive": {"telco": np.full((400, 1), np.inf)}}, "telco: column 'f0', row 1 is inf"),
        ({"active": X[:0, :2], "label": Y[:0], "passive": {}}, "active: there are no rows"),
        ({"evaluation": np.ones(400, bool)}, "evaluation: no rows are left to learn from"),
        ({"evaluation": (X, Y)}, "evaluation: a bool mask of 400 rows, or numbers of rows"),
        ({"active": [[1, 2], [3]]}, "active: rows of several lengths are no table"),
        ({"active": np.full((400, 1), 10**400, object)}, "active: the array, row 1 holds 1000"),
        ({"label": [[1], [0, 1]]}, "active: the label is no array"),
        ({"evaluation": [400]}, "evaluation: a bool mask of 400 rows, or numbers of rows"),
    ],
)
def test_a_wrong_table_is_one_line_that_names_the_party(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(DataError, match=f"^{line}") as caught:
        train(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"passive": [X]}, "passive: a dict of tables by the parties' names is needed"),
        ({"passive": {1: X}}, "passive: 1 is no name of a party; names are text"),
        ({"params": {"max_dept": 3}}, "params: max_dept: no such parameter; did you mean"),
        ({"engine": "magic"}, "simulate: engine: 'magic' is unknown; use plain, paillier, ou"),
        ({"engine_options": {"bits": 1}}, "simulate: engine_options: engine 'plain' has no 'bits'"),
        ({"broker": "kafka://"}, "broker: 'kafka://' is unknown; use memory:// or an amqp://"),
        ({"passive": {"active": X}}, "passive: 'active' is the name of the active party here"),
        ({"passive": {"Telco AG": X}}, "party 'Telco AG': "),
        (
            {"engine": "paillier", "engine_options": {"key_bits": 512}},
            "simulate: engine_options: key_bits = 512: below 2048",
        ),
    ],
)
def test_a_wrong_setting_is_one_line(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{line}") as caught:
        train(**changes)
    assert "\n" not in str(caught.value)


# Where it runs


async def test_it_runs_while_an_event_loop_runs() -> None:
    assert shares(train(engine="paillier", engine_options=WEAK)) == shares(train())


def test_it_runs_in_a_script_without_a_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        dedent("""
            import numpy as np
            import fedmq

            print("once")
            X = np.random.default_rng(0).normal(size=(300, 4))
            model = fedmq.simulate(
                active=X[:, :2], label=X.sum(axis=1) > 0, passive={"telco": X[:, 2:]},
                params=fedmq.TrainParams(num_boost_round=1, max_depth=2, max_bin=8),
                engine_options={"key_bits": 512, "allow_weak_keys": True}, workers=1,
            )
            print(len(model.share.trees))
        """)
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        check=False, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "once\n1\n", "")


def test_progress_comes_after_each_tree() -> None:
    reports: list[Any] = []
    model = train(on_report=reports.append)
    assert [(report.done, report.total, report.unit) for report in reports] == [
        (1, 3, "tree"),
        (2, 3, "tree"),
        (3, 3, "tree"),
    ]
    losses = [report.details["train-logloss"] for report in reports]
    assert losses == model.evals_result["train"]["logloss"]


@pytest.mark.usefixtures("own_processes")
def test_nothing_is_left_running() -> None:
    before = threading.active_count()
    for _ in range(2):
        train(engine="paillier", engine_options=WEAK, workers=1)
    assert threading.active_count() <= before + 1


# What comes out


def test_predictions_are_those_of_the_exported_booster() -> None:
    xgboost = pytest.importorskip("xgboost")
    model = train()
    booster = model.to_xgboost()
    assert booster.feature_names == [f"active.f{i}" for i in (0, 1)] + [
        f"telco.f{i}" for i in (0, 1, 2)
    ]
    fresh = scattered(300, 5, seed=9, missing=0.2).X
    matrix = xgboost.DMatrix(fresh, feature_names=booster.feature_names)
    np.testing.assert_array_equal(scores(model, fresh), booster.predict(matrix))
    np.testing.assert_array_equal(
        scores(model, fresh, output_margin=True), booster.predict(matrix, output_margin=True)
    )


def test_predictions_are_probabilities_and_margins_are_not() -> None:
    model = train()
    probabilities, margins = scores(model, X), scores(model, X, output_margin=True)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-margins)), rtol=1e-5)
    assert probabilities.dtype == margins.dtype == np.float32


def test_no_rows_have_no_scores() -> None:
    assert scores(train(), X[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"active": X[:, :2], "passive": {}}, "passive: the columns of telco are missing"),
        ({"active": X[:, :2], "passive": {"telco": X[:9, 2:]}}, "telco has 9 rows, active has 400"),
        ({"active": X[:, :3], "passive": {"telco": X[:, 2:]}}, "active: the columns are not those"),
    ],
)
def test_rows_to_score_that_do_not_fit_are_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(DataError, match=f"^{line}"):
        train().predict(**given)


def test_traffic_is_counted_by_parties_and_kind() -> None:
    model = train()
    assert set(model.traffic) == {("active", "telco"), ("telco", "active")}
    assert model.traffic["active", "telco"]["training open"].messages == 1
    assert model.traffic["active", "telco"]["tree finished"].messages == 3
    kinds = [volume for pair in model.traffic.values() for volume in pair.values()]
    assert sum(volume.bytes for volume in kinds) == model.bytes_sent
    assert all(volume.bytes > volume.messages > 0 for volume in kinds)


def test_decoys_change_what_is_sent_and_not_the_model() -> None:
    parties = {"telco": X[:, 2:4], "shop": X[:, 4:]}
    usual, hidden = (train(passive=parties, decoys=decoys) for decoys in (False, True))
    assert shares(hidden) == shares(usual)
    decided = [
        [model.traffic["active", party]["split decision"].messages for party in parties]
        for model in (usual, hidden)
    ]
    assert decided[0][0] != decided[0][1]
    assert decided[1][0] == decided[1][1] > max(decided[0])
    with pytest.raises(
        ConfigError, match="decoys: engine 'lattice' asks for directions by extra questions"
    ):
        train(engine="lattice", decoys=True)


# Evaluation, sampling, and trees of the active party alone


def reference(mask: NDArray[np.bool_], params: fedmq.TrainParams) -> tuple[Any, dict[str, Any]]:
    """XGBoost on the bin indices, with the evaluation rows as its ``eval`` set."""
    xgboost = pytest.importorskip("xgboost")
    bins = BinMatrix.of(X, Cuts.of(X[~mask], params.max_bin))
    codes = np.where(bins.is_missing, np.nan, bins.codes.astype(np.float32))
    train_set, eval_set = (xgboost.DMatrix(codes[rows], label=Y[rows]) for rows in (~mask, mask))
    result: dict[str, Any] = {}
    booster = xgboost.train(
        params.to_xgboost() | {"max_bin": int(bins.cuts.n_bins.max()) + 1, "nthread": 1},
        train_set,
        params.num_boost_round,
        evals=[(train_set, "train"), (eval_set, "eval")],
        early_stopping_rounds=params.early_stopping_rounds,
        evals_result=result,
        verbose_eval=False,
    )
    return booster, result


def test_parameters_may_be_a_dict_and_masked_cells_are_missing() -> None:
    given = {"n_estimators": 3, "max_depth": 3, "max_bin": 16}
    masked = np.ma.masked_invalid(X[:, :2])
    assert shares(train(params=given, active=masked)) == shares(train())


def test_a_callback_that_fails_ends_the_training() -> None:
    def fail(_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(FedmqError, match="internal error: ZeroDivisionError"):
        train(on_report=fail)


@pytest.mark.parametrize("metrics", [("logloss",), ("logloss", "auc"), ("auc", "rmse")])
def test_the_evaluation_is_xgboosts(metrics: tuple[str, ...]) -> None:
    mask = np.arange(400) % 3 == 0
    params = PARAMS.model_copy(update={"num_boost_round": 8, "eval_metric": metrics})
    model = train(params=params, evaluation=mask)
    _, expected = reference(mask, params)
    assert model.best_iteration is None
    assert model.evals_result.keys() == expected.keys() == {"train", "eval"}
    for rows, found in model.evals_result.items():
        assert found.keys() == expected[rows].keys() == set(metrics)
        for metric, values in found.items():
            np.testing.assert_allclose(values, expected[rows][metric], atol=1e-5)


@pytest.mark.parametrize("metric", ["logloss", "auc"])
def test_early_stopping_stops_where_xgboost_stops(metric: str) -> None:
    mask = np.arange(400) % 3 == 0
    params = fedmq.TrainParams(
        num_boost_round=60, max_depth=5, max_bin=16, eta=0.5,
        eval_metric=metric, early_stopping_rounds=4,
    )  # fmt: skip
    model = train(params=params, evaluation=mask)
    booster, expected = reference(mask, params)
    assert 0 < len(model.share.trees) < 60
    assert model.best_iteration == booster.best_iteration
    assert len(model.evals_result["eval"][metric]) == len(expected["eval"][metric])
    assert len(model.joined_trees()) == booster.best_iteration + 1


def test_evaluation_rows_may_be_numbers() -> None:
    mask = np.arange(400) % 3 == 0
    assert shares(train(evaluation=np.flatnonzero(mask))) == shares(train(evaluation=mask))


def test_evaluation_rows_are_not_learned_from() -> None:
    mask = np.arange(400) % 3 == 0
    one, other = (train(evaluation=mask, label=np.where(mask, label, Y)) for label in (0, 1))
    for ours, theirs in zip(one.share.trees, other.share.trees, strict=True):
        assert ours.model_dump_json() == theirs.model_dump_json()


@pytest.mark.parametrize("sampled", [{"subsample": 0.6}, {"colsample_bytree": 0.4}])
def test_samples_depend_on_the_seed_alone(sampled: dict[str, float]) -> None:
    def model(seed: int) -> list[str]:
        params = PARAMS.model_copy(update={**sampled, "seed": seed})
        return [tree.model_dump_json() for tree in train(params=params).share.trees]

    assert model(1) == model(1)
    assert model(1) != model(2)


def test_the_first_trees_may_be_the_active_partys_alone() -> None:
    model = train(params=PARAMS.model_copy(update={"active_only_trees": 1}))
    owners = [set(tree.owner.tolist()) for tree in model.share.trees]
    assert owners[0] == {-1, 0}
    assert 1 in owners[1] | owners[2]


def test_an_active_party_may_hold_the_label_alone() -> None:
    model = train(active=np.empty((400, 0)), passive={"telco": X})
    assert {0} not in [set(tree.owner.tolist()) for tree in model.share.trees]
    together = train()
    np.testing.assert_array_equal(
        model.predict(active=np.empty((400, 0)), passive={"telco": X}), scores(together, X)
    )


def test_what_fails_on_the_way_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Any:
        raise FedmqError("the disk is on fire")

    monkeypatch.setattr(ScoreCandidates, "run", fail)
    with pytest.raises(FedmqError, match=r"^the disk is on fire$"):
        train()


def test_a_fault_of_the_machines_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(Mailbox, "send", fail)
    with pytest.raises(FedmqError, match=r"^internal error: ZeroDivisionError$"):
        train()
