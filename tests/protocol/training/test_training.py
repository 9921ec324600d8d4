"""Training through the machines: the same model, whatever befalls the messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.errors import Aborted, FedmqError, PeerSilent
from fedmq.messages.training import SplitDecision, TreeFinished, TreeStarted
from fedmq.protocol.events import Cancelled
from tests.boosting.pooled import joined_cuts
from tests.how_often import seldom, some_seeds
from tests.protocol.federation import ACTIVE, OU, PAILLIER, Federation, joined, shares, small
from tests.simulator import Link, Simulation

ROUGH = {"subsample": 0.7, "colsample_bytree": 0.6}


def made_up(rows: int, columns: int, seed: int, missing: float = 0.1) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, columns)).round(1).astype(np.float32)
    label = (X[:, 0] * X[:, -1] + X.sum(axis=1) > 0).astype(np.float32)
    X[random.random(X.shape) < missing] = np.nan
    return X, label


def drawn(seed: int, end: float) -> float:
    """A time before ``end``."""
    return float(np.random.default_rng([seed, 1]).uniform(0, end))


# Schedules


@pytest.mark.parametrize("counts", [(2, 3), (2, 2, 1)], ids=["two parties", "three parties"])
@pytest.mark.parametrize("params", [{}, ROUGH], ids=["all rows", "sampled"])
@some_seeds(60)
def test_no_schedule_changes_a_byte_of_the_model(
    counts: tuple[int, ...], params: dict[str, Any], seeds: range
) -> None:
    federation = small(counts=counts, **params)
    undisturbed = shares(federation.train())
    for seed in seeds:
        link = Link(drop=0.1 * (seed % 4), repeat=0.3, delay=(0.01, 1.0, 5.0)[seed % 3])
        assert shares(federation.train(seed=seed, link=link)) == undisturbed, f"seed {seed}"


@pytest.mark.parametrize("counts", [(2, 3), (2, 2, 1)], ids=["two parties", "three parties"])
@some_seeds(40, often=6)
def test_a_link_that_loses_most_messages_ends_in_a_model_or_an_error_everywhere(
    counts: tuple[int, ...], seeds: range
) -> None:
    federation = small(counts=counts)
    undisturbed = shares(federation.train())
    ended_in_error = 0
    for seed in seeds:
        simulation = federation.train(seed=seed, link=Link(drop=0.65, delay=0.5))
        ended_in_error += bool(simulation.errors)
        for error in simulation.errors.values():
            assert isinstance(error, Aborted | PeerSilent)
        for party, share in simulation.results.items():
            assert share.dumps() == undisturbed[party]
    assert 0 < ended_in_error < len(seeds)


@pytest.mark.parametrize("dead", ["telco", "shop"])
@some_seeds(25)
def test_the_active_party_names_a_passive_party_that_dies_and_tells_the_others(
    dead: str, seeds: range
) -> None:
    federation = small()
    end = federation.train(link=Link(delay=1.0)).ended
    (other,) = {"telco", "shop"} - {dead}
    for seed in seeds:
        deaths = {dead: drawn(seed, end)}
        simulation = federation.train(seed=seed, link=Link(0.1, 0.1, 1.0), deaths=deaths)
        if not simulation.errors:
            assert simulation.results.keys() >= {ACTIVE, other}
            continue
        silent, heard = simulation.errors[ACTIVE], simulation.errors[other]
        assert isinstance(silent, PeerSilent)
        assert dead in str(silent)
        assert isinstance(heard, Aborted)
        assert dead in str(heard)
        assert any(waiting.peer == dead for _, waiting in simulation.waits)


@pytest.mark.parametrize("cut_off", [ACTIVE, "telco"])
@some_seeds(20)
def test_an_outage_shorter_than_the_patience_of_all_changes_nothing(
    cut_off: str, seeds: range
) -> None:
    federation = small()
    undisturbed = shares(federation.train())
    end = federation.train(link=Link(delay=1.0)).ended
    waited = 0
    for seed in seeds:
        begins = drawn(seed, end)
        outages = {cut_off: (begins, begins + 90)}
        simulation = federation.train(seed=seed, link=Link(delay=1.0), outages=outages)
        assert shares(simulation) == undisturbed, f"seed {seed}"
        waited += bool(simulation.waits)
    assert waited == len(seeds)


@some_seeds(25)
def test_passive_parties_name_an_active_party_that_dies(seeds: range) -> None:
    federation = small()
    end = federation.train(link=Link(delay=1.0)).ended
    named = 0
    for seed in seeds:
        deaths = {ACTIVE: drawn(seed, end)}
        simulation = federation.train(seed=seed, link=Link(0.1, 0.1, 1.0), deaths=deaths)
        for party, error in simulation.errors.items():
            assert party != ACTIVE
            assert isinstance(error, PeerSilent)
            assert ACTIVE in str(error)
            named += 1
    assert named > len(seeds)


def test_a_party_that_never_answers_ends_the_session_within_minutes() -> None:
    simulation = small().train(deaths={"shop": 0.0})
    assert str(simulation.errors[ACTIVE]).startswith("shop has not answered")
    assert "shop" in str(simulation.errors["telco"])
    assert simulation.ended < 600


# Lossless


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(
    "counts",
    [(6,), (3, 3), (0, 6), (2, 2, 2), *seldom((1, 5), (5, 1), (1, 4, 1), (0, 3, 3))],
    ids=str,
)
def test_however_columns_are_dealt_out_the_model_is_xgboosts(
    counts: tuple[int, ...], missing: float
) -> None:
    pytest.importorskip("xgboost")
    X, label = made_up(150, 6, seed=3, missing=missing)
    assert_is_xgboosts(Federation.dealt(X, label, counts, max_depth=4, num_boost_round=3))


@pytest.mark.parametrize("max_depth", [3, 6])
@pytest.mark.parametrize("counts", [(10, 20), (8, 12, 10)], ids=["two parties", "three parties"])
def test_breast_cancer_is_learned_node_by_node_as_by_xgboost(
    counts: tuple[int, ...], max_depth: int
) -> None:
    pytest.importorskip("xgboost")
    table = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    X, label = table.data.astype(np.float32), table.target.astype(np.float32)
    params = {"max_depth": max_depth, "num_boost_round": 4, "max_bin": 32}
    assert_is_xgboosts(Federation.dealt(X, label, counts, **params))


def assert_is_xgboosts(federation: Federation) -> None:
    simulation = federation.train(link=Link(delay=0.5))
    parts = list(federation.columns.values())
    cuts = joined_cuts([Cuts.of(part, federation.params.max_bin) for part in parts])
    bins = BinMatrix.of(np.concatenate(parts, axis=1), cuts)
    reference = train_reference(bins, federation.label, federation.params)
    parity = compare(reference, joined(federation, simulation), bins)
    assert parity.first_difference is None
    assert parity.identical == parity.total >= 10


@pytest.mark.parametrize("engine", [PAILLIER, OU], ids=lambda engine: engine.name)
@pytest.mark.parametrize("counts", [(2, 2, 1), *seldom((2, 3), (0, 3))], ids=str)
@pytest.mark.parametrize("params", [{}, ROUGH], ids=["all rows", "sampled"])
def test_encryption_changes_no_byte_of_the_model(
    engine: Any, counts: tuple[int, ...], params: dict[str, Any]
) -> None:
    federation = small(counts=counts, **params)
    plain = shares(federation.train())
    assert shares(federation.having(engine=engine).train(link=Link(0.1, 0.1, 0.5))) == plain


@pytest.mark.parametrize("engine", [PAILLIER, OU], ids=lambda engine: engine.name)
def test_encryption_changes_no_byte_of_a_deep_model_of_real_rows(engine: Any) -> None:
    table = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    X, label = table.data[:, ::3].astype(np.float32), table.target.astype(np.float32)
    federation = Federation.dealt(X, label, (3, 4, 3), max_depth=6, max_bin=16)
    assert shares(federation.having(engine=engine).train()) == shares(federation.train())


# Ties


def splits(federation: Federation) -> list[tuple[int, int]]:
    """Owner and joined column of every split."""
    simulation = federation.train()
    return [
        (owner, feature)
        for tree in joined(federation, simulation)
        for owner, feature in zip(tree.tree.owner.tolist(), tree.feature.tolist(), strict=True)
        if owner >= 0
    ]


@pytest.mark.parametrize("counts", [(1, 1), (0, 1, 1), (0, 2)], ids=str)
def test_of_two_equal_columns_the_first_joined_one_is_split(counts: tuple[int, ...]) -> None:
    pytest.importorskip("xgboost")
    X, label = made_up(100, 2, seed=4)
    X[:, 1] = X[:, 0]
    federation = Federation.dealt(X, label, counts)
    first_owner = min(owner for owner, count in enumerate(counts) if count)
    assert set(splits(federation)) == {(first_owner, 0)}
    assert_is_xgboosts(federation)


@pytest.mark.parametrize("mirrored", [False, True])
def test_candidates_that_part_the_rows_alike_are_named_once(mirrored: bool) -> None:
    X, label = made_up(100, 2, seed=4)
    X[:, 1] = -X[:, 0] if mirrored else X[:, 0]
    decisions: list[Any] = []
    Federation.dealt(X, label, (0, 2)).train(tap=lambda envelope: decisions.append(envelope.body))
    tied = [body.candidates.shape[0] for body in decisions if isinstance(body, SplitDecision)]
    assert tied
    assert max(tied) == 1


# What parameters and tables ask for


def test_early_stopping_ends_the_session_everywhere_at_the_best_round() -> None:
    random = np.random.default_rng(0)
    federation = small(num_boost_round=40, early_stopping_rounds=3, seed=5)
    noise = random.integers(0, 2, len(federation.label)).astype(np.float32)
    simulation = federation.having(label=noise).train(link=Link(0.1, 0.1, 0.5))
    assert not simulation.errors
    share = simulation.results[ACTIVE]
    assert share.best_iteration is not None
    assert len(share.trees) == share.best_iteration + 4 < 40
    assert set(simulation.results) == {ACTIVE, "telco", "shop"}
    watched = share.history["eval-logloss"]
    assert min(watched) == watched[share.best_iteration]


def test_the_first_trees_of_rl_secureboost_are_the_active_partys_alone() -> None:
    order: list[str] = []
    starts: list[int] = []

    def tap(envelope: Any) -> None:
        order.append(envelope.header.kind)
        if isinstance(envelope.body, TreeStarted):
            starts.append(envelope.body.tree)

    federation = small(num_boost_round=3, active_only_trees=2)
    simulation = federation.train(tap=tap)
    first, second, third = simulation.results[ACTIVE].trees
    assert set(first.owner.tolist()) <= {-1, 0}
    assert set(second.owner.tolist()) <= {-1, 0}
    assert set(third.owner.tolist()) - {-1, 0}
    assert starts == [2, 2]
    quiet = ("acknowledge", "probe", "training open", "session accept")
    before = [kind for kind in order[: order.index("tree started")] if kind not in quiet]
    assert before == []


def test_a_model_of_active_only_trees_alone_asks_nothing_of_anyone() -> None:
    kinds: set[str] = set()
    federation = small(active_only_trees=2)
    simulation = federation.train(tap=lambda envelope: kinds.add(envelope.header.kind))
    assert not simulation.errors
    assert "histogram request" not in kinds
    assert "gradient broadcast" not in kinds


def test_trees_of_one_split_assign_no_rows() -> None:
    kinds: set[str] = set()
    federation = small(max_depth=1, num_boost_round=4)
    simulation = federation.train(tap=lambda envelope: kinds.add(envelope.header.kind))
    assert [len(tree) for tree in simulation.results[ACTIVE].trees] == [3, 3, 3, 3]
    assert "split decision" in kinds
    assert "node assignment" not in kinds


@pytest.mark.parametrize("engine", [None, PAILLIER], ids=["plain", "paillier"])
def test_a_party_without_features_takes_part_and_changes_nothing(engine: Any) -> None:
    with_nobody, alone = small(counts=(3, 0, 2)), small(counts=(3, 2))
    if engine:
        with_nobody = with_nobody.having(engine=engine)
    simulation = with_nobody.train()
    assert len(simulation.results["telco"].lookup_table) == 0
    ours, theirs = joined(with_nobody, simulation), joined(alone, alone.train())
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(our.feature, their.feature)
        np.testing.assert_array_equal(our.tree.weight, their.tree.weight)


def test_without_passive_parties_nothing_is_said() -> None:
    envelopes: list[Any] = []
    federation = small(counts=(4,))
    simulation = federation.train(tap=envelopes.append)
    assert len(simulation.results[ACTIVE].trees) == 2
    assert envelopes == []


@pytest.mark.parametrize("engine", [None, PAILLIER], ids=["plain", "paillier"])
@pytest.mark.parametrize("rows", [1, 2])
def test_so_few_rows_make_trees_of_one_leaf(rows: int, engine: Any) -> None:
    X = np.ones((rows, 2), np.float32)
    federation = Federation.dealt(X, np.ones(rows, np.float32), (1, 1))
    if engine:
        federation = federation.having(engine=engine)
    simulation = federation.train()
    assert [len(tree) for tree in simulation.results[ACTIVE].trees] == [1, 1]


def test_equal_labels_make_a_model_that_says_so() -> None:
    federation = small().having(label=np.ones(80, np.float32), num_boost_round=3)
    simulation = federation.train()
    assert not simulation.errors
    for tree in simulation.results[ACTIVE].trees:
        assert (tree.weight[tree.is_leaf] > 0).all()


@pytest.mark.parametrize("engine", [None, PAILLIER], ids=["plain", "paillier"])
def test_a_tree_whose_sample_is_empty_is_a_leaf_of_weight_zero(engine: Any) -> None:
    federation = small(rows=10, subsample=1e-6)
    if engine:
        federation = federation.having(engine=engine)
    simulation = federation.train()
    assert not simulation.errors
    assert [tree.weight.tolist() for tree in simulation.results[ACTIVE].trees] == [[0.0], [0.0]]


def test_progress_is_reported_tree_by_tree_by_every_party() -> None:
    simulation = small(num_boost_round=3).train()
    for party in (ACTIVE, "telco", "shop"):
        done = [report.done for name, report in simulation.reports if name == party]
        assert done == [1, 2, 3]
        assert all(report.total == 3 for _, report in simulation.reports)


def test_every_tree_that_is_started_is_finished_once_at_each_party() -> None:
    bodies: list[Any] = []
    small(num_boost_round=3).train(tap=lambda envelope: bodies.append(envelope.body))
    finished = [body.tree for body in bodies if isinstance(body, TreeFinished)]
    assert finished == [0, 0, 1, 1, 2, 2]


def test_a_cancelled_session_ends_everywhere_with_the_reason() -> None:
    simulation = Simulation(small().training())
    simulation.cause(0.01, "telco", Cancelled("the owner wants it back"))
    simulation.run()
    assert set(simulation.errors) == {ACTIVE, "telco", "shop"}
    for error in simulation.errors.values():
        assert isinstance(error, FedmqError)
        assert "the owner wants it back" in str(error)
