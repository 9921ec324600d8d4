"""The privacy promise, checked against every message of real trainings and predictions."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.boosting.splits import depth
from fedmq.computation import Given
from fedmq.messages import training
from fedmq.messages.body import Acknowledge
from fedmq.messages.envelope import Envelope
from fedmq.messages.inference import HopReply, InferenceHop
from fedmq.privacy.engine import Engine, Query
from fedmq.privacy.engines import plain
from fedmq.privacy.engines.lattice import Lattice
from fedmq.protocol.training.candidates import OwnColumns
from fedmq.protocol.training.terms import Fold, PassiveTable
from tests.how_often import seldom, seldom_several
from tests.protocol.federation import (
    ACTIVE,
    OU,
    PAILLIER,
    PLAIN,
    Federation,
    names,
    ran,
)
from tests.protocol.inspection import Bits, Numbers, Secret, leaks, secrets_of
from tests.protocol.wiretap import ROWS, federation, trained


@pytest.fixture(autouse=True)
def small_group() -> None:
    """All of 2048 bits: zeros behind a short element would now and then end as a float begins."""


def active_only(what: str, values: Any) -> Secret:
    return Numbers(what, [ACTIVE], values)


# The promise


BY_GAINS: dict[str, Any] = {"grow_policy": "lossguide", "max_leaves": 6, "max_depth": 0}
ABSOLUTE: dict[str, Any] = {"objective": "reg:absoluteerror"}
OTHERS: list[dict[str, Any]] = [
    {"max_depth": 1},
    {"colsample_bytree": 0.7, "reg_alpha": 0.1, "max_delta_step": 0.9},
    {"colsample_bylevel": 0.7, "colsample_bynode": 0.7},
    {"monotone_constraints": {"telco.telco_secret_name_0": 1, "bank_secret_name_1": -1}},
    {
        "interaction_constraints": [
            ["telco.telco_secret_name_0", "bank_secret_name_1"],
            ["telco.*"],
        ]
    },
    {"scale_pos_weight": 2.5, "base_score": None},
    {"num_parallel_tree": 2, "subsample": 0.8},
    {"booster": "dart", "rate_drop": 0.5, "one_drop": True},
]


@pytest.mark.parametrize(
    ("engine", "params"),
    [
        (PAILLIER, {}),
        (OU, {}),
        (PAILLIER, BY_GAINS),
        (OU, ABSOLUTE),
        *seldom_several((OU, BY_GAINS), (PAILLIER, ABSOLUTE), *product((PAILLIER, OU), OTHERS)),
    ],
    ids=lambda value: getattr(value, "name", None) or str(value),
)
def test_no_message_of_an_encrypted_training_tells_a_secret(
    engine: Engine, params: dict[str, Any]
) -> None:
    envelopes, secrets, simulation = trained(federation(**params).having(engine=engine))
    owners = np.concatenate([tree.owner for tree in simulation.results[ACTIVE].trees])
    assert set(owners.tolist()) > {-1}
    assert leaks(envelopes, secrets) == set()


@pytest.mark.parametrize("engine", [OU, *seldom(PAILLIER)], ids=lambda engine: engine.name)
@pytest.mark.parametrize("strategy", ["one_output_per_tree", *seldom("multi_output_tree")])
def test_no_message_of_a_training_of_classes_tells_a_secret(engine: Engine, strategy: str) -> None:
    made = federation(
        objective="multi:softprob",
        num_class=3,
        multi_strategy=strategy,
        base_score=None,
        num_boost_round=2,
    )
    label = made.label + (np.nan_to_num(made.columns[ACTIVE][:, 0]) > 0.5)
    made = made.having(engine=engine, label=label.astype(np.float32))
    envelopes, secrets, simulation = trained(made)
    share = simulation.results[ACTIVE]
    assert any((tree.owner > 0).any() for tree in share.trees)
    assert len(share.trees) == (2 if strategy == "multi_output_tree" else 6)
    assert leaks(envelopes, secrets) == set()


@pytest.mark.parametrize("engine", [*seldom(PAILLIER), OU, PLAIN], ids=lambda engine: engine.name)
def test_no_message_tells_a_weight_or_a_first_margin(engine: Engine) -> None:
    random = np.random.default_rng(5)
    weight = random.exponential(size=ROWS).astype(np.float32)
    margin = random.normal(size=ROWS).astype(np.float32)
    made = federation().having(engine=engine, weight=weight, base_margin=margin)
    envelopes, _, _ = trained(made)
    held = Gradients.of(margin, made.label, ~made.evaluation, made.params, 0, weight)
    secrets = [active_only("weights", weight), active_only("first margins", margin)]
    gradients = [active_only("g", held.pairs[:, 0]), active_only("h", held.pairs[:, 1])]
    assert leaks(envelopes, secrets) == set()
    told = leaks(envelopes, gradients)
    assert bool(told) == (engine is PLAIN), told


def test_no_message_of_a_training_on_a_lattice_tells_a_secret() -> None:
    made = federation(num_boost_round=1, max_depth=2, max_bin=3).having(engine=Lattice())
    envelopes, secrets, simulation = trained(made)
    assert set(simulation.results[ACTIVE].trees[0].owner.tolist()) > {-1}
    assert leaks(envelopes, secrets) == set()


def test_no_message_of_a_training_with_hidden_sums_tells_a_secret_or_a_sum() -> None:
    params = {"num_boost_round": 1, "max_depth": 2, "max_bin": 3, "xgboost_arithmetic": OLDEST}
    made = federation(**params, counts=(3, 3)).having(engine=Lattice(sums="hidden"))
    envelopes, secrets, simulation = trained(made)
    assert set(simulation.results[ACTIVE].trees[0].owner.tolist()) > {-1}
    assert leaks(envelopes, secrets) == set()
    shown, _, _ = trained(made.having(engine=PLAIN))
    sums = np.concatenate(
        [
            envelope.body.payload["left"].numpy()
            for envelope in shown
            if isinstance(envelope.body, training.HistogramReply)
        ]
    )
    assert leaks(envelopes, [Numbers("a sum", [], sums[np.abs(sums) > 2**32])]) == set()
    named = [
        envelope.body.candidates.numpy()
        for envelope in envelopes
        if isinstance(envelope.body, training.SplitDecision)
    ]
    assert named
    assert not any(map(len, named))


@pytest.mark.parametrize("engine", [PAILLIER, Lattice()], ids=lambda engine: engine.name)
def test_a_cross_validation_tells_who_stands_in_which_fold_and_on_a_lattice_nothing(
    engine: Engine,
) -> None:
    settings = {"num_boost_round": 1, "max_depth": 2, "max_bin": 3, "subsample": 1.0}
    made = federation(**settings).having(evaluation=np.zeros(ROWS, np.bool_))
    _, secrets, _ = trained(made)  # cuts are those of all rows
    number = np.random.default_rng(4).integers(3, size=ROWS)
    folds = tuple(Fold(number != fold, number == fold) for fold in range(3))
    for fold in folds:
        held = Gradients.of(np.zeros(ROWS), made.label, fold.learning, made.params, 0)
        secrets += [active_only("g", held.pairs[:, 0]), active_only("h", held.pairs[:, 1])]
    envelopes: list[Envelope] = []
    simulation = made.having(engine=engine, folds=folds).train(tap=envelopes.append)
    assert not simulation.errors
    assert simulation.results["telco"] is simulation.results["shop"] is None
    bits = [Bits("a fold", [ACTIVE], np.arange(ROWS), fold.learning) for fold in folds]
    assert leaks(envelopes, [*secrets, *bits]) == set()
    carried = {
        envelope.body.tree: envelope.body.numbers().tolist()
        for envelope in envelopes
        if isinstance(envelope.body, training.GradientBroadcast)
    }
    learning = {tree: np.flatnonzero(fold.learning).tolist() for tree, fold in enumerate(folds)}
    assert carried == ({} if engine.traits.hides_rows else learning)


@pytest.mark.parametrize(
    "engine", [*seldom(PAILLIER), OU, Lattice()], ids=lambda engine: engine.name
)
def test_no_message_of_a_training_by_sets_of_categories_tells_a_secret(engine: Engine) -> None:
    made = federation(max_cat_to_onehot=3, max_depth=2)
    town = np.random.default_rng(3).integers(0, 6, ROWS)
    towns = (town[:, None] == np.arange(6)).astype(np.float32)
    table = PassiveTable(
        towns, names("telco", 6), "the same ids", category_columns={"town": names("telco", 6)}
    )
    label = (np.isin(town, (0, 2, 5)) ^ (np.arange(ROWS) % 5 == 0)).astype(np.float32)
    made = made.having(
        engine=engine,
        label=label,
        columns={**made.columns, "telco": towns},
        loads={"telco": Given(table)},
    )
    envelopes, secrets, simulation = trained(made)
    sets = simulation.results["telco"].lookup_table.category_sets
    assert max(map(len, sets)) > 1
    assert leaks(envelopes, secrets) == set()
    shown = [
        envelope.body.categories
        for envelope in envelopes
        if isinstance(envelope.body, training.HistogramReply) and envelope.body.categories
    ]
    assert shown
    assert all(len(columns) == 1 and len(columns[0].numpy()) == 6 for columns in shown)


def test_no_message_of_a_prediction_tells_a_secret() -> None:
    made = federation()
    _, secrets, simulation = trained(made)
    envelopes: list[Envelope] = []
    scores = ran(made.scoring(simulation.results), tap=envelopes.append).results[ACTIVE]
    assert any(isinstance(envelope.body, InferenceHop) for envelope in envelopes)
    own = [
        active_only("scores", scores.margins),
        active_only("scores", scores.predictions),
    ]
    assert leaks(envelopes, [*secrets, *own]) == set()


def test_a_passive_share_holds_its_own_splits_and_nothing_else_of_the_trees() -> None:
    _, _, simulation = trained(federation())
    share = simulation.results["telco"].model_dump()
    assert share.keys() == {
        "version", "model_id", "format", "party", "lookup_table", "places", "withheld",
        "fallback_of", "training",
    }  # fmt: skip
    assert len(share["places"]) == len(share["lookup_table"]["feature"])
    assert share["lookup_table"].keys() == {
        "feature_names",
        "feature",
        "threshold",
        "default_left",
    }


def test_the_active_share_knows_the_splits_of_others_by_number_alone() -> None:
    _, _, simulation = trained(federation())
    document = simulation.results[ACTIVE].dumps()
    for peer in ("telco", "shop"):
        assert not any(name in document for name in names(peer, 2))
        for threshold in simulation.results[peer].lookup_table.threshold.tolist():
            assert str(threshold) not in document


def test_no_passive_party_is_told_how_many_rows_stand_in_a_node() -> None:
    envelopes, _, _ = trained(federation().having(engine=PAILLIER))
    scalars = {
        (type(envelope.body).__name__, name)
        for envelope in envelopes
        if envelope.header.recipient != ACTIVE
        for name, value in dict(envelope.body).items()
        if isinstance(value, int | float)
    }
    assert {name for _, name in scalars} == {
        "rows", "value_bits", "trees", "active_only_trees", "max_depth", "max_bin",
        "colsample_bytree", "colsample_bylevel", "colsample_bynode", "seed", "max_leaves",
        "outputs", "tree", "pieces", "piece", "round", "node", "decoys", "lot",
        "earlier_trees", "folds", "max_cat_to_onehot", "sampled", "signed_circuits", "narrow",
        "in_sequence",
    }  # fmt: skip
    assert [kind for kind, name in scalars if name == "rows"] == ["TrainingOpen"]


def test_a_payload_is_ciphertexts_their_layout_and_their_number() -> None:
    envelopes, _, _ = trained(federation().having(engine=PAILLIER))
    keys = {
        (envelope.header.kind, key)
        for envelope in envelopes
        for name in ("payload", "public")
        for key in getattr(envelope.body, name, {})
    }
    assert keys == {
        ("training open", "n"),
        ("training open", "noise"),
        ("training open", "noise_bits"),
        ("gradient broadcast", "ciphertexts"),
        ("gradient broadcast", "h"),
        ("gradient broadcast", "slot"),
        ("gradient broadcast", "capacity"),
        ("histogram reply", "packed"),
        ("histogram reply", "count"),
    }


def test_what_a_passive_party_of_a_lattice_hears_are_numbers_that_look_random() -> None:
    envelopes, _, _ = trained(federation().having(engine=Lattice()))
    heard = {
        (envelope.header.kind, key)
        for envelope in envelopes
        if envelope.header.recipient != ACTIVE
        for name in ("payload", "public")
        for key in getattr(envelope.body, name, {})
    }
    assert heard == {
        ("training open", "seed"),
        ("training open", "hint_bytes"),
        ("training open", "version"),
        ("training open", "offer"),
        ("query piece", "limbs"),
        ("query piece", "half"),
        ("directions query", "sums"),
        ("directions query", "choice"),
    }
    words = [
        array.numpy().ravel().view(np.uint8)
        for envelope in envelopes
        if envelope.header.kind in ("query piece", "directions query")
        for array in envelope.body.payload.values()
    ]
    bits = np.unpackbits(np.concatenate(words))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))


def test_the_tap_finds_row_sets_and_directions_where_they_are_sent() -> None:
    """What a lattice hides from passive parties, looked for in messages of ``plain``."""
    made = federation(num_boost_round=1, max_depth=2, max_bin=3)
    envelopes, _, simulation = trained(made)
    secrets = secrets_of(
        made.columns, made.label, made.evaluation, simulation.results, hides_rows=True
    )
    found = leaks(envelopes, [secret for secret in secrets if isinstance(secret, Bits)])
    assert any("node assignment to" in line and "tells a partition" in line for line in found)


def test_questions_on_a_lattice_are_as_long_whoever_stands_in_a_node() -> None:
    envelopes, _, _ = trained(federation().having(engine=Lattice()))
    heard = [envelope for envelope in envelopes if envelope.header.recipient != ACTIVE]
    lengths: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
    for envelope in heard:
        if envelope.header.kind in ("query piece", "directions query"):
            payload = envelope.body.payload
            held = lengths.setdefault((envelope.header.kind, *payload), set())
            held.add(tuple(len(array.data) for array in payload.values()))
    assert len(lengths) == 3
    assert all(len(shapes) == 1 for shapes in lengths.values())
    scalars = {
        name
        for envelope in heard
        for name, value in dict(envelope.body).items()
        if isinstance(value, int | float)
    }
    assert scalars == {
        "rows", "value_bits", "trees", "active_only_trees", "max_depth", "max_bin",
        "colsample_bytree", "colsample_bylevel", "colsample_bynode", "seed", "max_leaves",
        "outputs", "tree", "pieces", "piece", "round", "node", "decoys", "lot",
        "earlier_trees", "folds", "max_cat_to_onehot", "sampled", "signed_circuits", "narrow",
    }  # fmt: skip


def test_the_slot_layout_that_passive_parties_see_does_not_depend_on_the_labels() -> None:
    def layouts(made: Federation) -> list[tuple[Any, Any]]:
        bodies = [envelope.body for envelope in trained(made.having(engine=PAILLIER))[0]]
        pieces = [body for body in bodies if isinstance(body, training.GradientBroadcast)]
        return [(body.payload["h"], body.payload["slot"]) for body in pieces]

    made = federation()
    flipped = made.having(label=1 - made.label)
    ones = made.having(label=(np.arange(ROWS) < 3).astype(np.float32))
    assert layouts(made) == layouts(flipped) == layouts(ones)


@pytest.mark.parametrize("engine", [PLAIN, PAILLIER], ids=lambda engine: engine.name)
def test_at_the_last_level_only_the_owner_and_the_active_party_learn_the_partition(
    engine: Engine,
) -> None:
    envelopes, _, _ = trained(federation().having(engine=engine))
    last = [
        envelope
        for envelope in envelopes
        if depth(getattr(envelope.body, "node", 1)) == 2
        and envelope.header.kind != "histogram reply"
    ]
    assert {envelope.header.kind for envelope in last} == {"split decision", "split outcome"}
    decided = {
        (envelope.header.recipient, envelope.body.tree, envelope.body.node)
        for envelope in last
        if isinstance(envelope.body, training.SplitDecision)
    }
    disclosed = {
        (envelope.header.sender, envelope.body.tree, envelope.body.node)
        for envelope in last
        if isinstance(envelope.body, training.SplitOutcome)
    }
    assert decided == disclosed
    assert len({(tree, node) for _, tree, node in decided}) == len(decided)


def test_who_goes_left_is_told_to_each_party_at_most_once() -> None:
    envelopes, _, _ = trained(federation())
    disclosed = [
        (envelope.header.recipient, envelope.body.tree, envelope.body.node)
        for envelope in envelopes
        if isinstance(envelope.body, training.NodeAssignment)
    ]
    assert len(disclosed) == len(set(disclosed)) > 3


def test_continuing_shows_no_secret_and_where_no_other_rows_go() -> None:
    made = federation().having(engine=PAILLIER)
    _, _, first = trained(made)
    envelopes, secrets, simulation = trained(made.having(earlier=first.results))
    assert leaks(envelopes, secrets) == set()
    asked = [envelope.body for envelope in envelopes if isinstance(envelope.body, InferenceHop)]
    answers = [envelope.body for envelope in envelopes if isinstance(envelope.body, HopReply)]
    assert sum(hop.rows.shape[0] for hop in asked) == sum(reply.left.count for reply in answers)
    records = sum(len(first.results[peer].lookup_table) for peer in made.peers)
    assert 0 < sum(hop.rows.shape[0] for hop in asked) < ROWS * records
    for envelope in envelopes:
        if isinstance(envelope.body, training.TrainingOpen):
            assert envelope.body.earlier_model == "model"
            assert envelope.body.earlier_trees == len(first.results[ACTIVE].trees)
            assert len(envelope.body.earlier_places) == 32
    assert len(simulation.results[ACTIVE].trees) == 2 * len(first.results[ACTIVE].trees)


def test_refreshing_asks_for_directions_and_sends_no_gradient() -> None:
    made = federation().having(engine=PAILLIER)
    _, _, first = trained(made)
    envelopes: list[Envelope] = []
    again = made.having(earlier=first.results, refreshes=True, label=1 - made.label)
    simulation = ran(again.training(), tap=envelopes.append)
    about = (training.TrainingOpen, training.SessionAccept, training.EngineSetup, Acknowledge)
    assert {type(envelope.body) for envelope in envelopes} - {*about} == {
        InferenceHop,
        HopReply,
        training.SessionFinished,
    }
    was, now = first.results[ACTIVE], simulation.results[ACTIVE]
    assert now.refreshes == was.model_id
    assert all(
        np.array_equal(old.record, new.record) and not np.array_equal(old.weight, new.weight)
        for old, new in zip(was.trees, now.trees, strict=True)
    )
    for peer in made.peers:
        assert simulation.results[peer].dumps() == first.results[peer].dumps()


def test_a_hop_asks_only_about_rows_that_stand_before_the_record() -> None:
    made = federation()
    _, _, simulation = trained(made)
    envelopes: list[Envelope] = []
    ran(made.scoring(simulation.results), tap=envelopes.append)
    asked = [envelope.body for envelope in envelopes if isinstance(envelope.body, InferenceHop)]
    answers = [envelope.body for envelope in envelopes if isinstance(envelope.body, HopReply)]
    assert sum(hop.rows.shape[0] for hop in asked) == sum(reply.left.count for reply in answers)
    records = sum(len(simulation.results[peer].lookup_table) for peer in made.peers)
    assert 0 < sum(hop.rows.shape[0] for hop in asked) < ROWS * records


# Order and noise


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[dict[tuple[int, int, int], tuple[int, ...]]]:
    """Orders in which candidates are shown, by (tree, node, number of candidates); per training."""
    seen: list[dict[tuple[int, int, int], tuple[int, ...]]] = []
    answer = plain.CleartextPassive.answer

    def recorded(self: Any, queries: list[Query]) -> Any:
        for query in queries:
            key = (query.tree, query.node, id(self._bins))
            seen[-1][key] = tuple(query.order.tolist())
        return answer(self, queries)

    monkeypatch.setattr(plain.CleartextPassive, "answer", recorded)
    return seen


def test_candidates_come_in_another_order_for_each_node_and_in_each_run(orders: Any) -> None:
    for secret in (1, 2):
        orders.append({})
        federation().having(secret=secret).train()
    for run in orders:
        assert len(run) > 10
        for order in run.values():
            assert sorted(order) == list(range(len(order)))
            assert list(order) != sorted(order)
        of_one_party = [order for (*_, bins), order in run.items() if bins == next(iter(run))[2]]
        assert len(of_one_party) == len(set(of_one_party))
    assert not set(orders[0].values()) & set(orders[1].values())


@pytest.mark.parametrize("engine", [PAILLIER, OU], ids=lambda engine: engine.name)
def test_no_ciphertext_comes_twice_though_plaintexts_do(engine: Engine) -> None:
    made = federation(subsample=1.0).having(engine=engine)
    envelopes, _, _ = trained(made)
    sent = {("bank", "telco"): "ciphertexts", ("telco", "bank"): "packed"}
    for (sender, recipient), name in sent.items():
        ciphertexts = [
            bytes(row)
            for envelope in envelopes
            if (envelope.header.sender, envelope.header.recipient) == (sender, recipient)
            and envelope.header.sequence
            for key, value in getattr(envelope.body, "payload", {}).items()
            if key == name
            for row in value.numpy()
        ]
        assert len(ciphertexts) == len(set(ciphertexts)) > 30
    gradients = Gradients.of(
        np.zeros(ROWS, np.float32), made.label, ~made.evaluation, made.params, 0
    )
    assert len(np.unique(gradients.pairs[gradients.carried], axis=0)) == 2


def test_the_columns_that_a_passive_party_draws_are_not_told_by_the_seed_that_all_share() -> None:
    random = np.random.default_rng(0)
    params = TrainParams(colsample_bytree=0.2, seed=3)
    drawn = set()
    for _ in range(20):
        values = random.normal(size=(60, 5)).astype(np.float32)
        bins = BinMatrix.of(values, Cuts.of(values, 8))
        candidates = OwnColumns(bins, params).of_tree(0).of_tree
        again = OwnColumns(bins, params).of_tree(0).of_tree
        assert again.feature.tolist() == candidates.feature.tolist()
        drawn |= set(candidates.feature.tolist())
    assert len(drawn) > 2


def test_the_rows_that_one_side_sampling_draws_are_not_told_by_the_seed_that_all_share() -> None:
    params = TrainParams(goss=True, seed=3)
    everybody, margins = np.ones(200, np.bool_), np.zeros(200, np.float32)
    labels = np.zeros(200, np.float32)
    labels[:20] = 1
    margins[:40] = -3  # all gradients within and without are equal: lots alone decide
    one = Gradients.of(margins, labels, everybody, params, 0)
    other = Gradients.of(margins, labels[::-1].copy(), everybody, params, 0)
    assert (one.carried[40:180] != other.carried[40:180]).any()


def test_a_node_in_which_few_rows_carry_a_gradient_is_declined_however_many_stand_there() -> None:
    asked = federation(subsample=0.1).having(smallest_node={"telco": ROWS // 2})
    envelopes, _, _ = trained(asked)
    declined = {
        envelope.body.node
        for envelope in envelopes
        if isinstance(envelope.body, training.NodeDeclined)
    }
    assert 1 in declined
