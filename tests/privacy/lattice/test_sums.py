"""Sums are exact for any number of rows, and what lies over them says nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.errors import Inexact
from fedmq.privacy.lattice import answer as answers
from fedmq.privacy.lattice import hint
from fedmq.privacy.lattice.answer import JointBins, MaskSums, add_flood
from fedmq.privacy.lattice.hint import indicator_products
from fedmq.privacy.lattice.parameters import Layout, carried
from fedmq.privacy.lattice.query import DecryptAnswer, ReadShares, shares_at
from fedmq.privacy.lattice.ring import MASK_ELEMENT, draw_secret, public_element
from tests.privacy.lattice.computed import (
    PUBLIC_SEED,
    QUERY_SEED,
    Computed,
    binned,
    drawn_pairs,
    integers,
    negacyclic,
)

DEGREE = 64


@pytest.mark.parametrize("rows", [1, 2, DEGREE - 1, DEGREE, DEGREE + 1, 5 * DEGREE - 3])
def test_sums_are_exact_around_the_ends_of_blocks(rows: int) -> None:
    computed = Computed(binned(rows), DEGREE)
    pairs = drawn_pairs(rows)
    every = np.arange(rows)
    for node in (every, every[::2], every[:0]):
        np.testing.assert_array_equal(computed.sums(pairs, node), computed.expected(pairs, node))


@pytest.mark.parametrize("rows", [8191, 8192, 8193])
def test_sums_are_exact_at_the_degree_in_use(rows: int) -> None:
    computed = Computed(binned(rows), 8192)
    pairs = drawn_pairs(rows)
    node = np.flatnonzero(np.random.default_rng(1).random(rows) < 0.6)
    np.testing.assert_array_equal(computed.sums(pairs, node), computed.expected(pairs, node))


@pytest.mark.parametrize("max_bin", [4, 90, 600])
def test_machine_code_and_numpy_add_the_same_sums_of_limbs(
    max_bin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llvmlite")
    random = np.random.default_rng(3)
    values = random.normal(size=(5_000, 5)).astype(np.float32)
    values[random.random(values.shape) < 0.1] = np.nan
    joint = JointBins.of(BinMatrix.of(values, Cuts.of(values, max_bin)), np.array([0, 1, 2, 4]))
    limbs = random.integers(0, 2**32, (6, 3_000), dtype=np.uint32)
    limbs[:, ::7] = 2**32 - 1
    found = []
    for fewest in (0, 2**62):
        monkeypatch.setattr(answers, "FEWEST_ROWS", fewest)
        found.append(joint.sums(limbs, 1_000))
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0].sum() == 4 * limbs.sum(dtype=np.int64)


def test_the_largest_gradients_of_either_sign_are_summed() -> None:
    computed = Computed(binned(200), DEGREE)
    for g in (2**40, -(2**40)):
        for h in (2**40, 0, -(2**40)):
            pairs = np.tile(np.array([[g, h]]), (200, 1))
            every = np.arange(200)
            np.testing.assert_array_equal(
                computed.sums(pairs, every), computed.expected(pairs, every)
            )


def test_columns_of_missing_values_only_and_of_one_bin() -> None:
    values = np.full((100, 3), np.nan, np.float32)
    values[:, 1] = 3
    values[50:, 2] = 3
    computed = Computed(BinMatrix.of(values, Cuts.of(values, 8)), DEGREE)
    pairs = drawn_pairs(100)
    node = np.arange(20, 90)
    np.testing.assert_array_equal(computed.sums(pairs, node), computed.expected(pairs, node))


def test_columns_of_many_bins_are_summed_one_by_one() -> None:
    values = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    computed = Computed(BinMatrix.of(values, Cuts.of(values, 100)), 16)
    pairs = drawn_pairs(300)
    every = np.arange(300)
    np.testing.assert_array_equal(computed.sums(pairs, every), computed.expected(pairs, every))


@pytest.mark.parametrize(("rows", "value_bits"), [(1, 1), (200, 1), (200, 6), (130, 14), (65, 25)])
def test_nodes_side_by_side_are_summed_each_alone(rows: int, value_bits: int) -> None:
    computed = Computed(binned(rows), DEGREE, value_bits)
    dealt = np.random.default_rng(3).integers(0, computed.layout.nodes + 1, rows)
    nodes = [np.flatnonzero(dealt == node) for node in range(computed.layout.nodes)]
    largest = np.tile(np.array([[-(2**value_bits), -(2**value_bits)]]), (rows, 1))
    for pairs in (drawn_pairs(rows, value_bits=value_bits), largest, -largest):
        sums = computed.decrypt(computed.answer(computed.query(pairs, *nodes)))
        for node, left in zip(nodes, sums, strict=True):
            np.testing.assert_array_equal(left, computed.expected(pairs, node))
    fewer = computed.decrypt(computed.answer(computed.query(pairs, nodes[0])))
    np.testing.assert_array_equal(fewer[0], computed.expected(pairs, nodes[0]))
    assert not fewer[1:].any()


def all_limbs(pieces: list[dict[str, np.ndarray]], layout: Layout) -> np.ndarray:
    """All six limbs of a query's numbers."""
    sent = np.concatenate([piece["limbs"] for piece in pieces], axis=1)
    limbs = np.zeros((6, sent.shape[1]), np.uint64)
    limbs[6 - len(sent) :] = sent
    if layout.sends_half:
        halves = np.concatenate([piece["half"] for piece in pieces])
        limbs[6 - layout.sent_limbs] = halves.astype(np.uint64) << np.uint64(16)
    return limbs


