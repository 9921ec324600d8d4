"""Secure matrix multiplication: exact, careful with degenerate nodes, and refused where it can be.

That it hides little is measured in the tests of the audit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmq.boosting.gradients import Gradients
from fedmq.boosting.splits import CandidateTable
from fedmq.errors import ConfigError, MessageError, Refused
from fedmq.privacy.engine import Engine, Query, SplitOffer, Sums
from fedmq.privacy.engines.smm1 import Smm1
from fedmq.privacy.engines.smm2 import Smm2, hide_gradients, vectors_off_splits
from fedmq.privacy.masking import (
    hide_splits,
    hiding_vectors,
    is_orthonormal,
    splitting_matrix,
    sum_hidden,
    vectors_off_gradients,
)
from fedmq.privacy.plan import PIECE_BYTES, Reply
from fedmq.protocol.training.offers import ScoreCandidates
from tests.privacy.engine_pair import EnginePair
from tests.privacy.test_engine_contract import expected, gradients, table


def in_order(candidates: CandidateTable) -> np.ndarray:
    return np.arange(len(candidates))


def all_rows(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


def asked(engine: Engine, held: Gradients, rows: int, *, features: int = 3):
    bins = table(rows, features, seed=1)
    pair = EnginePair(engine, bins)
    pair.start_tree(held)
    candidates = CandidateTable.of(bins.cuts)
    answer = pair.ask_level({1: all_rows(rows)}, candidates, {1: in_order(candidates)})[1]
    return answer, expected(bins, held, all_rows(rows), candidates)


def alike(rows: int) -> Gradients:
    held = gradients(rows, 2)
    pairs = np.tile(np.array([[2**39, 2**38]]), (rows, 1))
    return replace(held, pairs=pairs)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 17])
def test_smm1_is_exact_with_fewer_rows_than_vectors(rows: int) -> None:
    answer, wanted = asked(Smm1(), gradients(rows, 2), rows)
    assert isinstance(answer, Sums)
    np.testing.assert_array_equal(answer.left, wanted)


def test_smm1_is_exact_when_all_gradients_are_equal() -> None:
    answer, wanted = asked(Smm1(), alike(60), 60)
    assert isinstance(answer, Sums)
    np.testing.assert_array_equal(answer.left, wanted)


def test_smm1_is_exact_to_the_last_bit_on_many_rows() -> None:
    answer, wanted = asked(Smm1(), gradients(20_000, 3), 20_000)
    assert isinstance(answer, Sums)
    np.testing.assert_array_equal(answer.left, wanted)


def test_the_splitting_matrix_says_who_goes_left() -> None:
    bins = table(80, 3, seed=4)
    candidates = CandidateTable.of(bins.cuts)
    held = gradients(80, 5)
    matrix = splitting_matrix(bins, all_rows(80), candidates, in_order(candidates))
    sums = matrix.T.astype(np.int64) @ held.pairs
    np.testing.assert_array_equal(sums, expected(bins, held, all_rows(80), candidates))


def test_an_answer_of_smm1_is_the_same_on_every_machine() -> None:
    rows = 50
    bins = table(rows, 3, seed=6)
    candidates = CandidateTable.of(bins.cuts)
    vectors = vectors_off_gradients(gradients(rows, 7).pairs, 4, 0)
    [piece] = hide_splits(
        [{"z": vectors}], bins, all_rows(rows), candidates, in_order(candidates), 4, 2, 0
    )
    left = splitting_matrix(bins, all_rows(rows), candidates, in_order(candidates))
    chosen = hiding_vectors(vectors, 4, 2, 0)
    for row in range(rows):
        for candidate in range(len(candidates)):
            hidden = float(left[row, candidate])
            for vector in chosen.T.tolist():
                # Summed as whole numbers, which no order of additions changes.
                sides = zip(vector, left[:, candidate].tolist(), strict=True)
                weight = sum(round(z * 2**49) for z, side in sides if side)
                hidden -= vector[row] * (weight / 2**49)
            assert piece["w"][row, candidate] == hidden


@pytest.mark.parametrize("rows", [100, 20_000])
def test_whether_vectors_are_orthonormal_is_decided_on_a_grid(rows: int) -> None:
    vectors = vectors_off_gradients(gradients(rows, 7).pairs, 16, 0)
    assert is_orthonormal(vectors)
    assert is_orthonormal(vectors * (1 + 4e-5))
    for factor in (1 + 6e-5, 1 - 6e-5, 0.0, 1e300):
        assert not is_orthonormal(vectors * factor)
    turned = vectors.copy()
    turned[:, 0] += 2e-4 * turned[:, 1]
    assert not is_orthonormal(turned)


def test_every_piece_fits_a_message() -> None:
    bins = table(3000, 8, seed=6)
    pair = EnginePair(Smm1(), bins)
    pair.start_tree(gradients(3000, 7))
    candidates = CandidateTable.of(bins.cuts)
    vectors = vectors_off_gradients(gradients(3000, 7).pairs, 16, 0)
    pieces = hide_splits(
        [{"z": vectors}], bins, all_rows(3000), candidates, in_order(candidates), 16, 8, 0
    )
    assert len(pieces) > 1
    assert max(piece["w"].nbytes for piece in pieces) <= PIECE_BYTES


@pytest.mark.parametrize(
    "vectors",
    [np.zeros((30, 16)), np.eye(30)[:, :3], np.ones((30, 16)), np.full((30, 16), np.nan)],
    ids=["zero", "too few", "not orthonormal", "not a number"],
)
def test_vectors_that_hide_nothing_are_refused_by_the_passive_party(vectors: np.ndarray) -> None:
    bins = table(30, 2, seed=0)
    candidates = CandidateTable.of(bins.cuts)
    step = hide_splits.bind(
        [{"z": vectors}], bins, all_rows(30), candidates, in_order(candidates), 16, 8, 0
    )
    with pytest.raises((Refused, MessageError)):
        step.run()


@pytest.mark.parametrize(
    "pieces", [[{}], [{"w": np.zeros((9, 4))}], [{"w": np.zeros((10, 4), np.float32)}], [{"w": 1}]]
)
def test_an_answer_that_does_not_fit_is_an_error(pieces: list) -> None:
    with pytest.raises(MessageError):
        sum_hidden(pieces, np.ones((10, 2), np.int64), 4)


def scored(left: np.ndarray, held: Gradients) -> SplitOffer:
    return ScoreCandidates(left, held.pairs.sum(axis=0), held.scale, held.params).run()


@pytest.mark.parametrize("subsample", [1.0, 0.6])
@pytest.mark.parametrize("rows", [3, 40, 400, 5000])
def test_smm2_finds_the_same_best_candidates(rows: int, subsample: float) -> None:
    held = gradients(rows, 8, subsample)
    answer, left = asked(Smm2(), held, rows)
    best = scored(left, held)
    if isinstance(answer, Sums):  # asked as in SMM-1, for lack of room
        np.testing.assert_array_equal(answer.left, left)
    else:
        assert answer.gain == best.gain
        np.testing.assert_array_equal(answer.candidates, best.candidates)


def test_smm2_hides_a_large_node_in_its_own_way_and_a_small_one_as_smm1() -> None:
    assert isinstance(asked(Smm2(), gradients(5000, 9), 5000)[0], SplitOffer)
    assert isinstance(asked(Smm2(), gradients(20, 9), 20)[0], Sums)


def test_smm2_gives_up_on_a_small_node_if_asked_to() -> None:
    with pytest.raises(Refused, match=r"node 1 \(20 rows\) from telco"):
        asked(Smm2(when_exposed="refuse"), gradients(20, 9), 20)


def test_a_passive_party_may_refuse_to_be_asked_as_in_smm1() -> None:
    bins = table(20, 2, seed=0)
    public = {"r": 16, "r_used": 8, "l1": 8, "l2": 8}
    passive = Smm2(when_exposed="refuse").passive(public, bins, 1)
    candidates = CandidateTable.of(bins.cuts)
    pieces = [{"z": np.eye(20)[:, :16]}]
    query = Query(0, 1, 1, all_rows(20), candidates, in_order(candidates), pieces)
    with pytest.raises(Refused, match="as in smm1"):
        next(passive.answer([query]))


def test_smm2_finds_the_best_when_all_gradients_are_equal() -> None:
    answer, left = asked(Smm2(), alike(3000), 3000)
    best = scored(left, alike(3000))
    assert isinstance(answer, SplitOffer)
    assert answer.gain == best.gain


@pytest.mark.parametrize("lone", [True, False])
def test_the_active_party_refuses_a_null_space_that_bares_a_row(lone: bool) -> None:
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(200, 16)))[0]
    if lone:
        vectors[5] = 0
        vectors = np.linalg.qr(vectors)[0]
    hidden = hide_gradients([{"z": vectors}], gradients(200, 0).pairs, 16, 8, 1)
    assert (hidden is None) == lone


@pytest.mark.parametrize("sparse", [np.eye(200)[:, :16], np.zeros((200, 16)), np.eye(200)[:, :9]])
def test_the_active_party_refuses_sparse_and_missing_vectors(sparse: np.ndarray) -> None:
    assert hide_gradients([{"z": sparse}], gradients(200, 0).pairs, 16, 8, 1) is None


def test_a_table_with_a_row_alone_in_a_bin_is_asked_as_in_smm1() -> None:
    bins = table(2000, 3, seed=1, missing=0)
    bins.codes[:, 0] = 0
    bins.codes[9, 0] = 1
    rows, features = all_rows(2000), np.arange(3, dtype=np.int32)
    vectors = vectors_off_splits(bins, rows, features, Smm2(r=16, l1=8, l2=8), 0)
    assert vectors.shape == (2000, 16)
    assert hide_gradients([{"z": vectors}], gradients(2000, 0).pairs, 16, 8, 1) is None


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Smm1(r=4, r_used=5), "r_used"),
        (lambda: Smm2(r=0, r_used=0), "r_used"),
        (lambda: Smm2(l1=-1), "l1"),
        (lambda: Smm2(when_exposed="never"), "when_exposed"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_named(make, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        make()


@pytest.mark.parametrize("engine", [Smm1(), Smm2()])
@pytest.mark.parametrize("public", [{}, {"r": 4}, {"r": "4", "r_used": 2}, {"r": 1, "r_used": 2}])
def test_malformed_terms_are_refused(engine: Engine, public: dict) -> None:
    with pytest.raises((Refused, ConfigError)):
        engine.passive(public, table(10, 1, seed=0), 1)


def test_more_columns_than_a_party_has_room_for_are_refused() -> None:
    public = {"r": 16, "r_used": 8, "l1": 10**6, "l2": 8}
    with pytest.raises(Refused, match=r"smm2: r \+ l1 \+ l2 is more than 8192"):
        Smm2().passive(public, table(10, 1, seed=0), 1)


@pytest.mark.parametrize("arithmetic", ["2.0", 3.4, np.ones(2)])
def test_a_score_by_an_arithmetic_that_is_unknown_is_refused(arithmetic: object) -> None:
    bins = table(50, 2, seed=0)
    passive = Smm2().passive({"r": 16, "r_used": 8, "l1": 8, "l2": 8}, bins, 1)
    candidates = CandidateTable.of(bins.cuts)
    terms = dict.fromkeys(("g_sum", "h_sum", "g_bits", "h_bits"), 1)
    score = {"reg_lambda": 1.0, "min_child_weight": 1.0, "xgboost_arithmetic": arithmetic}
    pieces = [{"w": np.ones((50, 2)), **terms, **score}]
    query = Query(0, 1, 1, all_rows(50), candidates, in_order(candidates), pieces)
    [computation] = next(passive.answer([query])).computations
    with pytest.raises(MessageError, match="name no arithmetic that is known here"):
        computation.run()


def test_a_reply_is_made_for_each_query_of_a_wave() -> None:
    bins = table(50, 2, seed=0)
    passive = Smm2().passive({"r": 16, "r_used": 8, "l1": 8, "l2": 8}, bins, 1)
    candidates = CandidateTable.of(bins.cuts)
    queries = [
        Query(0, node, 0, all_rows(50)[node::2], candidates, in_order(candidates), ())
        for node in (2, 3)
    ]
    plan = passive.answer(queries)
    step = next(plan)
    replies = [plan.send([computation.run() for computation in step.computations]), next(plan)]
    assert [reply.node for reply in replies if isinstance(reply, Reply)] == [2, 3]
