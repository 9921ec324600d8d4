"""Federated estimators as people use them: frames, searches, pipelines, early stopping."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xgboost
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_selector
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedmq
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.estimators.parameters import TRAINING_PARAMETERS
from tests.boosting.tables import scattered

X, Y = scattered(240, 5, seed=2, missing=0.05)
COLUMNS = ["age", "income", "telco_calls", "telco_data", "shop_visits"]
PEOPLE = [f"p{row:03}" for row in range(240)]
FRAME = pd.DataFrame(X, PEOPLE, COLUMNS)
LABEL = pd.Series(np.where(Y > 0, "bad", "good"), PEOPLE)
PARTIES = {"telco": ["telco_calls", "telco_data"], "shop": ["shop_visits"]}
SMALL = {"n_estimators": 4, "max_depth": 3, "max_bin": 16}


def classifier(**changes: Any) -> Any:
    return fedmq.FederatedClassifier(**{"parties": PARTIES, **SMALL, **changes})


def test_the_model_is_that_of_a_simulation() -> None:
    fitted = classifier().fit(FRAME, LABEL)
    model = fedmq.simulate(
        active=FRAME[["age", "income"]],
        label=(LABEL == "good").astype(int),
        passive={party: FRAME[columns] for party, columns in PARTIES.items()},
        params={"num_boost_round": 4, "max_depth": 3, "max_bin": 16},
        engine="plain",
    )
    assert fitted.model_.share.dumps() == model.share.dumps()
    assert fitted.classes_.tolist() == ["bad", "good"]
    passive = {party: FRAME[columns] for party, columns in PARTIES.items()}
    good = model.predict(active=FRAME[["age", "income"]], passive=passive)
    np.testing.assert_array_equal(fitted.predict_proba(FRAME)[:, 1], good)
    np.testing.assert_array_equal(fitted.predict(FRAME), np.where(good > 0.5, "good", "bad"))
    assert fitted.score(FRAME, LABEL) > 0.8


@pytest.mark.parametrize(
    "telco",
    [
        [2, 3],
        slice(2, 4),
        [False, False, True, True, False],
        make_column_selector(pattern="^telco_"),
        [-3, -2],
    ],
    ids=["places", "slice", "mask", "selector", "from the end"],
)
def test_columns_are_chosen_as_by_a_column_transformer(telco: Any) -> None:
    parties = {"telco": telco, "shop": "shop_visits"}
    fitted = classifier(parties=parties).fit(FRAME, LABEL)
    assert fitted.model_.share.dumps() == classifier().fit(FRAME, LABEL).model_.share.dumps()


def test_a_frame_for_each_party_is_matched_by_its_index() -> None:
    rows = np.random.default_rng(0).permutation(240)
    tables = {
        "active": FRAME[["age", "income"]],
        **{party: FRAME[columns].iloc[rows] for party, columns in PARTIES.items()},
    }
    fitted = classifier(parties=None).fit(tables, LABEL.iloc[::-1])
    whole = classifier().fit(FRAME, LABEL)
    assert fitted.model_.share.dumps() == whole.model_.share.dumps()
    np.testing.assert_array_equal(fitted.predict(tables), whole.predict(FRAME))
    moved = whole.predict(FRAME.iloc[rows])
    np.testing.assert_array_equal(moved, whole.predict(FRAME)[rows])


def test_labels_of_people_who_are_not_in_the_table_are_refused() -> None:
    with pytest.raises(
        DataError, match=r"^y: 1 rows of active are not in its index, such as 'p007'"
    ):
        classifier().fit(FRAME, LABEL.rename({"p007": "q007"}))


@pytest.mark.parametrize("frame", [pl.DataFrame, pa.table], ids=["polars", "arrow"])
def test_other_frames_give_the_model_of_pandas(frame: Any) -> None:
    table = frame({name: X[:, place] for place, name in enumerate(COLUMNS)})
    fitted = classifier().fit(table, LABEL.to_numpy())
    pandas = classifier().fit(FRAME, LABEL)
    assert fitted.model_.share.dumps() == pandas.model_.share.dumps()
    np.testing.assert_array_equal(fitted.predict_proba(table), pandas.predict_proba(FRAME))


def test_categories_are_taken_and_unseen_ones_are_scored() -> None:
    town = pd.Categorical(np.where(Y > 0, "Bonn", "Ulm"), categories=["Bonn", "Ulm", "Jena"])
    table = FRAME.assign(town=town)
    fitted = classifier(parties={"telco": ["telco_calls", "town"]}).fit(table, LABEL)
    features = fitted.model_.passive_shares["telco"].lookup_table.feature_names
    assert features == ("telco_calls", "town=Bonn", "town=Ulm")
    assert fitted.score(table, LABEL) == 1
    elsewhere = FRAME.assign(town=pd.Categorical(["Kiel"] * 240))
    assert set(fitted.predict(elsewhere)) <= {"bad", "good"}


def test_four_classes_have_four_probabilities() -> None:
    label = np.array(list("abcd"))[(X[:, 0] > 0).astype(int) + 2 * (X[:, 2] > 0.2)]
    fitted = classifier(n_estimators=8).fit(FRAME, label)
    probabilities = fitted.predict_proba(FRAME)
    assert probabilities.shape == (240, 4)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert fitted.model_.share.params.objective == "multi:softprob"
    assert fitted.score(FRAME, label) > 0.95


def test_a_regressor_has_xgboosts_objectives() -> None:
    counts = np.round(np.exp(np.nan_to_num(X[:, 0]) / 3))
    fitted = fedmq.FederatedRegressor(parties=PARTIES, objective="count:poisson", **SMALL)
    fitted.fit(FRAME, counts, base_margin=np.full(240, 0.5))
    assert fitted.model_.share.params.max_delta_step == pytest.approx(0.7)
    assert (fitted.predict(FRAME) > 0).all()


def test_a_search_finds_the_better_depth_and_a_pipeline_keeps_the_parties() -> None:
    search = GridSearchCV(
        classifier(n_estimators=3), {"max_depth": [1, 4]}, cv=3, scoring="roc_auc"
    )
    search.fit(FRAME, LABEL)
    assert search.best_params_ == {"max_depth": 4}
    assert set(search.best_estimator_.model_.passive_shares) == {"telco", "shop"}
    pipeline = make_pipeline(
        StandardScaler(), classifier(parties={"telco": [2, 3], "shop": [4]})
    ).fit(FRAME, LABEL)
    assert pipeline.score(FRAME, LABEL) > 0.8
    scores = cross_val_score(pipeline.set_params(federatedclassifier__n_estimators=2), FRAME, LABEL)
    assert scores.shape == (5,)
    assert scores.mean() > 0.7


def test_clones_have_the_parameters_and_pickles_the_model() -> None:
    own = classifier(learning_rate=0.2, random_state=np.random.RandomState(3))
    again = clone(own)
    assert again.get_params()["learning_rate"] == 0.2
    assert not hasattr(again, "model_")
    fitted = again.fit(FRAME, LABEL)
    loaded = pickle.loads(pickle.dumps(fitted))  # noqa: S301  (our own bytes)
    np.testing.assert_array_equal(loaded.predict_proba(FRAME), fitted.predict_proba(FRAME))


def test_early_stopping_watches_the_last_evaluation_set_and_ends_where_xgboosts_does() -> None:
    rest, held_out = slice(0, 160), slice(160, 240)
    settings = {"n_estimators": 30, "max_depth": 3, "learning_rate": 1.0, "max_bin": 256}
    settings |= {"early_stopping_rounds": 2, "eval_metric": ["auc", "logloss"]}
    coarse = np.round(X, 1)  # every value is a bin, for XGBoost too
    codes = (LABEL == "good").to_numpy().astype(int)
    pairs = [(coarse[rest], codes[rest]), (coarse[held_out], codes[held_out])]
    fitted = fedmq.FederatedClassifier(parties={"telco": [2, 3, 4]}, **settings)
    fitted.fit(*pairs[0], eval_set=pairs)
    reference = xgboost.XGBClassifier(**settings, n_jobs=1).fit(
        *pairs[0], eval_set=pairs, verbose=False
    )
    assert fitted.model_.best_iteration == reference.best_iteration
    ours, theirs = fitted.model_.evals_result, reference.evals_result()
    for name in ("validation_0", "validation_1"):
        for metric in ("auc", "logloss"):
            np.testing.assert_allclose(ours[name][metric], theirs[name][metric], rtol=1e-5)
    np.testing.assert_allclose(
        fitted.predict_proba(coarse), reference.predict_proba(coarse), atol=1e-6
    )


def test_evaluation_sets_bring_their_own_weights_and_margins() -> None:
    rest, held_out = FRAME.iloc[:160], FRAME.iloc[160:]
    weight = pd.Series(np.linspace(0.5, 2, 240), PEOPLE)
    fitted = classifier().fit(
        rest,
        LABEL.iloc[:160],
        weight.iloc[:160],
        base_margin=np.zeros(160),
        eval_set=[(held_out, LABEL.iloc[160:])],
        sample_weight_eval_set=[weight.iloc[160:]],
        base_margin_eval_set=[np.ones(80)],
    )
    score = fitted.model_.share.base_score
    grown = fitted._scores(held_out).margins - np.log(score / (1 - score))
    good = 1 / (1 + np.exp(-(1 + grown)))
    likely = np.where(LABEL.iloc[160:] == "good", good, 1 - good)
    expected = np.average(-np.log(likely), weights=weight.iloc[160:])
    assert fitted.model_.evals_result["validation_0"]["logloss"][-1] == pytest.approx(
        expected, rel=1e-4
    )


@pytest.mark.parametrize("constraints", [{"telco_calls": 1}, (0, 0, 1, 0, 0)], ids=["name", "all"])
def test_monotone_constraints_name_columns_of_the_table(constraints: Any) -> None:
    fitted = classifier(monotone_constraints=constraints).fit(FRAME, LABEL)
    assert fitted.model_.share.params.monotone_constraints["telco.telco_calls"] == 1
    raised = FRAME.assign(telco_calls=FRAME["telco_calls"].fillna(0) + 3)
    before = FRAME.assign(telco_calls=FRAME["telco_calls"].fillna(0))
    assert (fitted.predict_proba(raised) >= fitted.predict_proba(before))[:, 1].all()


def test_an_encrypted_training_gives_the_same_model() -> None:
    options = {"key_bits": 512, "allow_weak_keys": True}
    hidden = classifier(engine="paillier", engine_options=options, workers=1, n_estimators=2)
    open_ = classifier(n_estimators=2)
    for fitted in (hidden, open_):
        fitted.fit(FRAME, LABEL)
    assert hidden.model_.share.dumps() == open_.model_.share.dumps()


def test_callbacks_end_a_fit() -> None:
    stopping = xgboost.callback.EarlyStopping(rounds=1, metric_name="logloss")
    fitted = classifier(n_estimators=50, callbacks=[stopping], learning_rate=1.0).fit(
        FRAME.iloc[:160], LABEL.iloc[:160], eval_set=[(FRAME.iloc[160:], LABEL.iloc[160:])]
    )
    assert len(fitted.model_.share.trees) == fitted.model_.best_iteration + 2 < 50


@pytest.mark.parametrize(
    ("changes", "error", "line"),
    [
        ({"parties": {"telco": ["phone"]}}, ConfigError, "telco is given column 'phone', which"),
        ({"parties": {"telco": [9]}}, ConfigError, "telco is given column 9; names, or places"),
        ({"parties": {"a": [0], "b": [0]}}, ConfigError, "column 'age' is given to a and b"),
        ({"parties": {"active": [0]}}, ConfigError, "'active' is the name of the active party"),
        ({"parties": {"a": [True]}}, ConfigError, "the mask of a has 1 places, there are 5"),
        ({"objective": "reg:gamma"}, ConfigError, "reg:gamma is not for 2 classes"),
        ({"max_depth": -1}, ConfigError, "FederatedClassifier: max_depth = -1"),
        ({"engine": "magic"}, ConfigError, "FederatedClassifier: engine: 'magic' is unknown"),
        ({"monotone_constraints": (1,)}, ConfigError, "1 signs for 5 columns"),
        ({"early_stopping_rounds": 3}, ConfigError, "early_stopping_rounds needs evaluation rows"),
    ],
)
def test_what_is_wrong_is_one_line(changes: Any, error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line) as caught:
        classifier(**changes).fit(FRAME, LABEL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("eta", "unexpected parameter 'eta'; it is called learning_rate here"),
        ("num_class", "num_class is read from the labels; leave it out"),
        ("use_label_encoder", "use_label_encoder: labels may be words or numbers"),
        ("depth", "FederatedClassifier: unexpected parameter 'depth'"),
    ],
)
def test_an_unknown_parameter_is_refused_at_once(name: str, line: str) -> None:
    with pytest.raises(TypeError, match=line):
        classifier(**{name: 1})


def test_a_class_that_was_not_learned_is_refused_in_an_evaluation_set() -> None:
    with pytest.raises(ValueError, match="class 'ugly' is not among the labels of fit"):
        classifier().fit(FRAME, LABEL, eval_set=[(FRAME, LABEL.replace("bad", "ugly"))])


def test_estimators_have_every_training_parameter_by_xgboosts_name() -> None:
    from_labels = {"num_class", "num_target"}
    assert {*TRAINING_PARAMETERS.values(), *from_labels} == set(TrainParams.model_fields)
    theirs = set(xgboost.XGBClassifier().get_params())
    ours = set(fedmq.FederatedClassifier().get_params())
    assert {"n_estimators", "learning_rate", "random_state", "reg_lambda"} <= ours & theirs


def test_without_scikit_learn_one_line_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import fedmq\n"
        "try: fedmq.FederatedRegressor\n"
        "except fedmq.FedmqError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "scikit-learn is not installed; run: pip install 'fedmq[sklearn]'\n"


USUAL = {"n_jobs": 2, "verbosity": 0, "tree_method": "hist", "device": "cpu", "missing": np.nan}


def test_parameters_without_effect_are_kept_and_change_nothing() -> None:
    usual = clone(classifier(**USUAL, enable_categorical=True))
    assert USUAL.items() <= usual.get_params().items()
    plain = classifier().fit(FRAME, LABEL)
    assert usual.fit(FRAME, LABEL).model_.share.dumps() == plain.model_.share.dumps()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"device": "cuda"}, "device = 'cuda': fedmq computes on processors alone"),
        ({"tree_method": "exact"}, "tree_method = 'exact': fedmq grows the trees of"),
        ({"missing": -1}, "missing = -1: NaN is missing; write NaN in its place"),
        ({"monotone_constraints": "(1,up)"}, "monotone_constraints = '(1,up)': a sign for each"),
    ],
)
def test_what_would_change_a_model_is_refused(changes: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(line)):
        classifier(**changes).fit(FRAME, LABEL)


def test_signs_may_be_a_text() -> None:
    text = classifier(monotone_constraints="(1,0,-1,0,0)").fit(FRAME, LABEL)
    several = classifier(monotone_constraints=(1, 0, -1, 0, 0)).fit(FRAME, LABEL)
    assert text.model_.share.dumps() == several.model_.share.dumps()


@pytest.mark.parametrize("kind", [None, "gain", "weight", "cover", "total_gain", "total_cover"])
def test_importances_are_xgboosts_in_the_tables_order(kind: str | None) -> None:
    fitted = classifier(importance_type=kind).fit(FRAME, LABEL)
    theirs = fitted.get_booster().get_score(importance_type=kind or "gain")
    owners = {column: party for party, columns in PARTIES.items() for column in columns}
    named = [f"{owners.get(column, 'active')}.{column}" for column in COLUMNS]
    expected = np.array([theirs.get(name, 0.0) for name in named])
    assert np.count_nonzero(expected) > 2
    np.testing.assert_allclose(fitted.feature_importances_, expected / expected.sum(), rtol=1e-4)


def test_importances_of_categories_count_together_and_with_a_table_per_party() -> None:
    income = pd.qcut(FRAME["income"], 3, ["low", "middle", "high"]).astype(str)
    ages = pd.qcut(FRAME["age"], 3, ["young", "middle", "old"]).astype(str)
    words = FRAME.assign(age=ages, income=income)
    fitted = classifier().fit(words, LABEL)
    counts = fitted.model_.get_score("total_gain")
    of_age = sum(gain for name, gain in counts.items() if name.startswith("active.age="))
    weighed = fitted.set_params(importance_type="total_gain").feature_importances_
    assert len(weighed) == len(COLUMNS)
    assert weighed[0] == pytest.approx(of_age / sum(counts.values()), rel=1e-6)
    assert of_age > 0
    tables = {
        "active": words[COLUMNS[:2]],
        "telco": words[COLUMNS[2:4]],
        "shop": words[["shop_visits"]],
    }
    apart = classifier(parties=None, importance_type="total_gain").fit(tables, LABEL)
    np.testing.assert_array_equal(apart.feature_importances_, weighed)


def test_columns_are_selected_by_importance() -> None:
    kept = SelectFromModel(classifier(), max_features=2, threshold=-np.inf).fit(FRAME, LABEL)
    assert kept.transform(FRAME).shape == (240, 2)


def test_importances_of_no_model_are_refused() -> None:
    with pytest.raises(NotFittedError):
        _ = classifier().feature_importances_


def test_a_sparse_table_holds_nan_where_it_holds_nothing() -> None:
    cells = sparse.coo_matrix(np.nan_to_num(np.where(X > 0.5, np.nan, X)))
    held = np.where(cells.toarray() == 0, np.nan, X)
    whole = classifier(parties={"telco": [2, 3]}).fit(held, Y)
    some = classifier(parties={"telco": [2, 3]}).fit(cells, Y)
    assert some.model_.share.dumps() == whole.model_.share.dumps()
    np.testing.assert_array_equal(some.predict(cells.tocsc()), whole.predict(held))


def test_rounds_are_printed_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    fitted = classifier().fit(FRAME, LABEL, eval_set=[(FRAME, LABEL)], verbose=2)
    printed = capsys.readouterr().out.splitlines()
    losses = fitted.evals_result()["validation_0"]["logloss"]
    assert printed == [f"[{at}]\tvalidation_0-logloss:{losses[at]:.5f}" for at in (0, 2)]
    assert fitted.best_iteration is None


def test_a_missing_column_is_named() -> None:
    tables = {"active": FRAME[COLUMNS[:2]], "telco": FRAME[COLUMNS[2:]]}
    fitted = classifier(parties=None).fit(tables, LABEL)
    tables["telco"] = tables["telco"].rename(columns={"telco_data": "data"})
    line = (
        "telco: the columns are not those of the training: 'telco_data' is missing; "
        "'data' is not known"
    )
    with pytest.raises(DataError, match=f"^{line}$"):
        fitted.predict(tables)


def test_signs_in_order_go_with_a_table_per_party() -> None:
    tables = {"active": FRAME[COLUMNS[:2]], "telco": FRAME[COLUMNS[2:]]}
    in_order = [1, *[0] * (len(COLUMNS) - 2), -1]
    named = {COLUMNS[0]: 1, f"telco.{COLUMNS[-1]}": -1}
    one, other = (
        classifier(parties=None, monotone_constraints=signs).fit(tables, LABEL)
        for signs in (in_order, named)
    )
    assert one.model_.share.dumps() == other.model_.share.dumps()
    assert one.model_.share.params.monotone_constraints == named


def test_xgboosts_names_are_answered_by_what_to_use() -> None:
    fitted = classifier().fit(FRAME, LABEL)
    with pytest.raises(AttributeError, match=r"has no save_model: joblib\.dump"):
        fitted.save_model("m.json")
    with pytest.raises(AttributeError, match=r"has no apply: model_\.predict"):
        fitted.apply(FRAME)
    with pytest.raises(AttributeError, match="has no get_fscore: it is get_score"):
        fitted.model_.get_fscore()
    with pytest.raises(AttributeError, match="has no attribute 'DMatrix': tables are given as"):
        _ = fedmq.DMatrix
    with pytest.raises(TypeError, match="simulate: evals: evaluation says which rows"):
        fedmq.simulate(active=X, label=Y, passive={}, evals=[])  # type: ignore[call-arg]
    with pytest.raises(DataError, match="active: give the table of which this DMatrix was made"):
        fedmq.simulate(active=xgboost.DMatrix(X), label=Y, passive={}, engine="plain")
    assert not hasattr(fitted, "surely_missing")
