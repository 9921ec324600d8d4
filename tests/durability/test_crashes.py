"""Parties crash in the middle of a training, and the model is the one of an undisturbed run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.computation import Given
from fedmq.party.data.held_out import folds_of
from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.engines.plain import Plain
from fedmq.protocol.events import Cancelled
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, Fold, PassiveTable
from fedmq.simulation.simulate import chained
from tests.crash_simulator import Build, CrashSimulation, Faults
from tests.how_often import each_seed, seldom, some_seeds
from tests.protocol.alignment.alignments import machines, people

PARTIES = ("bank", "telco", "retail")
TREES = 4


def builds(
    params: TrainParams,
    engine: Engine,
    rows: int = 60,
    earlier: Mapping[str, Any] = MappingProxyType({}),
    nfold: int = 0,
    parties: Sequence[str] = PARTIES,
) -> Mapping[str, Build]:
    random = np.random.default_rng(5)
    X = random.normal(size=(rows, 5)).round(1).astype(np.float32)
    label = (X.sum(axis=1) + random.normal(size=rows) > 0).astype(np.float32)
    X[random.random(X.shape) < 0.1] = np.nan
    held_out = random.random(rows) < 0.25
    pairs = folds_of(label, nfold=nfold) if nfold else ()
    folds = tuple(Fold(*(np.isin(np.arange(rows), part) for part in pair)) for pair in pairs)
    if folds:
        held_out = np.zeros(rows, np.bool_)
    own = ActiveTable(X[:, :2], ("a", "b"), label, held_out, folds=folds)
    others = {
        "telco": PassiveTable(X[:, 2:4], ("c", "d")),
        "retail": PassiveTable(X[:, 4:], ("e",)),
    }
    others = {party: table for party, table in others.items() if party in parties}

    def passive(party: str) -> Build:
        return lambda saved: PassiveTraining(
            party,
            "bank",
            Given(others[party]),
            lambda _: engine,
            PARTIES.index(party),
            saved=saved,
            find_share=lambda _: Given(earlier[party]),
            others=chained(engine, others, party),
        )

    return {
        "bank": lambda saved: ActiveTraining(
            "model",
            "bank",
            tuple(others),
            own,
            params,
            engine,
            saved=saved,
            earlier=earlier.get("bank"),
        ),
        **{party: passive(party) for party in others},
    }


def trained(seed: int, faults: Faults, engine: Engine, **params: object) -> CrashSimulation:
    settings = {"num_boost_round": TREES, "max_depth": 3, "max_bin": 8, **params}
    simulation = CrashSimulation(builds(TrainParams(**settings), engine), faults, seed)
    simulation.run()
    return simulation


def shares(simulation: CrashSimulation) -> dict[str, str]:
    return {party: share.dumps() for party, share in simulation.results.items()}


def crashes(seed: int, count: int, until: float) -> list[tuple[float, str, float]]:
    random = np.random.default_rng([seed, 1])
    return [
        (random.random() * until, str(random.choice(PARTIES)), random.random() * 20.0)
        for _ in range(count)
    ]


VARIANTS: list[dict[str, object]] = [
    {},
    {"subsample": 0.7, "colsample_bytree": 0.6},
    {"num_boost_round": 12, "early_stopping_rounds": 2, "eta": 1.0},
    {"active_only_trees": 2},
    {"objective": "multi:softprob", "num_class": 2, "num_boost_round": 2},
    {"objective": "reg:absoluteerror"},
    {"num_parallel_tree": 3, "num_boost_round": 2, "subsample": 0.8},
    {"interaction_constraints": (("a", "telco.c"), ("telco.*", "retail.e"))},
    {
        "objective": "multi:softprob",
        "num_class": 2,
        "multi_strategy": "multi_output_tree",
        "num_parallel_tree": 2,
        "num_boost_round": 2,
    },
    {"booster": "dart", "rate_drop": 0.5, "num_boost_round": 5},
]


@pytest.mark.parametrize("old", PARTIES)
@pytest.mark.parametrize("kind", ["training", "cross-validation", "continuation"])
def test_the_party_whose_state_is_old_is_named_to_everybody(kind: str, old: str) -> None:
    """As after its state folder was put back from a backup in the middle of a session."""
    rounds = 2 if kind == "cross-validation" else TREES
    params = TrainParams(num_boost_round=rounds, max_depth=3, max_bin=8)
    earlier = trained(0, Faults(), Plain()).results if kind == "continuation" else {}
    machines = builds(params, Plain(), earlier=earlier, nfold=2 * (kind == "cross-validation"))
    calm = CrashSimulation(machines, Faults())
    calm.run()
    away = 0.9 * calm.ended
    simulation = CrashSimulation(machines, Faults(crashes=((away, old, 5.0),)))
    put_back: list[tuple[int, int]] = []

    def put_state_back() -> None:
        disk = simulation.parties[old].disk
        put_back.append((len(disk.rows), len(simulation.parties["bank"].disk.rows)))
        disk.rows = disk.rows[:1]

    simulation.at(away + 2.0, put_state_back)
    simulation.play()
    assert put_back[0][0] >= 3
    for party in simulation.parties.values():
        assert f"the state of {old} is old" in party.disk.error
        assert "broke the protocol" not in party.disk.error


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@some_seeds(75, block=15)
def test_hundreds_of_schedules_end_with_the_model_of_a_calm_one(
    variant: dict[str, object], seeds: range
) -> None:
    calm = trained(0, Faults(), Plain(), **variant)
    attempts = 0
    for seed in seeds:
        faults = Faults(
            drop=0.1 * (seed % 3),
            repeat=0.2 * (seed % 2),
            crashes=crashes(seed, 1 + seed % 5, 1.2 * calm.ended),
        )
        shaken = trained(seed, faults, Plain(), **variant)
        assert shares(shaken) == shares(calm), f"seed {seed}"
        # No crash costs more than the tree that grew.
        assert shaken.trees_begun == sorted(shaken.trees_begun), f"seed {seed}"
        attempts += shaken.attempts
    assert attempts >= len(seeds) * 5 / 3


FOLDS: list[dict[str, object]] = [
    {"subsample": 0.7, "colsample_bytree": 0.6, "num_boost_round": 2},
    {"num_boost_round": 8, "early_stopping_rounds": 1, "eta": 1.0, "active_only_trees": 1},
    {"objective": "multi:softprob", "num_class": 2, "num_boost_round": 2, "max_depth": 2},
    {"booster": "dart", "rate_drop": 0.5, "num_boost_round": 3, "max_depth": 2},
]


@pytest.mark.parametrize("variant", [*FOLDS[:2], *seldom(*FOLDS[2:])], ids=str)
@some_seeds(10)
def test_a_cross_validation_goes_on_with_the_fold_and_tree_where_it_stood(
    variant: dict[str, object], seeds: range
) -> None:
    params = TrainParams(**{"max_depth": 3, "max_bin": 8, **variant})
    calm = CrossValidation(params)
    assert calm.results["telco"] is calm.results["retail"] is None
    attempts = 0
    for seed in seeds:
        faults = Faults(
            drop=0.1 * (seed % 3),
            repeat=0.2 * (seed % 2),
            crashes=crashes(seed, 1 + seed % 5, 1.2 * calm.ended),
        )
        shaken = CrossValidation(params, faults, seed)
        assert shaken.results["bank"].dumps() == calm.results["bank"].dumps(), f"seed {seed}"
        assert shaken.trees_begun == sorted(shaken.trees_begun), f"seed {seed}"
        attempts += shaken.attempts
    assert attempts >= len(seeds) * 2
    assert calm.results["bank"].rounds <= params.num_boost_round
    early = params.early_stopping_rounds is not None
    assert (calm.results["bank"].rounds < params.num_boost_round) == early


class CrossValidation(CrashSimulation):
    """Of three folds, to its end."""

    def __init__(self, params: TrainParams, faults: Faults | None = None, seed: int = 0) -> None:
        super().__init__(builds(params, Plain(), nfold=3), faults or Faults(), seed)
        self.run()


@some_seeds(30, block=12)
def test_trainings_that_continue_a_model_end_with_the_trees_of_both(seeds: range) -> None:
    settings = {"max_depth": 3, "max_bin": 8}
    params = TrainParams(num_boost_round=2, **settings)
    first = trained(0, Faults(), Plain(), num_boost_round=2)
    whole = trained(0, Faults(), Plain(), num_boost_round=4)
    attempts = 0
    for seed in seeds:
        faults = Faults(
            drop=0.1 * (seed % 3),
            repeat=0.2 * (seed % 2),
            crashes=crashes(seed, seed % 5, 1.5 * first.ended),
        )
        continuing = builds(params, Plain(), earlier=first.results)
        simulation = CrashSimulation(continuing, faults, seed)
        simulation.run()
        assert trees_and_records(simulation) == trees_and_records(whole), f"seed {seed}"
        attempts += simulation.attempts
    assert attempts >= len(seeds) * 3 / 2


def trees_and_records(simulation: CrashSimulation) -> list[str]:
    share, *others = (simulation.results[party] for party in PARTIES)
    trees = [tree.model_dump_json() for tree in share.trees]
    return [*trees, share.lookup_table.model_dump_json(), *(other.dumps() for other in others)]


@each_seed(6)
def test_a_crash_costs_a_lattice_its_hint_and_no_more_than_a_tree(seed: int) -> None:
    """A new attempt makes new secrets, and comes to the same model."""
    settings: dict[str, object] = {"num_boost_round": 3}
    if seed % 2:
        settings |= {"gradient_bits": 6}
    calm = trained(0, Faults(), Plain(), **settings)
    engine = Lattice(directions="oblivious" if seed % 3 == 0 else "all")
    faults = Faults(
        drop=0.1 * (seed % 2), repeat=0.2, crashes=crashes(seed, 1 + seed % 3, 1.2 * calm.ended)
    )
    shaken = trained(seed, faults, engine, **settings)
    assert shares(shaken) == shares(calm)
    assert shaken.trees_begun == sorted(shaken.trees_begun)
    assert shaken.attempts > 1


@each_seed(4, often=1)
def test_hidden_sums_begin_anew_after_a_crash_with_other_secrets(seed: int) -> None:
    params = TrainParams(num_boost_round=3, max_depth=3, max_bin=4, xgboost_arithmetic=OLDEST)
    parties = PARTIES[:2]
    calm = CrashSimulation(builds(params, Plain(), parties=parties), Faults(), 0)
    calm.run()
    faults = Faults(
        drop=0.1 * (seed % 2),
        repeat=0.2,
        crashes=[
            (time, party, away)
            for time, party, away in crashes(seed, 3, 1.5 * calm.ended)
            if party in parties
        ],
    )
    shaken = CrashSimulation(builds(params, Lattice(sums="hidden"), parties=parties), faults, seed)
    shaken.run()
    assert shares(shaken) == shares(calm)
    assert shaken.trees_begun == sorted(shaken.trees_begun)
    assert shaken.attempts > 1


@pytest.mark.long
@each_seed(3, often=1)
def test_a_crash_costs_a_chain_of_hidden_sums_no_more_than_a_tree(seed: int) -> None:
    """Base transfers, masks and labels of an attempt are its own; the model is the same."""
    settings: dict[str, object] = {
        "num_boost_round": 2,
        "max_depth": 2,
        "xgboost_arithmetic": OLDEST,
    }
    calm = trained(0, Faults(), Plain(), **settings)
    faults = Faults(
        drop=0.1 * (seed % 2), repeat=0.2, crashes=crashes(seed, 1 + seed % 2, 1.2 * calm.ended)
    )
    shaken = trained(seed, faults, Lattice(sums="hidden"), **settings)
    assert shares(shaken) == shares(calm)
    assert shaken.trees_begun == sorted(shaken.trees_begun)
    assert shaken.attempts > 1


@each_seed(40)
def test_owners_are_asked_through_crashes_and_the_model_is_that_of_a_calm_run(seed: int) -> None:
    params = TrainParams(num_boost_round=2, max_depth=3, max_bin=8)
    calm = trained(0, Faults(), Plain(), num_boost_round=2)
    random = np.random.default_rng([seed, 3])
    owners = {party: random.random() * 60.0 for party in PARTIES[1:]}
    faults = Faults(drop=0.1 * (seed % 3), repeat=0.2 * (seed % 2), crashes=crashes(seed, 4, 60.0))
    machines = builds(params, Plain())

    def asked(party: str) -> Build:
        def build(saved: Any) -> Any:
            machine = machines[party](saved)
            if party in owners and not simulation.has_agreed(party):
                machine._consent._within = 3600
            return machine

        return build

    simulation = CrashSimulation(
        {party: asked(party) for party in PARTIES}, faults, seed, owners=owners
    )
    simulation.run()
    assert shares(simulation) == shares(calm)
    assert simulation.ended > max(owners.values())
    assert simulation.trees_begun == sorted(simulation.trees_begun)


class CancelledBeforeTheNextAttempt(CrashSimulation):
    """The active party's owner cancels when a new attempt is due, and before it opens."""

    last_sent = 0.0

    def _interrupted(self, name: str, life: int) -> None:
        if name == self.active:
            self._later(name, 0.01, Cancelled("bank cancelled the session"))
        else:
            super()._interrupted(name, life)

    def _send(self, recipient: str, data: bytes) -> None:
        self.last_sent = self.now
        super()._send(recipient, data)


