"""Bytes and core seconds a tree of hidden sums, with the filter and with gains of all candidates.

::

    python -m benchmarks.hidden_sums ACTIVE.csv PASSIVE.csv [--trees 5] [--depth 3] [--max-bin 32]
        [--own 12 13] [--arithmetic 3.4] [--covert 2] [--json]

Trees are boosted over both tables, as the two parties would; the first column is an id, and the
active party's second one the label. Of each level both halves run in this process, on shares as the
lattice leaves them, without lattice and messages; of each tree every parcel is counted, and the
time of the processor by both halves. Winners are compared with XGBoost's. With ``--covert`` trees
with the filter are trained once more, with as many copies of circuits.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import NEWEST, OLDEST, TrainParams
from fedmq.boosting.splits import (
    UNCONSTRAINED,
    CandidateTable,
    best,
    is_worthwhile,
    leaf_weights,
    split_gains,
)
from fedmq.computation import Given
from fedmq.privacy.engine import ALONE
from fedmq.privacy.hidden_sums.active import Filtering
from fedmq.privacy.hidden_sums.circuits import NodeInputs, circuit_of
from fedmq.privacy.hidden_sums.copies import Copies, CopySecrets
from fedmq.privacy.hidden_sums.evaluator import LevelEvaluator
from fedmq.privacy.hidden_sums.filter import NodeFactors, choose_factors
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.privacy.hidden_sums.level import BackTransfers, HiddenLevel
from fedmq.privacy.hidden_sums.proof import Signer
from fedmq.privacy.hidden_sums.shares import Field
from fedmq.privacy.hidden_sums.steps import Learned, Winners, evaluate_level, garble_level
from fedmq.privacy.hidden_sums.talks import evaluate_copies, garble_copies
from fedmq.privacy.oblivious_transfer.base_transfers import ChooseSeeds, MakeOffer, OfferedSeeds
from fedmq.privacy.oblivious_transfer.correlated import subtract
from fedmq.privacy.oblivious_transfer.extension import (
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
    draw_choices,
)
from fedmq.privacy.plan import Plan
from fedmq.privacy.random_stream import fresh_seed
from tests.privacy.hidden_sums.driven import Running, run_all, size

COUNTED = ("nodes", "wrong", "crowded", "unfit", "doubtful", "overfull", "far")
"""Of nodes; ``far``: those whose quotients reached far."""

SIGNER = Ed25519PrivateKey.generate()


def table(path: Path) -> np.ndarray:
    """All columns but the id: float32, missing ones NaN."""
    with path.open() as file:
        rows = list(csv.reader(file))[1:]
    return np.array([[cell or "nan" for cell in row[1:]] for row in rows]).astype(np.float32)


@dataclass(eq=False)
class Table:
    """A party's bins and candidates."""

    bins: BinMatrix
    candidates: CandidateTable

    @classmethod
    def of(cls, values: np.ndarray, max_bin: int) -> Table:
        cuts = Cuts.of(values, max_bin)
        return cls(BinMatrix.of(values, cuts), CandidateTable.of(cuts))

    def left(self, pairs: np.ndarray, nodes: list[np.ndarray]) -> np.ndarray:
        """Sums on the left of all candidates: int64 (nodes, candidates, 2)."""
        return self.candidates.left_sums(histograms(self.bins, pairs, nodes))

    def goes_left(self, candidate: int, rows: np.ndarray) -> np.ndarray:
        feature = int(self.candidates.feature[candidate])
        codes = self.bins.codes[rows, feature].astype(np.int64)
        missing = codes == self.bins.cuts.n_bins[feature]
        below = codes <= int(self.candidates.bin[candidate])
        return np.where(missing, bool(self.candidates.default_left[candidate]), below)


@dataclass(eq=False)
class Level:
    """A level of nodes, of which the active party asks."""

    tree: int
    left: np.ndarray
    totals: np.ndarray
    pairs: list[np.ndarray]
    to_beat: np.ndarray
    scale: FixedPoint
    foreseen: np.ndarray
    winners: tuple[list[bool], list[int]]


