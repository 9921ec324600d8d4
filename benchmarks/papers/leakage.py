"""What the engines leak, as a function of what is supposed to hide it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fedmq
from benchmarks.credit import Credit
from benchmarks.papers.page import Curve, draw, table
from benchmarks.papers.tables import TITLES, params
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.metrics import auc
from fedmq.boosting.splits import CandidateTable
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.labels import bare_rows, label_scores_from_noise, labels_from_signs
from fedmq.leakage.attacks.splitting_matrix import agreement, majority, projected, rounded
from fedmq.leakage.audit import order_from_columns
from fedmq.privacy.engines.ldp import MECHANISMS
from fedmq.privacy.masking import FewColumnsSpan, OneHotSpan, null_vectors, splitting_matrix

ROWS = 3000
COUNTS = [8, 64, 512, 1500, 2300, 2700, 2900, ROWS - 2]


def exact(datasets: Iterable[Credit]) -> Iterator[str]:
    """What the parties learn under every exact engine: nodes, partitions, and no more.

    A short key, for what is learned does not depend on what cannot be read.
    """
    rows = []
    for data in datasets:
        passive = {"passive": data.passive}
        with TemporaryDirectory() as folder:
            model = fedmq.simulate(
                active=data.active,
                passive=passive,
                label=data.label,
                params=params(25, subsample=1.0),
                engine="ou",
                engine_options={"key_bits": 512, "allow_weak_keys": True},
                record=folder,
            )
            weights = model.leaf_weights(active=data.active, passive=passive)
            heard = f"{folder}/passive.recording"
            reports = [
                fedmq.audit(heard, label=data.label, leaf_weights=weights),
                fedmq.audit(
                    f"{folder}/active.recording",
                    passive=passive,
                    label=data.label,
                    leaf_weights=weights,
                ),
            ]
        rows += [_row(data, finding) for report in reports for finding in report.findings]
    yield "## Engines that hide the gradients: 25 trees\n"
    yield table(_COLUMNS, rows)
    yield (
        "**Nodes tell labels, and partitions tell the order of features**, under `paillier` and "
        "`ou` alike: both follow from the model that all agreed to train. *Leaf weights, if told* "
        "is what would follow if they left the active party: SecureBoost's Theorem 2 counts the "
        "positives of every leaf of the first tree exactly; without the predictions, Theorem 3 "
        "has little to say of the later ones. What *bins from sums* reads is a lower bound: [exact "
        "sums show the columns](../privacy/attacks.md#exact-sums-solved-together).\n"
    )


_COLUMNS = ["data", "attack", "target", "where", "measure", "value", "guessing"]


def _row(data: Credit, finding: Finding) -> list[str]:
    """``finding`` under ``_COLUMNS``."""
    return [
        f"{TITLES[data.name]}, {len(data.label):,} rows",
        finding.attack,
        finding.target,
        finding.where,
        finding.measure,
        f"{finding.value:.3f}",
        f"{finding.chance:.3f}",
    ]


def explained(datasets: Iterable[Credit]) -> Iterator[str]:
    """What an owner gives away that shows which of its splits share a column."""
    rows = []
    for data in datasets:
        model = fedmq.simulate(
            active=data.active,
            passive={"passive": data.passive},
            label=data.label,
            params=params(25, subsample=1.0),
            engine="plain",
        )
        table_of_splits = model.passive_shares["passive"].lookup_table
        rows += [
            _row(data, finding)
            for finding in order_from_columns("passive", data.passive, table_of_splits)
        ]
    yield "## Reasons for scores: 25 trees\n"
    yield table(_COLUMNS, rows)
    yield (
        "In mode `bitmap` the active party sees all directions of everybody who is scored. "
        "*Columns guessed* is what it makes of them alone: sides of thresholds that are nested "
        "may be of one column. *Columns shown* is what it knows where an owner says "
        '`explain = "column"`. The share is that of pairs of people in the right order of a '
        "column, less that in the wrong one. The contributions themselves add nothing: they "
        "follow from what is seen here, and from the trees.\n"
    )


def masked(data: Credit, plots: Path) -> Iterator[str]:
    """SMM-1 and SMM-2 by r', at the root of a first tree."""
    values = data.passive[:ROWS]
    label = data.label[:ROWS]
    bins = BinMatrix.of(values, Cuts.of(values, 32))
    candidates = CandidateTable.of(bins.cuts)
    everyone = np.arange(ROWS, dtype=np.int32)
    matrix = splitting_matrix(bins, everyone, candidates, np.arange(len(candidates)))
    random = np.random.default_rng(0)
    gradients = np.stack((0.5 - label.astype(np.float64), np.full(ROWS, 0.25)), axis=1)
    of_gradients = null_vectors(FewColumnsSpan(gradients), ROWS, random)
    hiding = np.concatenate(
        (random.integers(0, 2, (ROWS, 8)).astype(float), random.normal(size=(ROWS, 8))), axis=1
    )
    span = OneHotSpan(bins.codes, hiding)
    span.factorise()
    of_splits = null_vectors(span, ROWS, random)
    first, second = [], []
    for count in COUNTS:
        z = of_gradients[:, :count]
        w = matrix - z @ (z.T @ matrix)
        truth = matrix == 1
        first.append((agreement(rounded(w), truth), agreement(projected(w, z), truth)))
        z = of_splits[:, :count]
        w = gradients[:, 0] - z @ (z.T @ gradients[:, 0])
        hits = float((labels_from_signs(w) == (label == 1)).mean())
        second.append((hits, auc(label, -w.astype(np.float32)), z.shape[1]))
    chance = majority(matrix == 1)
    base = float(max(label.mean(), 1 - label.mean()))
    splits = f"{ROWS:,} rows of Credit 2, {len(candidates)} splits"
    yield f"## SMM by the number of vectors r' ({splits}, root of the first tree)\n"
    curves = [
        Curve("SMM-1: rounding W", [shares[0] for shares in first], colour=0),
        Curve("SMM-1: known null space", [shares[1] for shares in first], colour=1),
        Curve("SMM-1: guessing", [chance] * len(COUNTS), dashed=True, colour=0),
        Curve("SMM-2: sign of W", [shares[0] for shares in second], colour=2),
        Curve("SMM-2: guessing", [base] * len(COUNTS), dashed=True, colour=2),
    ]
    draw(plots / "leakage-smm.png", "What W gives away", "r'", "accuracy", curves, at=COUNTS)
    yield "![What W gives away](data/leakage-smm.png)\n"
    head = [
        "r'",
        "SMM-1: rounding W",
        "SMM-1: known null space",
        "guessing",
        "SMM-2: sign of W",
        "SMM-2: AUC",
        "guessing",
        "vectors SMM-2 has",
    ]
    yield table(
        head,
        [
            [
                count,
                *(f"{value:.3f}" for value in (*one, chance, *two[:2], base)),
                two[2],
            ]
            for count, one, two in zip(COUNTS, first, second, strict=True)
        ],
    )
    yield (
        "SMM-1 gives the active party the passive party's splitting matrix row by row, and SMM-2 "
        "gives the passive party the labels, unless nearly the whole null space is used. That "
        "means sending a matrix as large as rows by rows for each node. **Neither engine protects "
        "anything at a size that can be sent.**\n"
    )
    yield _sparse()


