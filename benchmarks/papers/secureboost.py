"""SecureBoost: Tables 1 and 2, and Figure 4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray
from scipy.stats import wilcoxon
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score

import fedmq
from benchmarks.credit import Credit
from benchmarks.papers.page import Curve, draw, table
from benchmarks.papers.tables import TITLES, params, train
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost_comparison.pooled_tree import walk_pooled
from fedmq.leakage.attacks.labels import leaf_purity
from fedmq.party.telemetry.metrics import Traffic

TREES = 25
SEEDS = 6
VARIANTS = {"SecureBoost": 0, "RL-SecureBoost": 1}
METRICS = ("ACC", "F1", "AUC")


@dataclass(frozen=True)
class Repeat:
    """What one training with one seed came to."""

    first: dict[str, float]
    overall: dict[str, float]
    purity: dict[str, float]


def repeated(data: Credit, seed: int, active_only_trees: int) -> Repeat:
    """Train once; plain equals the encrypting engines bit for bit, and is the quickest."""
    held_out = data.held_out(seed)
    settings = params(TREES, seed=seed, active_only_trees=active_only_trees)
    model = train(data, "plain", settings, held_out)
    truth = data.label[held_out]
    values = [data.active, data.passive]
    tables = [model.share.lookup_table, model.passive_shares["passive"].lookup_table]
    one = model.share.model_copy(update={"trees": model.share.trees[:1]})
    alone = fedmq.SimulatedModel(one, list(model.passive_shares.values()), Traffic())
    trained = [table[~held_out] for table in values]
    purities = [_purity(tree, tables, trained, data.label[~held_out]) for tree in model.share.trees]
    seen = purities[active_only_trees:]
    return Repeat(
        _metrics(truth, _margins(alone, data, held_out)),
        _metrics(truth, _margins(model, data, held_out)),
        {"first": purities[0], "first shared": seen[0], "later": float(np.mean(seen[1:]))},
    )


def _margins(
    model: fedmq.SimulatedModel, data: Credit, rows: NDArray[np.bool_]
) -> NDArray[np.float32]:
    active, passive = data.active[rows], {"passive": data.passive[rows]}
    return model.predict(active=active, passive=passive, output_margin=True)


def _metrics(truth: NDArray[np.float32], margins: NDArray[np.float32]) -> dict[str, float]:
    guess = margins > 0
    return {
        "ACC": float(accuracy_score(truth, guess)),
        "F1": float(f1_score(truth, guess, zero_division=0)),
        "AUC": float(roc_auc_score(truth, margins)),
    }


def _purity(tree: Any, tables: Any, values: Any, labels: NDArray[np.float32]) -> float:
    leaves = walk_pooled(tree, tables, values)
    return leaf_purity([np.flatnonzero(leaves == leaf) for leaf in np.unique(leaves)], labels)


def purity_and_quality(datasets: list[Credit]) -> Iterator[str]:
    """Tables 1 and 2: what first trees reveal, and what it costs to keep the first one at home."""
    purity_rows, quality_rows, tests = [], [], []
    for data in datasets:
        title = TITLES[data.name]
        runs = {
            name: [repeated(data, seed, only) for seed in range(SEEDS)]
            for name, only in VARIANTS.items()
        }
        base = max(data.label.mean(), 1 - data.label.mean())
        for name, repeats in runs.items():
            purity = {key: _mean([r.purity[key] for r in repeats]) for key in repeats[0].purity}
            purity_rows.append(
                [title, name, purity["first shared"], purity["later"], f"{base:.4f}"]
            )
            for stage in ("first", "overall"):
                measured = [_mean([getattr(r, stage)[m] for r in repeats]) for m in METRICS]
                quality_rows.append([title, stage, name, *measured])
        for stage in ("first", "overall"):
            for metric in METRICS:
                both = [[getattr(r, stage)[metric] for r in runs[name]] for name in VARIANTS]
                tests.append([title, stage, metric, f"{_wilcoxon(*both):.3f}"])
    yield "### Table 1: purity of the leaves\n"
    yield (
        "Share of training rows whose label is that of their leaf's majority. *First* is the "
        "first tree in which a passive party takes part; in RL-SecureBoost that is the second. "
        f"Means of {SEEDS} splits.\n"
    )
    yield table(["data", "variant", "first tree shared", "later trees", "base rate"], purity_rows)
    yield "### Table 2: the first tree, and all of them\n"
    yield f"On the held-out third, {TREES} trees, means of {SEEDS} splits (standard deviation).\n"
    yield table(["data", "trees", "variant", *METRICS], quality_rows)
    yield (
        f"Wilcoxon signed-rank test over the {SEEDS} splits: p that both variants are as good "
        "(1 where no split tells them apart).\n"
    )
    yield table(["data", "trees", "metric", "p"], tests)


def _wilcoxon(one: list[float], other: list[float]) -> float:
    if np.allclose(one, other, atol=1e-12):
        return 1.0
    return float(wilcoxon(one, other).pvalue)


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.4f} ({np.std(values):.4f})"


def loss_curves(datasets: list[Credit], plots: Path) -> Iterator[str]:
    """Figure 4: scikit-learn's GBDT, XGBoost, and fedmq."""
    yield "### Figure 4: loss of scikit-learn's GBDT, XGBoost and fedmq\n"
    rows = []
    for data in datasets:
        held_out = data.held_out(0)
        curves: list[Curve] = []
        model = train(data, "plain", params(TREES), held_out)
        for part, name in (("train", "training"), ("eval", "test")):
            losses = model.evals_result[part]["logloss"]
            curves.append(Curve(f"fedmq, {name}", losses, dashed=part == "eval", colour=0))
        curves += _of_xgboost(data, held_out)
        curves += _of_sklearn(data, held_out)
        rows += [[TITLES[data.name], curve.name, f"{curve.values[-1]:.4f}"] for curve in curves]
        file = plots / f"secureboost-figure-4-{data.name}.png"
        draw(file, f"{TITLES[data.name]}: log loss", "trees", "log loss", curves)
        yield f"![Loss on {TITLES[data.name]}](data/{file.name})\n"
    yield table(["data", "curve", f"log loss after {TREES} trees"], rows)
    yield (
        "fedmq and XGBoost coincide but for the rows that subsample draws: each has its own random "
        "numbers. scikit-learn's GBDT starts from the mean label, not from 0.5, which is why its "
        "curve begins lower; it scales no leaf by lambda and scores by variance.\n"
    )


