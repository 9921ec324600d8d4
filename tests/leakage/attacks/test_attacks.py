"""Each attack succeeds on a case built to be broken, and fails where the defence holds."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.metrics import auc
from fedmq.boosting.splits import CandidateTable
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.labels import (
    bare_rows,
    label_scores_from_noise,
    labels_from_signs,
    labels_from_spaces,
    leaf_purity,
    positives_from_weight,
)
from fedmq.leakage.attacks.row_order import Partition, best_concordance, inferred_orders
from fedmq.leakage.attacks.splitting_matrix import agreement, majority, projected, rounded
from fedmq.privacy.engines.ldp import MECHANISMS
from fedmq.privacy.masking import FewColumnsSpan, OneHotSpan, null_vectors, splitting_matrix

ROWS = 400


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def labels(rows: int = ROWS, share: float = 0.3) -> np.ndarray:
    return (random(1).random(rows) < share).astype(np.float32)


# Purity


def test_pure_leaves_are_pure_and_mixed_ones_are_not() -> None:
    truth = np.array([0, 0, 0, 1, 1, 0, 1], np.float32)
    assert leaf_purity([np.array([0, 1, 2, 5]), np.array([3, 4, 6])], truth) == 1
    assert leaf_purity([np.arange(7)], truth) == pytest.approx(4 / 7)
    assert leaf_purity([np.array([0, 3]), np.array([], int), np.array([1, 4])], truth) == 0.5


@pytest.mark.parametrize("positives", [0, 7, 20])
def test_the_weight_of_a_first_leaf_counts_its_positives(positives: int) -> None:
    rows, p, eta, reg_lambda = 20, 0.5, 0.3, 1.0
    weight = -eta * (rows * p - positives) / (rows * p * (1 - p) + reg_lambda)
    found = positives_from_weight(weight, rows, eta=eta, reg_lambda=reg_lambda)
    assert found == pytest.approx(positives)


def test_a_later_weight_tells_less_without_the_predictions() -> None:
    p = random().uniform(0.05, 0.95, 50)
    truth = (random(1).random(50) < p).astype(float)
    weight = -0.3 * (p - truth).sum() / ((p * (1 - p)).sum() + 1)
    guess = positives_from_weight(weight, 50, eta=0.3, reg_lambda=1.0)
    assert abs(guess - truth.sum()) > 1


# Instance spaces


def test_nodes_that_follow_the_label_give_it_away_to_who_knows_a_few() -> None:
    truth = labels()
    nodes = [np.flatnonzero(truth == value) for value in (0, 1)]
    known = np.zeros(ROWS, np.bool_)
    known[:20] = True
    scores = labels_from_spaces([nodes], known, truth)
    assert auc(truth[~known], scores[~known].astype(np.float32)) == 1


def test_nodes_that_do_not_follow_the_label_give_nothing_away() -> None:
    truth = labels(5000)
    trees = [np.array_split(random(seed).permutation(5000), 8) for seed in range(3)]
    known = np.arange(5000) < 50
    scores = labels_from_spaces(trees, known, truth)
    assert auc(truth[~known], scores[~known].astype(np.float32)) == pytest.approx(0.5, abs=0.05)


def test_without_known_labels_all_rows_look_alike() -> None:
    scores = labels_from_spaces([[np.arange(ROWS)]], np.zeros(ROWS, np.bool_), labels())
    assert len(set(scores)) == 1


# The splitting matrix of SMM-1


def hidden_splits(used: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M, the vectors sent, and W by ``used`` of them."""
    values = random().normal(size=(ROWS, 3)).astype(np.float32)
    bins = BinMatrix.of(values, Cuts.of(values, 8))
    candidates = CandidateTable.of(bins.cuts)
    order = random(1).permutation(len(candidates))
    matrix = splitting_matrix(bins, np.arange(ROWS, dtype=np.int32), candidates, order)
    gradients = FewColumnsSpan(random(2).normal(size=(ROWS, 2)))
    vectors = null_vectors(gradients, used, random(3))
    return matrix == 1, vectors, matrix - vectors @ (vectors.T @ matrix)


@pytest.mark.parametrize("attack", [lambda w, z: rounded(w), projected], ids=["round", "project"])
def test_few_vectors_hide_no_splitting_matrix(attack) -> None:
    matrix, vectors, hidden = hidden_splits(used=8)
    np.testing.assert_array_equal(attack(hidden, vectors), matrix)


@pytest.mark.parametrize("attack", [lambda w, z: rounded(w), projected], ids=["round", "project"])
def test_a_whole_null_space_hides_the_splitting_matrix(attack) -> None:
    matrix, vectors, hidden = hidden_splits(used=ROWS - 2)
    assert agreement(attack(hidden, vectors), matrix) < majority(matrix) + 0.05


def test_the_known_null_space_recovers_what_rounding_does_not() -> None:
    matrix, vectors, hidden = hidden_splits(used=140)
    assert agreement(rounded(hidden), matrix) < 0.999
    assert agreement(projected(hidden, vectors), matrix) > agreement(rounded(hidden), matrix)