def test_a_query_is_the_schoolbooks_with_small_errors() -> None:
    rows = 2 * DEGREE - 5
    computed = Computed(binned(rows), DEGREE)
    pairs = drawn_pairs(rows)
    node = np.arange(0, rows, 3)
    layout = computed.layout
    secret = draw_secret(QUERY_SEED, DEGREE, layout.largest_secret).tolist()
    numbers = integers(all_limbs(computed.query(pairs, node), layout))
    products = [
        negacyclic(integers(public_element(PUBLIC_SEED, block, DEGREE)), secret)
        for block in (0, 1, MASK_ELEMENT)
    ]
    for place, number in enumerate(numbers):
        row = place if place < rows else None
        product = (
            products[2][place - rows] if row is None else products[row // DEGREE][row % DEGREE]
        )
        g, h = (0, 0) if row is None or row % 3 else pairs[row].tolist()
        message = (g << layout.g_offset(0)) + (h << layout.h_offset(0))
        error = (number - product - message + 2**191) % 2**192 - 2**191
        assert abs(error) <= 21 + (1 << layout.dropped_bits >> 1)
        assert number % (1 << layout.dropped_bits) == 0


def test_the_noise_over_an_answer_has_its_deviation() -> None:
    layout = Layout(500)
    sums = np.zeros((6, 20_000), np.int64)
    add_flood(sums, b"f" * 32, layout)
    centred = [number - 2**192 if number >> 191 else number for number in integers(carried(sums))]
    noise = np.array(centred, np.float64) / 2.0**layout.flood_bits
    assert np.abs(noise).max() <= 2
    assert abs(noise.std() - np.sqrt(4 / 12)) < 0.01
    assert abs(noise.mean()) < 5 * np.sqrt(4 / 12 / 20_000)


def joined(computed: Computed, shares: np.ndarray) -> list[int]:
    """Shares of pairs as numbers of both fields."""
    bits = computed.layout.field_bits
    return [(g << bits) + h for g, h in shares.tolist()]


@pytest.mark.parametrize("value_bits", [1, 7, 40])
@pytest.mark.parametrize("rows", [1, DEGREE + 1, 5 * DEGREE - 3])
def test_shares_of_hidden_sums_are_exact(rows: int, value_bits: int) -> None:
    computed = Computed(binned(rows), DEGREE, value_bits, hidden=True)
    largest = np.tile(np.array([[-(2**value_bits), 2**value_bits]]), (rows, 1))
    modulus = 1 << 2 * computed.layout.field_bits
    for pairs in (abs(drawn_pairs(rows, value_bits=value_bits)), largest, -largest * [1, 0]):
        node = np.arange(rows)[::2]
        query = computed.query(pairs, node)
        wanted = computed.expected(pairs, node).tolist()
        for seed in range(20):
            answer, kept = MaskSums(computed.answering(query, bytes([seed]) * 32)).run()
            numbers = np.arange(len(answer), dtype=np.uint32)
            pieces = [{"numbers": numbers, "sums": answer}]
            reading = DecryptAnswer([pieces], computed.hints, computed.layout, [QUERY_SEED])
            [(_, read)] = ReadShares(reading).run()
            both = zip(joined(computed, read), joined(computed, kept), wanted, strict=True)
            for active, passive, (g, h) in both:
                field = computed.layout.field_bits
                assert (active + passive - (g << field) - h) % modulus == 0


@pytest.mark.parametrize("rows", [100, 30_000, 10**6, 2**21 - 1])
def test_a_hidden_sum_next_to_the_end_of_its_room_is_refused_and_never_wrong(rows: int) -> None:
    layout = Layout(rows, hidden=True)
    room, most = 1 << layout.noise_bits, layout.largest_error
    shares, refused = (5 << layout.field_bits) + 2, []
    step = max(most, room >> 64)
    for noise in (0, most - 1, most, room - most - 1, room - most, room - 1):
        for error in (-most, 0, most):
            number = (shares * room + noise + error) % 2**192
            limbs = np.array([[number >> 32 * limb & 0xFFFFFFFF] for limb in range(6)], np.uint32)
            try:
                assert shares_at(limbs, layout).tolist() == [[5, 2]]
            except Inexact:
                refused.append((noise, error))
    assert {(0, -most), (room - 1, most)} <= set(refused)
    for noise in (3 * step, room // 2, room - 3 * step):
        number = shares * room + noise
        limbs = np.array([[number >> 32 * limb & 0xFFFFFFFF] for limb in range(6)], np.uint32)
        assert shares_at(limbs, layout).tolist() == [[5, 2]]


def test_an_answer_whose_sums_are_hidden_is_uniform_whatever_was_asked() -> None:
    """Less what was asked it is the mask and the noise, which fill all 192 bits evenly."""
    computed = Computed(binned(100), DEGREE, hidden=True)
    rooms = [1, 1 << computed.layout.noise_bits, 1 << 192]
    query = computed.query(drawn_pairs(100), np.arange(100))
    bare = integers(computed.answering(query).sums()[0])
    masked: list[list[int]] = []
    for seed in range(500):
        answering = computed.answering(query, seed.to_bytes(32, "little"))
        masked.append(integers(MaskSums(answering).run()[0].T))
    for low, high in pairwise(rooms):
        places = [
            (number - asked) % high // low / (high // low)
            for numbers in masked
            for number, asked in zip(numbers, bare, strict=True)
        ]
        counts = np.histogram(places, 16, (0, 1))[0]
        expected = len(places) / 16
        assert ((counts - expected) ** 2 / expected).sum() < 60  # 15 degrees: chance of 2e-7


def test_answers_of_other_secrets_differ_by_noise_only() -> None:
    computed = Computed(binned(100), DEGREE)
    pairs = drawn_pairs(100)
    query = computed.query(pairs, np.arange(100))
    answers = [computed.answer(query, seed.to_bytes(32, "little")) for seed in range(400)]
    assert len({answer.tobytes() for answer in answers}) == 400
    numbers = np.array([integers(answer.T) for answer in answers], object)
    deviations = (numbers - numbers[0]).astype(np.float64).std(axis=0)
    wanted = 2.0**computed.layout.flood_bits * np.sqrt(4 / 12)
    assert (np.abs(deviations / wanted - 1) < 0.2).all()
    for answer in answers[:20]:
        np.testing.assert_array_equal(
            computed.decrypt(answer)[0], computed.expected(pairs, np.arange(100))
        )


def test_the_noise_follows_from_the_whole_question_and_its_place() -> None:
    computed = Computed(binned(70), DEGREE)
    query, none = (computed.query(drawn_pairs(70), np.arange(rows)) for rows in (70, 0))

    def noise(pieces: list, purpose: str = "0 1 0", seed: bytes = b"a" * 32) -> bytes:
        return computed.answering(pieces, seed, purpose).sums()[1]

    other = [{name: array.copy() for name, array in piece.items()} for piece in query]
    other[-1]["limbs"][-1, -1] ^= 1
    noises = [
        noise(query),
        noise(none),
        noise(other),
        noise(query, "0 1 1"),
        noise(query, "0 11 0"),
        noise(query, seed=b"b" * 32),
    ]
    assert len(set(noises)) == len(noises)
    assert noise([dict(reversed(piece.items())) for piece in query]) == noises[0]


def test_the_same_seed_makes_the_same_bytes() -> None:
    computed = Computed(binned(70), DEGREE)
    pairs = drawn_pairs(70)
    one, two = (computed.query(pairs, np.arange(70)) for _ in range(2))
    for piece, again in zip(one, two, strict=True):
        assert all(np.array_equal(piece[key], again[key]) for key in piece)
    np.testing.assert_array_equal(computed.answer(one), computed.answer(one))


def test_inexact_products_are_taken_in_smaller_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    bins = binned(6 * DEGREE)
    computed = Computed(bins, DEGREE)
    codes, cells = bins.codes[:, 0], int(bins.cuts.n_bins[0]) + 1
    wanted = indicator_products(codes, cells, computed.public.blocks, computed.layout)
    sizes = []

    def fragile(transforms: np.ndarray) -> np.ndarray:
        sizes.append(len(transforms))
        if len(sizes) < 3:
            raise Inexact("off")
        return exact(transforms)

    exact = hint.coefficients
    monkeypatch.setattr(hint, "coefficients", fragile)
    found = indicator_products(codes, cells, computed.public.blocks, computed.layout, 4)
    np.testing.assert_array_equal(found, wanted)
    assert len(sizes) == 2 + 6

    def broken(_: np.ndarray) -> np.ndarray:
        raise Inexact("off")

    monkeypatch.setattr(hint, "coefficients", broken)
    with pytest.raises(Inexact):
        indicator_products(codes, cells, computed.public.blocks, computed.layout, 4)


def test_hints_are_masked() -> None:
    """Under another mask every coefficient of every hint is another one."""
    computed = Computed(binned(100), DEGREE)
    own = np.flatnonzero(computed.candidates.feature == 0)
    step = hint.MakeHints(
        computed.bins.codes[:, 0],
        int(computed.bins.cuts.n_bins[0]) + 1,
        computed.candidates.bin[own],
        computed.candidates.default_left[own],
        computed.public,
        computed.layout,
        0,
        b"1" * 32,
    )
    shown = [step.run(), replace(step, seed=b"2" * 32).run()]
    assert (shown[0][:, -1] != shown[1][:, -1]).mean() > 0.99


@pytest.mark.parametrize("begun", [(1,), (2,), (1, 2), (1, 2, 3)])
def test_pieces_that_are_summed_before_the_others_are_here_change_no_answer(
    monkeypatch: pytest.MonkeyPatch, begun: tuple[int, ...]
) -> None:
    monkeypatch.setattr("fedmq.privacy.lattice.query.LARGEST_PIECE_BYTES", 24 * DEGREE)
    computed = Computed(binned(200), DEGREE)
    query = computed.query(drawn_pairs(200), np.arange(150))
    assert len(query) == 5
    np.testing.assert_array_equal(
        computed.answering(query, begun=begun).limbs(), computed.answering(query).limbs()
    )


def test_a_query_is_as_long_as_the_table_whatever_rows_a_sample_leaves() -> None:
    computed = Computed(binned(3 * DEGREE), DEGREE)
    pairs, every = drawn_pairs(3 * DEGREE), np.arange(3 * DEGREE)
    sizes = {
        sum(array.nbytes for piece in computed.query(pairs, node) for array in piece.values())
        for node in (every, every[::10], every[:0])
    }
    assert len(sizes) == 1