def _of_xgboost(data: Credit, held_out: NDArray[np.bool_]) -> list[Curve]:
    joined = data.joined()
    bins = BinMatrix.of(joined, Cuts.of(joined[~held_out], 32))
    codes = np.where(bins.is_missing, np.nan, bins.codes.astype(np.float32))
    matrices = [xgboost.DMatrix(codes[part], data.label[part]) for part in (~held_out, held_out)]
    result: dict[str, Any] = {}
    settings = params(TREES).to_xgboost()
    xgboost.train(
        settings,
        matrices[0],
        TREES,
        evals=list(zip(matrices, ("training", "test"), strict=True)),
        evals_result=result,
        verbose_eval=False,
    )
    return [
        Curve(f"XGBoost, {part}", result[part]["logloss"], dashed=part == "test", colour=1)
        for part in ("training", "test")
    ]


def _of_sklearn(data: Credit, held_out: NDArray[np.bool_]) -> list[Curve]:
    joined = np.nan_to_num(data.joined(), nan=-1)  # it takes no missing values
    model = GradientBoostingClassifier(
        n_estimators=TREES, max_depth=3, subsample=0.8, learning_rate=0.3, random_state=0
    )
    model.fit(joined[~held_out], data.label[~held_out])
    curves = []
    for part, rows in (("training", ~held_out), ("test", held_out)):
        losses = [
            log_loss(data.label[rows], p[:, 1]) for p in model.staged_predict_proba(joined[rows])
        ]
        curves.append(Curve(f"scikit-learn, {part}", losses, dashed=part == "test", colour=2))
    return curves
