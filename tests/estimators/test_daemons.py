"""Estimators of scikit-learn train and score by the daemons of a federation."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import fedmq
from fedmq.errors import ConfigError, DataError
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

SMALL = {"n_estimators": 3, "max_depth": 2, "max_bin": 8, "eval_metric": ["auc", "logloss"]}
IDS = [f"p{row:02}" for row in range(40)]


async def beside(federation: DaemonsInMemory, work: Callable[[Any, dict[str, Any]], Any]) -> Any:
    """What ``work`` returns in a thread of its own, given the bank's file and the tables."""
    folder = federation.folder
    tables = {name: pd.read_csv(folder / name / "data.csv", index_col="id") for name in PARTIES}
    return await asyncio.to_thread(work, folder / "bank" / "party.toml", tables)


async def test_daemons_train_what_a_simulation_trains(
    federation: DaemonsInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    def program(bank: Any, tables: dict[str, Any]) -> None:
        label = tables["bank"].pop("label")
        fedmq.connect(bank).align("people")
        job = {"alignment": "people", "model": "credit", "evaluation": 0.3}
        wanted = fedmq.FederatedClassifier(federation=bank, job=job, engine="plain", **SMALL)
        fitted = clone(wanted).fit(IDS, label, verbose=True)
        assert fitted.model_.name == "credit"
        assert fitted.classes_.tolist() == [0, 1]
        rounds = fitted.evals_result()["eval"]["auc"]
        assert fitted.best_iteration is None
        assert capsys.readouterr().out.splitlines()[2].startswith(f"[2]\teval-auc:{rounds[2]:.5f}")
        scores = fitted.predict_proba([*IDS, "nobody"])
        assert np.isnan(scores[-1]).all()
        column = tables["bank"].reset_index()[["id"]]
        assert fitted.predict(column).tolist() == scores[:-1].argmax(axis=1).tolist()
        assert fitted.score(IDS, label) == (fitted.predict(IDS) == label.to_numpy()).mean()
        again = pickle.loads(pickle.dumps(fitted))  # noqa: S301  (it was written a line above)
        assert again.predict_proba(IDS).tolist() == scores[:-1].tolist()

        whole = clone(wanted).set_params(job={"alignment": "people", "model": "whole"}).fit()
        tables["active"] = tables.pop("bank")
        simulated = fedmq.FederatedClassifier(**SMALL).fit(tables, label)
        np.testing.assert_array_equal(
            whole.predict_proba(IDS).astype(np.float32), simulated.predict_proba(tables)
        )

    await beside(federation, program)


async def test_words_are_classes_and_numbers_are_values(federation: DaemonsInMemory) -> None:
    def program(bank: Any, tables: dict[str, Any]) -> None:
        words = tables["bank"]["label"].map({0: "good", 1: "bad"})
        given = {"federation": bank, "engine": "plain", **SMALL, "eval_metric": "logloss"}
        fitted = fedmq.FederatedClassifier(**given).fit(IDS, words)
        assert fitted.classes_.tolist() == ["good", "bad"]
        assert set(fitted.predict(IDS)) == {"good", "bad"}
        assert fitted.score(IDS, words) == (fitted.predict(IDS) == words.to_numpy()).mean()
        other = fedmq.FederatedRegressor(**{**given, "eval_metric": "rmse"}).fit()
        assert other.model_.shown()["params"]["objective"] == "reg:squarederror"
        assert other.predict(IDS).shape == (40,)

    path = federation.folder / "bank" / "party.toml"
    table = federation.folder / "bank" / "data.csv"
    await federation.stop("bank")
    path.write_text(
        path.read_text().replace("[policy]", 'label_classes = ["good", "bad"]\n[policy]')
    )
    frame = pd.read_csv(table)
    frame["label"] = frame["label"].map({0: "good", 1: "bad"})
    frame.to_csv(table, index=False)
    await federation.start("bank")

    def told(bank: Any, tables: dict[str, Any]) -> None:
        numbers = tables["bank"].assign(label=lambda held: (held["label"] == "bad").astype(int))
        program(bank, {**tables, "bank": numbers})

    await beside(federation, told)


async def test_what_daemons_do_not_take_is_one_line(federation: DaemonsInMemory) -> None:
    def program(bank: Any, tables: dict[str, Any]) -> None:
        label = tables["bank"]["label"]

        def refused(line: str, *people: Any, fit: Any = None, **settings: Any) -> None:
            estimator = fedmq.FederatedClassifier(federation=bank, engine="plain", **settings)
            with pytest.raises(ConfigError, match=line):
                estimator.fit(*people, **(fit or {}))

        refused("^parties: not with federation; job = ", parties={"telco": ["x0"]})
        refused(r"^workers: not with federation; \[compute\]", workers=2)
        refused("^callbacks: not with federation", callbacks=[print])
        refused(r"^sample_weight: not with federation; \[data\] weight", fit={"sample_weight": 1})
        refused("^eval_set: not with federation; job = {'evaluation': 0.2}", fit={"eval_set": []})
        refused("^objective, eval_metric: daemons run no function", objective=print)
        refused("^job: engine: it is the estimator's engine", job={"engine": "ou"})
        refused("^train: modle: there is no such key; did you mean", job={"modle": "m"})
        refused("^X: 'p99' is not among the people of the training", ["p99"])
        refused("^X: 20 of 40 people of the training are not in it; .* fedmq search", IDS[:20])
        refused("^y: 39 labels for 40 people", IDS, label[1:])
        refused("^y: labels without ids cannot be compared", None, label)
        refused("^y: the label of 'p00' is another one than in column 'label'", IDS, 1 - label)
        with pytest.raises(DataError, match="there is no alignment 'nobody' here"):
            fedmq.FederatedClassifier(federation=bank, job={"alignment": "nobody"}).fit()
        with pytest.raises(DataError, match=r"column 'label': 'maybe' of 'p00' is not a label"):
            fedmq.FederatedClassifier(federation=bank).fit(IDS, ["maybe"] * 40)
        telco = bank.parent.parent / "telco" / "party.toml"
        with pytest.raises(ConfigError, match="only bank, which holds the labels, trains"):
            fedmq.FederatedRegressor(federation=telco).fit()
        with pytest.raises(ConfigError, match="job: it is for daemons; name the party's file"):
            fedmq.FederatedClassifier(job={"model": "m"}).fit(tables["bank"], label)
        fitted = fedmq.FederatedClassifier(federation=bank, engine="plain", **SMALL).fit()
        with pytest.raises(DataError, match="1 of 2 people have no score, such as 'nobody'"):
            fitted.predict(["p00", "nobody"])
        with pytest.raises(ConfigError, match=r"^get_booster: no party has all trees of "):
            fitted.get_booster()
        simulated = fedmq.FederatedClassifier()
        with pytest.raises(ConfigError, match=r"^xgb_model: no party has all trees of "):
            simulated.fit(tables["bank"], label, xgb_model=fitted)

    await beside(federation, program)
