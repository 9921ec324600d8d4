"""What the engines leak, as a function of what is supposed to hide it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmq
from benchmarks.credit import Credit
from benchmarks.papers.page import Curve, draw, table
from benchmarks.papers.tables import TITLES, params
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.metrics import auc
from fedmq.boosting.splits import CandidateTable
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.labels import bare_rows, label_scores_from_noise, labels_from_signs
from fedmq.leakage.attacks.row_order import order_of_ranks
from fedmq.leakage.attacks.splitting_matrix import agreement, majority, projected, rounded
from fedmq.leakage.audit import order_from_columns, order_from_directions
from fedmq.leakage.view import SessionView
from fedmq.party.sessions.observe import Recording
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
                engine_options=_WEAK,
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
                    solve=False,
                ),
            ]
        rows += [
            _row(data, finding)
            for report in reports
            for finding in report.findings
            if finding.attack != "directions alone"  # of which the next section tells
        ]
    yield "## Engines that hide the gradients: 25 trees\n"
    yield table(_COLUMNS, rows)
    yield (
        "**Nodes tell labels, and partitions tell the order of features**, under `paillier` and "
        "`ou` alike: both follow from the model that all agreed to train. *Leaf weights, if told* "
        "is what would follow if they left the active party: SecureBoost's Theorem 2 counts the "
        "positives of every leaf of the first tree exactly; without the predictions, Theorem 3 "
        "has little to say of the later ones. *Bins from sums* is what single sums tell; what all "
        "of them tell together stands in the next section.\n"
    )


@dataclass(frozen=True, eq=False)
class Shown:
    """A training whose sums are shown, as somebody would run it."""

    title: str
    data: Credit
    engine: str
    params: Mapping[str, Any]
    smallest_cell: int = 10
    evaluation: float = 0.0

    @property
    def held_out(self) -> NDArray[np.bool_]:
        """The people who only evaluate the model: bool (rows,)."""
        return np.random.default_rng(0).random(len(self.data.label)) < self.evaluation

    def audited(self) -> tuple[float, dict[str, Finding]]:
        """Sums by training row, if none is merged; and by target what the active party reads."""
        passive = {"passive": self.data.passive}
        held = self.held_out
        with TemporaryDirectory() as folder:
            model = fedmq.simulate(
                active=self.data.active,
                passive=passive,
                label=self.data.label,
                params=fedmq.TrainParams(**self.params),
                engine=self.engine,
                engine_options=_WEAK if self.engine == "ou" else {},
                evaluation=held,
                smallest_cell=self.smallest_cell,
                record=folder,
            )
            recording = Recording.read(Path(folder) / "active.recording")
        report = fedmq.audit(
            recording,
            passive=passive,
            label=self.data.label,
            leaf_weights=model.leaf_weights(active=self.data.active, passive=passive),
        )
        nodes = sum(len(tree.exchanged) for tree in SessionView(recording).trees.values())
        cuts = Cuts.of(self.data.passive[~held], model.share.params.max_bin)
        found = {finding.target.partition(",")[0]: finding for finding in report.findings}
        return nodes * len(CandidateTable.of(cuts)) / float((~held).sum()), found


_WEAK = {"key_bits": 512, "allow_weak_keys": True}


def made_up(rows: int) -> Credit:
    """Normal columns of two parties, four each, and a label that depends on all."""
    random = np.random.default_rng(1)
    columns = random.normal(size=(rows, 8)).astype(np.float32)
    weights = np.array([1, 0.5, -0.7, 0.3, 0.9, -0.8, 0.6, 0.4])
    noise = random.normal(size=rows) * 1.5
    label = (columns @ weights + noise > 0).astype(np.float32)
    return Credit("made up", columns[:, :4], columns[:, 4:], label)


def shown_sums(credit2: Credit) -> Iterator[str]:
    """What an active party reads that solves all sums together, by engine and setting."""
    few, some, part = made_up(400), made_up(1000), credit2.first(2000)
    small = {"num_boost_round": 14, "max_depth": 5, "max_bin": 16}
    deep = {"num_boost_round": 12, "max_depth": 5, "max_bin": 32}
    usual = {"num_boost_round": 50, "max_depth": 3, "max_bin": 32}
    long = {"num_boost_round": 12, "max_depth": 6, "max_bin": 32}
    rounded_gradients = {**long, "gradient_bits": 2, "subsample": 0.5}
    counted = {**long, "objective": "reg:squarederror"}
    cases = [
        Shown("14 trees of depth 5, 16 bins", few, "lattice", small),
        Shown("14 trees of depth 5, 16 bins", few, "ou", small),
        Shown("12 trees of depth 6, 32 bins", some, "lattice", long),
        Shown("12 trees of depth 6, 32 bins", some, "ou", long),
        Shown("the same, `reg:squarederror`", some, "ou", counted),
        Shown(
            "the same, `gradient_bits = 2`, `subsample = 0.5`, `smallest_cell = 200`",
            some,
            "lattice",
            rounded_gradients,
            smallest_cell=200,
        ),
        Shown("12 trees of depth 5, 32 bins", part, "lattice", deep),
        Shown("12 trees of depth 5, 32 bins", part, "ou", deep),
        Shown("50 trees of depth 3, 32 bins", credit2, "lattice", usual, evaluation=0.2),
        Shown("50 trees of depth 3, 32 bins", credit2, "ou", usual, evaluation=0.2),
    ]
    rows = []
    for case in cases:
        _, found = case.audited()
        link = found.get("passive's candidates linked across trees")
        bits, cells = (
            found[f"passive's {what}"] for what in ("candidate bits", "cells of columns")
        )
        name = "Made up" if case.data.name == "made up" else TITLES[case.data.name]
        rows.append(
            [
                f"{name}, {(~case.held_out).sum():,} people",
                f"`{case.engine}`",
                case.title,
                f"{link.value:.3f}" if link else "",
                *(f"{value:.3f}" for one in (bits, cells) for value in (one.value, one.chance)),
            ]
        )
        print(*rows[-1], sep=" | ", flush=True)
    yield "## Columns read from shown sums\n"
    head = ["data", "engine", "training", "linked", "bits", "guessing", "cells", "guessing"]
    yield table(head, rows)
    yield (
        "An active party that keeps the protocol solves all sums of a training together: each "
        "person stands on one side of a cut, and in one cell of a column. `smallest_cell` is 10 "
        "unless a line says otherwise. *Linked*: candidates followed "
        "from tree to tree, where they come in a new order; under `lattice` they keep their "
        "numbers. *Bits*: on which side of each cut a person stands; of `ou` nothing else is told. "
        "*Cells*: people whose cell between two cuts is read exactly; of `ou` if it is known which "
        "candidates are of one column. Guessing takes the larger side, and the largest cell. "
        "`paillier` shows the sums that `ou` shows. Of long trainings the first 2,000 equations "
        "are solved, and of wide tables some columns: more time reads more. **With "
        '`sums = "hidden"` there is nothing to solve.**\n'
    )
    yield "### By the number of sums\n"
    rows = []
    for trees in (1, 2, 5, 10, 20, 40):
        shape = {"num_boost_round": trees, "max_depth": 3, "max_bin": 32}
        spent, found = Shown("", some, "lattice", shape, smallest_cell=0).audited()
        bits, cells = (
            found[f"passive's {what}"] for what in ("candidate bits", "cells of columns")
        )
        rows.append(
            [
                str(trees),
                f"{spent:.2f}",
                *(f"{value:.3f}" for one in (bits, cells) for value in (one.value, one.chance)),
            ]
        )
        print(*rows[-1], sep=" | ", flush=True)
    head = ["trees of depth 3", "sums a row", "bits", "guessing", "cells", "guessing"]
    yield table(head, rows)
    yield (
        "1,000 made-up people, 124 candidates, `lattice`. *Sums a row* is what "
        "`most_equations_per_row` bounds. The sums of one tree tell more than guessing does, and "
        "those of twenty nearly everything: no bound allows a model and keeps the columns.\n"
    )


def directions_alone(data: Credit, trees: int = 100) -> Iterator[str]:
    """What winners and directions tell, by column, and what a caller makes of reasons.

    Engine plain: whatever hides the sums, winners and directions are the same.
    """
    passive = {"passive": data.passive}
    with TemporaryDirectory() as folder:
        model = fedmq.simulate(
            active=data.active,
            passive=passive,
            label=data.label,
            params=params(trees, subsample=1.0),
            engine="plain",
            record=folder,
        )
        view = SessionView(Recording.read(Path(folder) / "active.recording"))
    reasons = model.predict(active=data.active, passive=passive, pred_contribs=True)
    own = data.active.shape[1]
    rows = []
    for feature, finding in enumerate(order_from_directions(view, "passive", data.passive)):
        said = reasons[:, own + feature].astype(np.float64)
        by_caller = order_of_ranks([said], data.passive[:, feature])
        rows.append([f"{feature}", f"{finding.value:.3f}", f"{by_caller:.3f}"])
    means = [np.mean([float(row[place]) for row in rows]) for place in (1, 2)]
    rows.append(["mean", *(f"{mean:.3f}" for mean in means)])
    yield f"## Directions and winners alone: {trees} trees\n"
    yield table(["column", "directions in training", "reasons, to a caller"], rows)
    yield (
        f"{TITLES[data.name]}, {len(data.label):,} people, {finding.where}. The share is that of "
        "pairs of people in the right order of a column, less that in the wrong one, either way "
        "round; guessing gives 0. *Directions in training* is what the active party reads with "
        '`sums = "hidden"` as well: each split tells the sides of the people of its node, and '
        "splits that are nested may be of one column. It does not know which column an order is "
        "of. *Reasons, to a caller* is what somebody reads who holds no part of the model and gets "
        'everybody\'s scores with all reasons under `explain = "column"`: people in the order of '
        "what a column added.\n"
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