def _sparse() -> str:
    """Vectors that a curious party would send to SMM-2's active party."""
    rows = []
    for held in (20, 300, 1500, ROWS):
        vectors = np.zeros((ROWS, 16))
        own = null_vectors(FewColumnsSpan(np.ones((held, 1))), 16, np.random.default_rng(0))
        vectors[:held] = own
        rows.append([f"{held:,}", f"{bare_rows(vectors).mean():.2f}"])
    text = table(["rows that the vectors cover", "share of rows whose g is bare in W"], rows)
    return (
        "A null space that is zero in a row leaves that row's g as it is. The active half "
        "therefore refuses vectors with such rows (`_LEAST_LEVERAGE`).\n\n" + text
    )


def noisy(data: Credit, plots: Path) -> Iterator[str]:
    """LDP by epsilon and the number of trees, in a first tree's gradients."""
    label = data.label
    g = 0.5 - label.astype(np.float64)
    epsilons = [0.1, 0.3, 1.0, 3.0, 8.0]
    trees = (1, 10, 25)
    yield f"## LDP by epsilon ({len(label):,} rows of Credit 2)\n"
    rows, curves = [], []
    for index, (name, mechanism) in enumerate(MECHANISMS.items()):
        reached = []
        for epsilon in epsilons:
            random = np.random.default_rng(0)
            disclosed = [
                (np.arange(len(label)), mechanism.perturbed(g, epsilon, random))
                for _ in range(max(trees))
            ]
            scores = [label_scores_from_noise(len(label), disclosed[:count]) for count in trees]
            values = [auc(label, score.astype(np.float32)) for score in scores]
            reached.append(values)
            rows.append([name, f"{epsilon:g}", *(f"{value:.3f}" for value in values)])
        for place, count in ((0, 1), (2, 25)):
            curve = [values[place] for values in reached]
            curves.append(Curve(f"{name}, {count} trees", curve, dashed=count == 1, colour=index))
    draw(
        plots / "leakage-ldp.png",
        "Labels from noisy gradients",
        "epsilon per tree and channel",
        "AUC",
        curves,
        at=epsilons,
        logarithmic=True,
    )
    yield "![Labels from noisy gradients](data/leakage-ldp.png)\n"
    head = ["mechanism", "epsilon per tree", *(f"AUC, trees: {count}" for count in trees)]
    yield table(head, rows)
    yield (
        "Per tree and row, g is disclosed anew. Its sign is the label in every tree, so a passive "
        "party averages: epsilon = 1 protects one tree, and hardly 25 of them. (Here g stays that "
        "of the first tree; it shrinks as the model learns, which helps a little.) What counts is "
        "the total budget, which `fedmq train` prints.\n"
    )