def test_columns_are_compared_in_any_order() -> None:
    matrix = random().random((30, 5)) < 0.5
    assert agreement(matrix[:, ::-1], matrix) == 1
    assert agreement(np.zeros_like(matrix), matrix) < 0.75


# The gradients of SMM-2


def hidden_gradients(used: int, rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """The labels, and W by so many vectors (all there are if -1) off a splitting matrix."""
    codes = random().integers(0, 4, (rows, 2)).astype(np.uint8)
    span = OneHotSpan(codes, np.empty((rows, 0)))
    span.factorise()
    vectors = null_vectors(span, used if used >= 0 else rows, random(1))
    truth = labels(rows)
    g = 0.5 - truth.astype(np.float64)
    return truth, g - vectors @ (vectors.T @ g)


def test_the_sign_of_w_is_the_label_when_few_vectors_hide_it() -> None:
    truth, hidden = hidden_gradients(used=8)
    assert (labels_from_signs(hidden) == (truth == 1)).all()


def test_a_whole_null_space_hides_the_labels_but_for_what_the_sums_tell() -> None:
    truth, hidden = hidden_gradients(used=-1)
    base = 1 - truth.mean()
    assert (labels_from_signs(hidden) == (truth == 1)).mean() < base + 0.02


def test_a_sparse_null_space_bares_the_gradients_of_the_other_rows() -> None:
    vectors = np.zeros((ROWS, 6))
    vectors[:20] = null_vectors(FewColumnsSpan(np.ones((20, 1))), 6, random())
    bare = bare_rows(vectors)
    assert bare[20:].all()
    assert not bare[:20].any()
    g = random(2).normal(size=ROWS)
    np.testing.assert_array_equal((g - vectors @ (vectors.T @ g))[bare], g[bare])


def test_a_dense_null_space_bares_no_row() -> None:
    vectors = null_vectors(FewColumnsSpan(np.ones((ROWS, 1))), 6, random())
    assert not bare_rows(vectors).any()


# The noisy gradients of LDP


@pytest.mark.parametrize(
    ("epsilon", "low", "high"), [(50.0, 0.999, 1.0), (2.0, 0.6, 0.9), (0.02, 0.47, 0.53)]
)
def test_noisy_gradients_tell_the_labels_as_far_as_epsilon_allows(
    epsilon: float, low: float, high: float
) -> None:
    truth = labels(5000)
    noisy = MECHANISMS["laplace"].perturbed(0.5 - truth.astype(float), epsilon, random())
    scores = label_scores_from_noise(5000, [(np.arange(5000), noisy)])
    assert low <= auc(truth, scores.astype(np.float32)) <= high


def test_many_trees_wear_the_noise_down() -> None:
    truth = labels(3000)

    def reached(trees: int) -> float:
        told = [
            (
                np.arange(3000),
                MECHANISMS["laplace"].perturbed(0.5 - truth.astype(float), 1.0, random(seed)),
            )
            for seed in range(trees)
        ]
        return auc(truth, label_scores_from_noise(3000, told).astype(np.float32))

    assert reached(40) > 0.9 > 0.75 > reached(1)


# The order of a feature


def splits(values: np.ndarray, thresholds: list[float]) -> list[Partition]:
    rows = np.arange(len(values), dtype=np.int32)
    return [Partition(rows, values <= threshold) for threshold in thresholds]


def test_nested_splits_of_one_feature_sort_the_rows() -> None:
    values = random().normal(size=(ROWS, 1)).astype(np.float32)
    [ranks] = inferred_orders(ROWS, splits(values[:, 0], [-1, 0, 1, 0.5, -0.5]))
    right, apart = best_concordance(ranks, values)
    assert right == 1
    assert apart > 0.7


def test_splits_of_two_features_are_told_apart() -> None:
    values = random().normal(size=(ROWS, 2)).astype(np.float32)
    partitions = [*splits(values[:, 0], [-1, 0, 1]), *splits(values[:, 1], [-1, 0, 1])]
    orders = inferred_orders(ROWS, partitions)
    assert len(orders) == 2
    assert [best_concordance(order, values)[0] for order in orders] == [1, 1]


def test_random_partitions_sort_nothing() -> None:
    values = random().normal(size=(ROWS, 1)).astype(np.float32)
    rows = np.arange(ROWS, dtype=np.int32)
    orders = inferred_orders(ROWS, [Partition(rows, random(2).random(ROWS) < 0.5)])
    assert best_concordance(orders[0], values)[0] == pytest.approx(0.5, abs=0.05)


def test_without_splits_nothing_is_known() -> None:
    assert inferred_orders(ROWS, []) == []
    unknown = np.full(ROWS, np.nan)
    assert best_concordance(unknown, np.zeros((ROWS, 1), np.float32)) == (0.5, 0.0)


# Verdicts


def test_a_finding_succeeds_only_clearly_above_chance() -> None:
    def finding(value: float, chance: float) -> Finding:
        return Finding("attack", "label", "tree 0", "accuracy", value, chance)

    assert finding(0.8, 0.5).succeeds
    assert finding(0.99, 0.9).succeeds
    assert not finding(0.54, 0.5).succeeds
    assert not finding(1.0, 1.0).succeeds