@each_seed(20)
def test_a_training_cancelled_between_two_attempts_ends_everywhere_within_minutes(
    seed: int,
) -> None:
    params = TrainParams(num_boost_round=TREES, max_depth=3, max_bin=8)
    crashed = 2.0 + np.random.default_rng([seed, 4]).random() * 8.0
    faults = Faults(drop=0.2 * (seed % 2), crashes=[(crashed, "telco", 5.0)])
    simulation = CancelledBeforeTheNextAttempt(builds(params, Plain()), faults, seed)
    simulation.play()
    errors = {name: party.disk.error for name, party in simulation.parties.items()}
    assert all(errors.values()), errors
    assert simulation.attempts == 1
    assert simulation.last_sent < crashed + 300


class PartiesWithoutStore(CrashSimulation):
    """Parties that come back know nothing but which attempts they have seen.

    None crashes while it stores the alignment, which it would then lack.
    """

    def _crash(self, name: str, away: float) -> None:
        session = self.parties[name].session
        if session is None or session.machine.state.name not in ("STORING", "FINISHED"):
            super()._crash(name, away)

    def _come_back(self, name: str) -> None:
        pass


@each_seed(60)
def test_an_alignment_begins_anew_when_a_party_comes_back(seed: int) -> None:
    owners, keys = people(3, seed), itertools.count()
    random = np.random.default_rng([seed, 2])
    crashed = [
        (random.random() * 8.0, str(random.choice(PARTIES[1:])), random.random() * 20.0)
        for _ in range(1 + seed % 3)
    ]

    def build(party: str) -> Build:
        return lambda _: machines(owners, seed=next(keys))[party]

    faults = Faults(drop=0.1 * (seed % 2), crashes=crashed)
    simulation = PartiesWithoutStore({party: build(party) for party in owners}, faults, seed)
    simulation.run()

    common = set.intersection(*(set(owner.names) for owner in owners.values()))
    stored = [owner.stored for owner in owners.values()]
    assert stored[0] == stored[1] == stored[2]
    assert sorted(stored[0]) == sorted(common)