def levels(
    active: np.ndarray,
    passive: np.ndarray,
    trees: int,
    depth: int,
    max_bin: int,
    params: TrainParams,
) -> Iterator[Level]:
    """All levels of a training."""
    label, own = active[:, 0], Table.of(active[:, 1:], max_bin)
    other = Table.of(passive, max_bin)
    margin = np.zeros(len(label), np.float32)
    of_root = 0.0
    for tree in range(trees):
        chance = 1 / (1 + np.exp(-margin))
        floats = np.stack([chance - label, np.maximum(chance * (1 - chance), 1e-16)], 1)
        scale = FixedPoint.of(floats.astype(np.float32))
        pairs = scale.encode(floats.astype(np.float32))
        nodes, foreseen = [np.arange(len(label))], [of_root]
        for level in range(depth):
            totals = np.stack([pairs[rows].sum(axis=0) for rows in nodes])
            scored = []
            for party in (own, other):
                left = party.left(pairs, nodes)
                gains = [
                    split_gains(
                        scale.to_float(of_node),
                        scale.to_float(total - of_node),
                        scale.to_float(total),
                        params,
                    )
                    for of_node, total in zip(left, totals, strict=True)
                ]
                scored.append((left, [best(gain) for gain in gains]))
            (_, of_own), (left, of_other) = scored
            to_beat = np.array([gain for gain, _ in of_own], np.float32)
            won = [
                bool(gain > beaten and is_worthwhile(gain, params))
                for (gain, _), beaten in zip(of_other, to_beat, strict=True)
            ]
            index = [int(at[0]) if wins else 0 for (_, at), wins in zip(of_other, won, strict=True)]
            rows_of = [pairs[rows] for rows in nodes]
            expected = np.array(foreseen, np.float32)
            yield Level(tree, left, totals, rows_of, to_beat, scale, expected, (won, index))
            following, foreseen = [], []
            for number, rows in enumerate(nodes):
                party, (gain, at) = (
                    (other, of_other[number]) if won[number] else (own, of_own[number])
                )
                if not is_worthwhile(gain, params):
                    margin[rows] += leaf_weights(scale.to_float(totals[number]), params)
                    continue
                goes = party.goes_left(int(at[0]), rows)
                following += [rows[goes], rows[~goes]]
                foreseen += [float(gain)] * 2
                of_root = of_root if level else float(gain)
            nodes = following
            if not nodes:
                break
        for rows in nodes:
            margin[rows] += leaf_weights(scale.to_float(pairs[rows].sum(axis=0)), params)


class Session:
    """Both parties' ends of transfers."""

    def __init__(self) -> None:
        self.ends = [self._pair(), self._pair()]
        self.permutations = [Permutation(b"benchmark"), Permutation(b"benchmark back")]
        self.tweaks = [[Tweaks(), Tweaks()] for _ in range(2)]

    @staticmethod
    def _pair() -> tuple[ExtensionReceiver, ExtensionSender]:
        secret, seed = draw_choices(fresh_seed()), fresh_seed()
        chosen, seeds = ChooseSeeds(MakeOffer(seed).run(), ~secret, fresh_seed()).run()
        return (
            ExtensionReceiver(OfferedSeeds(chosen, seed).run()),
            ExtensionSender(secret, seeds),
        )

    def plans(
        self,
        level: Level,
        rows: int,
        params: TrainParams,
        factors: list[NodeFactors | None],
        copies: int,
        far: bool,
    ) -> tuple[Plan[Learned], Plan[Winners]]:
        """Those of both parties; of ``copies`` if there are several. ``far``: quotients reach."""
        sums = field_of(level, rows)
        drawn = np.random.default_rng().integers(0, 2**64, level.left.shape, np.uint64) & sums.mask
        joint = sums.joined(level.left.view(np.uint64))
        own = sums.parted(subtract(joint, sums.joined(drawn)))
        (receiver, sender), (back_receiver, back_sender) = self.ends
        public, back = self.permutations
        circuit = circuit_of(params, level.scale, sums, UNCONSTRAINED).ranked_at(ALONE)
        circuit = replace(circuit, far=far)
        inputs = NodeInputs.of(level.totals, level.to_beat, level.scale, params, circuit)
        if copies > 1:
            hidden = HiddenLevel(circuit, *level.left.shape[:2])
            known, its = (
                Copies.of(hidden, copies, (public, tweaks), (back, tweaks_back))
                for tweaks, tweaks_back in self.tweaks
            )
            ends = (receiver, back_sender, own, inputs, Given(factors))
            party = Signer("passive", SIGNER.public_key().public_bytes_raw(), b"")
            keys = CopySecrets.of(fresh_seed(), its)
            return (
                evaluate_copies(known, *ends, party, 1),
                garble_copies(its, drawn, keys, sender, back_receiver, SIGNER, 1),
            )
        evaluator = LevelEvaluator(
            circuit,
            own,
            inputs,
            Given(factors),
            receiver,
            public,
            self.tweaks[0][0],
            BackTransfers(back_sender, back, self.tweaks[0][1]),
        )
        garbler = LevelGarbler(
            circuit,
            drawn,
            np.empty((0, drawn[..., 0].size), np.bool_),
            sender,
            public,
            self.tweaks[1][0],
            BackTransfers(back_receiver, back, self.tweaks[1][1]),
            fresh_seed(),
        )
        return evaluate_level(evaluator, 1), garble_level(garbler, 1)


