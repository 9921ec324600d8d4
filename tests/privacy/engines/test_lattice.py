"""The lattice engine learns the plain engine's model, and is careful about what it is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable
from fedmq.errors import ConfigError, DataError, MessageError, Refused
from fedmq.privacy.engine import AskedNode, BroadcastPiece, Query, Sums
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.lattice.answer import AnswerQueries
from fedmq.privacy.lattice.parameters import VERSION, Layout
from fedmq.privacy.plan import LARGEST_PIECE_BYTES
from fedmq.privacy.registry import engine_named
from tests.privacy.engine_pair import EnginePair
from tests.privacy.test_engine_contract import expected, gradients, table

pytestmark = pytest.mark.usefixtures("short_exponents")

SHOWN = Lattice(directions="all")
"""Where directions are beside the point: it makes no transfers."""


def test_no_option_is_no_number_of_bytes() -> None:
    with pytest.raises(ConfigError, match="hint_bytes = 0"):
        Lattice(hint_bytes=0)


def test_a_hint_that_is_too_long_is_refused_before_it_is_made() -> None:
    bins = table(50, 4, seed=0)
    candidates = len(CandidateTable.of(bins.cuts))
    pattern = rf"{candidates} candidates need a hint of [\d,]+ bytes, .* use engine 'ou'"
    with pytest.raises(Refused, match=pattern):
        EnginePair(Lattice(hint_bytes=10**6), bins)


def test_too_many_rows_are_refused_before_anything_is_made() -> None:
    values = np.zeros((2**21, 1), np.float32)
    bins = BinMatrix.of(values, Cuts.of(values, 4))
    with pytest.raises(DataError, match="2,097,152 rows; engine 'lattice'"):
        EnginePair(SHOWN, bins)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seed": 3}, "malformed"),
        ({"seed": np.zeros(31, np.uint8)}, "malformed"),
        ({"hint_bytes": "much"}, "malformed"),
        ({"more": 1}, "malformed"),
        ({"version": 1}, "speaks another version of it"),
        ({"version": VERSION - 1}, "speaks another version of it"),
        ({"version": VERSION + 1}, "speaks another version of it"),
        ({"offer": np.zeros((2, 256), np.uint8)}, "not of the group"),
        ({"offer": 3}, "elements of 256 bytes"),
    ],
)
def test_malformed_terms_are_refused(change: dict[str, Any], why: str) -> None:
    public = {**public_of(SHOWN), **change}
    with pytest.raises(Refused, match=why):
        SHOWN.passive(public, table(20, 2, seed=0), 1)


def public_of(engine: Lattice) -> dict[str, Any]:
    active = engine.active(1)
    active.start_session(np.ones(20, np.bool_))
    return EnginePair._run(active.open())


@pytest.mark.parametrize("directions", ["oblivious", "all"])
def test_directions_of_the_rows_of_a_node_arrive(directions: Any) -> None:
    pair = EnginePair(Lattice(directions=directions), table(50, 2, seed=0))
    pair.start_tree(gradients(50, 1))
    random = np.random.default_rng(0)
    for node in range(2, 9):
        rows = np.flatnonzero(random.random(50) < 0.4).astype(np.int32)
        left = random.random(50) < 0.5
        np.testing.assert_array_equal(pair.directions(node, rows, left)[rows], left[rows])


@pytest.mark.parametrize(("directions", "right"), [("oblivious", 0.5), ("all", 1.0)])
def test_directions_of_other_rows_arrive_only_if_asked_for(directions: Any, right: float) -> None:
    pair = EnginePair(Lattice(directions=directions), table(4000, 1, seed=0))
    pair.start_tree(gradients(4000, 1))
    left = np.random.default_rng(0).random(4000) < 0.8
    shown = pair.directions(2, np.arange(1000, dtype=np.int32), left)
    assert abs((shown == left)[1000:].mean() - right) < 0.05


def test_directions_are_not_shown_to_whom_they_are_not_asked_of() -> None:
    pair = EnginePair(Lattice(), table(50, 2, seed=0))
    for pieces in ((), ({"choice": np.zeros((32, 7), np.uint8)},), ({"sums": 3},)):
        with pytest.raises(MessageError, match="sums of seeds that are not"):
            pair._run(pair.passive.show_directions(0, 2, np.ones(50, np.bool_), pieces))


def test_directions_at_the_root_need_no_transfer() -> None:
    pair = EnginePair(Lattice(), table(50, 2, seed=0))
    pair.start_tree(gradients(50, 1))
    every, left = np.arange(50, dtype=np.int32), np.random.default_rng(0).random(50) < 0.5
    plan = pair.active.read_directions("telco", 0, 1, every)
    assert not pair._advance(plan, None).pieces
    np.testing.assert_array_equal(pair.directions(1, every, left), left)
    choice = [{"choice": np.zeros((32, 7), np.uint8)}]
    with pytest.raises(MessageError, match="a choice of rows at the root"):
        pair._run(pair.passive.show_directions(0, 1, left, choice))


def test_the_sums_of_seeds_go_before_the_first_question_about_directions() -> None:
    pair = EnginePair(Lattice(), table(50, 2, seed=0))
    pair.start_tree(gradients(50, 1))
    rows = np.arange(10, dtype=np.int32)
    asked = [
        [set(piece) for piece in pair._advance(plan, None).pieces]
        for plan in (pair.active.read_directions("telco", 0, node, rows) for node in (2, 3))
    ]
    assert asked == [[{"sums"}, {"choice"}], [{"choice"}]]


def test_a_party_set_to_oblivious_shows_no_directions_of_all_rows() -> None:
    with pytest.raises(Refused, match='directions = "all"'):
        Lattice().passive(public_of(Lattice(directions="all")), table(20, 2, seed=0), 1)


def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match="directions = 'some': use oblivious, all"):
        Lattice(directions="some")  # type: ignore[arg-type]


@pytest.mark.parametrize("trained", [1, 13, 49])
def test_only_rows_that_are_learned_from_travel(trained: int) -> None:
    training = np.zeros(50, np.bool_)
    training[np.random.default_rng(trained).permutation(50)[:trained]] = True
    bins = table(50, 3, seed=0)
    pair = EnginePair(SHOWN, bins, training=training)
    held = gradients(50, 1)
    held = replace(
        held, pairs=held.pairs * training[:, np.newaxis], carried=held.carried & training
    )
    pair.start_tree(held)
    candidates = CandidateTable.of(bins.cuts)
    rows = np.arange(0, 50, 2, dtype=np.int32)
    order = np.random.default_rng(0).permutation(len(candidates))
    answer = pair.ask_level({1: rows}, candidates, {1: order})[1]
    assert isinstance(answer, Sums)
    np.testing.assert_array_equal(answer.left, expected(bins, held, rows, candidates)[order])


@pytest.mark.parametrize(("value_bits", "nodes"), [(40, 1), (14, 2), (5, 3)])
def test_both_halves_know_how_many_nodes_share_a_query(
    monkeypatch: pytest.MonkeyPatch, value_bits: int, nodes: int
) -> None:
    training = np.ones(300, np.bool_)
    passive = SHOWN.passive(public_of(SHOWN), table(300, 2, seed=0), 1)
    passive.start_session(training, value_bits)
    assert passive.nodes_per_query == nodes
    monkeypatch.setattr("fedmq.privacy.lattice.active._QUESTION_BYTES", 1)
    active = SHOWN.active(1)
    active.start_session(training, value_bits)
    rows = np.arange(20, dtype=np.int32)
    level = [AskedNode(0, node, rows[node : node + 1]) for node in range(8, 16)]
    asked = [[node.node for node in question.nodes] for question in active.ask_level(level)]
    assert len(asked) == -(-4 // nodes)
    assert sorted(node for nodes in asked for node in nodes) == list(range(8, 16))
    assert asked[0][:nodes] == [8, 10, 12][:nodes]


def test_of_two_siblings_one_is_asked_about() -> None:
    pair = EnginePair(SHOWN, table(40, 2, seed=0))
    pair.start_tree(gradients(40, 0))
    level = [AskedNode(0, node, np.arange(node, dtype=np.int32)) for node in (4, 5, 6, 7)]
    asked = [[node.node for node in question.nodes] for question in pair.active.ask_level(level)]
    assert asked == [[4, 6, 5, 7]]


@pytest.mark.parametrize(
    ("rows", "questions"),
    [
        (30_000, [[*range(16, 32, 2), *range(17, 32, 2)]]),
        (200_000, [[node, node + 1] for node in range(16, 32, 2)]),
    ],
)
def test_as_many_queries_share_a_question_as_are_short(
    rows: int, questions: list[list[int]]
) -> None:
    active = SHOWN.active(1)
    active.start_session(np.ones(rows, np.bool_))
    active.broadcast(gradients(rows, 0))
    level = [AskedNode(0, node, np.array([node], np.int32)) for node in range(16, 32)]
    asked = [[node.node for node in question.nodes] for question in active.ask_level(level)]
    assert asked == questions


def test_answers_for_other_candidates_than_above_are_refused() -> None:
    bins = table(60, 3, seed=0)
    pair = EnginePair(SHOWN, bins)
    pair.start_tree(gradients(60, 0))
    candidates = CandidateTable.of(bins.cuts)
    orders = {node: np.random.default_rng(node).permutation(len(candidates)) for node in (1, 2, 3)}
    rows = np.arange(60, dtype=np.int32)
    pair.ask_level({1: rows}, candidates, orders)
    with pytest.raises(MessageError, match="other candidates than in the node above"):
        pair.ask_level({2: rows[:20], 3: rows[20:]}, candidates, orders)


def test_all_peers_get_one_encryption_of_a_node() -> None:
    pair = EnginePair(SHOWN, table(40, 2, seed=0))
    pair.start_tree(gradients(40, 0))
    [question] = pair.active.ask_level([AskedNode(0, 1, np.arange(40, dtype=np.int32))])
    made = {node: len(pieces) for node, pieces in pair.made(question).items()}
    for peer in ("telco", "retail"):
        exchange = pair._advance(question.ask(peer), None)
        assert not exchange.pieces
        assert exchange.later == made


def test_every_piece_fits_a_message() -> None:
    pair = EnginePair(SHOWN, table(40_000, 1, seed=0))
    pair.start_tree(gradients(40_000, 1))
    [question] = pair.active.ask_level([AskedNode(0, 1, np.arange(40_000, dtype=np.int32))])
    made = pair.made(question)[1]
    assert len(made) == pair._advance(question.ask("telco"), None).later[1] > 1
    sizes = [sum(array.nbytes for array in piece.values()) for piece in made]
    assert max(sizes) <= LARGEST_PIECE_BYTES


def test_a_question_is_summed_while_its_last_pieces_are_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmq.privacy.lattice.query.LARGEST_PIECE_BYTES", 200_000)
    bins, rows = table(25_000, 2, seed=0), np.arange(0, 25_000, 3, dtype=np.int32)
    pair = EnginePair(SHOWN, bins)
    pair.start_tree(held := gradients(25_000, 1))
    [question] = pair.active.ask_level([AskedNode(0, 1, rows)])
    pieces = pair.made(question)[1]
    taken = [pair.passive.take_piece(0, 2, 0, piece) for piece in pieces]
    assert [taking is not None for taking in taken] == [False, False, True, False, False]
    taken = [pair.passive.take_piece(0, 3, 0, piece, alone=False) for piece in pieces]
    assert [taking is not None for taking in taken] == [False, False, True, False, True]
    candidates = CandidateTable.of(bins.cuts)
    order = np.arange(len(candidates))
    answer = pair.ask_level({1: rows}, candidates, {1: order})[1]
    assert isinstance(answer, Sums)
    np.testing.assert_array_equal(answer.left, expected(bins, held, rows, candidates))


def test_more_answers_than_the_budget_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bins = table(40, 2, seed=0)
    candidates = CandidateTable.of(bins.cuts)
    pair = EnginePair(SHOWN, bins)
    pair.start_tree(gradients(40, 0))
    rows, order = np.arange(40, dtype=np.int32), np.arange(len(candidates))
    monkeypatch.setattr(Layout, "most_answers", 2 * len(candidates))
    for _ in range(2):
        pair.ask_level({1: rows}, candidates, {1: order})
    with pytest.raises(Refused, match="would tell of single rows"):
        pair.ask_level({1: rows}, candidates, {1: order})


def test_a_malformed_query_fails_the_session() -> None:
    bins = table(40, 2, seed=0)
    candidates = CandidateTable.of(bins.cuts)
    pair = EnginePair(SHOWN, bins)
    rows = np.arange(40, dtype=np.int32)
    query = Query(0, 1, 0, rows, candidates, np.arange(len(candidates)), [])
    with pytest.raises(MessageError, match="a query of 0 pieces, not 1"):
        pair._run(pair.passive.answer([query]), {})


def test_a_broadcast_is_no_part_of_it() -> None:
    pair = EnginePair(SHOWN, table(40, 2, seed=0))
    piece = BroadcastPiece(np.arange(3, dtype=np.uint32), {})
    with pytest.raises(MessageError, match="broadcasts no gradients"):
        pair._run(pair.passive.receive(0, piece))


@pytest.mark.parametrize("pieces", [[], [{}], [{"candidates": 1}]])
def test_a_setup_that_is_cut_short_is_refused(pieces: list[dict[str, Any]]) -> None:
    active = SHOWN.active(1)
    pair = EnginePair(SHOWN, table(40, 2, seed=0))
    active.start_session(np.ones(40, np.bool_))
    pair._run(active.open())
    with pytest.raises(MessageError, match=r"telco (does not say|sent hints for 0 of 1)"):
        pair._run(active.setup("telco", pieces))


def test_what_the_active_party_learns_follows_from_what_is_shown() -> None:
    assert Lattice().disclosed.active.startswith("the sums of g and h")
    hidden = Lattice(sums="hidden").disclosed
    assert hidden.active.startswith("no sum")
    assert hidden.passive.startswith(Lattice().disclosed.passive)
    for told in (hidden.active, hidden.passive):
        assert "more than four are near the best" in told
    assert "do not fit the filter" in hidden.passive


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"covert": 0, "sums": "hidden"}, "covert = 0: a number from 1 to 8"),
        ({"covert": 9, "sums": "hidden"}, "covert = 9: a number from 1 to 8"),
        ({"covert": 2}, 'covert = 2: copies are of circuits, which sums = "hidden" alone has'),
        ({"covert": 1.5, "sums": "hidden"}, "covert = 1.5"),
    ],
)
def test_copies_of_circuits_are_a_number_where_sums_are_hidden(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        engine_named("lattice", options, "job")


@pytest.mark.parametrize("name", ["monotone_constraints", "interaction_constraints"])
def test_copies_of_circuits_take_no_constraints(name: str) -> None:
    columns = {"monotone_constraints": {"age": 1}, "interaction_constraints": [["age"]]}[name]
    with pytest.raises(ConfigError, match=f"{name}: .* set covert = 1"):
        Lattice(sums="hidden", covert=2).check(TrainParams(**{name: columns}))


@pytest.mark.parametrize("covert", [0, 9, "2", 2.0, True])
def test_more_copies_of_circuits_than_a_party_garbles_are_refused(covert: object) -> None:
    engine = Lattice(sums="hidden")
    with pytest.raises(Refused, match="copies of circuits"):
        engine.passive({**public_of(engine), "covert": covert}, table(20, 2, seed=0), 1)


def test_the_owner_is_shown_how_many_copies_are_asked_for() -> None:
    engine = Lattice(sums="hidden", covert=3)
    assert engine.announced(public_of(engine)) == {"covert": 3}


def test_the_queries_of_a_long_table_are_shared_out_among_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmq.privacy.lattice.passive._WORTH_SHARING", 1)
    together: list[int] = []
    run = AnswerQueries.run

    def counted(step: AnswerQueries) -> Any:
        together.append(len(step.queries))
        return run(step)

    monkeypatch.setattr(AnswerQueries, "run", counted)
    bins = table(60, 3, seed=1)
    pair = EnginePair(Lattice(), bins, parallelism=2)
    held, candidates = gradients(60, 2), CandidateTable.of(bins.cuts)
    pair.start_tree(held, candidates)
    quarters = np.random.default_rng(3).integers(0, 4, 60)
    rows = np.arange(60, dtype=np.int32)
    levels = (
        {1: rows},
        {2: rows[quarters < 2], 3: rows[quarters >= 2]},
        {4 + quarter: rows[quarters == quarter] for quarter in range(4)},
    )
    for level in levels:
        orders = {node: np.arange(len(candidates)) for node in level}
        for node, answer in pair.ask_level(level, candidates, orders).items():
            assert isinstance(answer, Sums)
            np.testing.assert_array_equal(
                answer.left, expected(bins, held, level[node], candidates)
            )
    assert together == [1, 1, 1, 1]  # of two queries, each has a core