def field_of(level: Level, rows: int) -> Field:
    """The fields of shares."""
    return Field(level.scale.value_bits + max(rows - 1, 1).bit_length() + 2)


@dataclass
class Measured:
    """What all levels took, and how many nodes were wrong, crowded, unfit and so on."""

    up: int = 0
    down: int = 0
    seconds: float = 0.0
    nodes: int = 0
    wrong: int = 0
    crowded: int = 0
    unfit: int = 0
    doubtful: int = 0
    overfull: int = 0
    far: int = 0
    parcels: list[int] = field(default_factory=list)


def run(
    session: Session,
    level: Level,
    rows: int,
    params: TrainParams,
    *,
    filtering: bool,
    far: bool = False,
    copies: int = 1,
) -> Measured:
    """One level."""
    start = time.process_time()
    factors: list[NodeFactors | None] = [None] * len(level.totals)
    if filtering:
        known = (level.pairs, level.totals, level.to_beat, level.foreseen)
        factors = choose_factors(*known, level.scale, params, field_of(level, rows), far=far)
    evaluating, garbling = session.plans(level, rows, params, factors, copies, far)
    active = Running(evaluating)
    passive = Running(garbling, active.hear, opened=False)
    active.send = passive.hear
    learned, winners = run_all([active, passive])
    won = [winner is not None for winner in winners]
    crowded = learned.crowded
    seconds = time.process_time() - start
    wrong = sum(
        found != wanted
        for found, wanted in zip(
            zip(won, [winner or 0 for winner in winners], strict=True),
            zip(*level.winners, strict=True),
            strict=True,
        )
    )
    return Measured(
        sum(map(size, passive.heard)),
        sum(map(size, active.heard)),
        seconds,
        len(won),
        wrong,
        int(crowded.sum()),
        factors.count(None) if filtering else 0,
        int(learned.doubtful.sum()),
        int(learned.overfull.sum()),
        len(won) if far else 0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("active", type=Path)
    parser.add_argument("passive", type=Path)
    parser.add_argument("--trees", type=int, default=5)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--max-bin", type=int, default=32)
    parser.add_argument("--whole-trees", type=int, default=1, help="trees without the filter")
    parser.add_argument("--arithmetic", choices=(OLDEST, NEWEST), default=OLDEST)
    parser.add_argument("--own", type=int, nargs="+", help="the active party's columns, from 1 on")
    parser.add_argument("--covert", type=int, default=1, help="copies of circuits")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    params = TrainParams(xgboost_arithmetic=options.arithmetic)
    active, passive = table(options.active), table(options.passive)
    active = active[:, [0, *options.own]] if options.own else active
    session, totals = Session(), {"filter": Measured(), "all": Measured()}
    if options.covert > 1:
        totals["copies"] = Measured()
    # The first level makes schedules, which a session needs once.
    shape = (options.depth, options.max_bin, params)
    first = next(levels(active, passive, 1, *shape))
    for filtering, far in ((True, False), (True, True), (False, False)):
        run(session, first, len(active), params, filtering=filtering, far=far)
    state = Filtering()
    for level in levels(active, passive, options.trees, *shape):
        for name, measured in totals.items():
            if name == "all" and level.tree >= options.whole_trees:
                continue
            goes_on = name != "all" and state.goes_on
            far = goes_on and state.far
            copies = options.covert if name == "copies" else 1
            found = run(
                session,
                level,
                len(active),
                params,
                filtering=goes_on,
                far=far,
                copies=copies,
            )
            if name == "filter":
                state.count(found.nodes, found.crowded, found.overfull, found.doubtful)
            for key in ("up", "down", "seconds", *COUNTED):
                setattr(measured, key, getattr(measured, key) + getattr(found, key))
    figures = {}
    for name, measured in totals.items():
        trees = options.trees if name != "all" else min(options.trees, options.whole_trees)
        if not trees:
            continue
        figures[name] = {
            "MB a tree": (measured.up + measured.down) / trees / 1e6,
            "MB up": measured.up / trees / 1e6,
            "core s a tree": measured.seconds / trees,
            **{key: getattr(measured, key) for key in COUNTED},
        }
    if options.json:
        print(json.dumps(figures))
        return
    for name, of in figures.items():
        shown = ", ".join(f"{key} {value:.4g}" for key, value in of.items())
        print(f"{name}: {shown}")


if __name__ == "__main__":
    main()
