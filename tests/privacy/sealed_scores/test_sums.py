"""Sums over leaves are exact; an answer is random but for them, also to a party that lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedmq.errors import DataError, Inexact, MessageError
from fedmq.privacy.lattice.ring import coefficients, draw_secret, transformed
from fedmq.privacy.random_stream import Stream
from fedmq.privacy.sealed_scores import ciphertexts
from fedmq.privacy.sealed_scores.ciphertexts import (
    Answered,
    AnswerQuery,
    Ciphertext,
    MakeKey,
    open_answer,
    read_plaintexts,
    sealed,
)
from fedmq.privacy.sealed_scores.modulus import (
    carried,
    from_slots,
    packed,
    to_slots,
    unpacked,
)
from fedmq.privacy.sealed_scores.packing import MOST_SLOTS, FixedPoint, Packing
from fedmq.privacy.sealed_scores.parameters import (
    BLOCK_SLOTS,
    BLOCKS,
    DEGREE,
    PRIME,
)

SECRET = b"k" * 32
KEY = MakeKey(b"p" * 32, SECRET).run()


def seed(*names: object) -> bytes:
    return Stream(b"test", " ".join(map(str, names))).read(32)


def query(packing: Packing, weights: NDArray[np.int64], name: object) -> list[Ciphertext]:
    plaintexts = from_slots(packing.laid_out(weights % PRIME))
    return again(plaintexts, name)


def again(plaintexts: NDArray[np.int64], name: object) -> list[Ciphertext]:
    seeds = [(seed(name, "a", part), seed(name, "e", part)) for part in range(len(plaintexts))]
    return sealed(plaintexts, SECRET, seeds)


def scored(
    packing: Packing,
    weights: NDArray[np.int64],
    allowed: Sequence[NDArray[np.bool_]],
    name: object,
) -> tuple[NDArray[np.int64], list[Answered]]:
    """The sums that come of a query that goes by all parties, and the last answer."""
    asked = query(packing, weights, name)
    links = [None, *(seed(name, "link", place) for place in range(len(allowed) - 1)), None]
    for place, own in enumerate(allowed):
        before, after = links[place : place + 2]
        answers = AnswerQuery(
            asked, KEY, packing, own, seed(name, "answer", place), before, after
        ).answers()
        if after is not None:
            asked = again(read_plaintexts(answers, SECRET), (name, place))
    return open_answer(answers, SECRET, packing, len(weights)), answers


def wanted(
    packing: Packing, weights: NDArray[np.int64], allowed: Sequence[NDArray[np.bool_]]
) -> NDArray[np.int64]:
    left = weights * np.prod(allowed, axis=0)
    ends = np.cumsum(packing.counts)[:-1]
    return np.stack([part.sum(axis=1) for part in np.split(left, ends, axis=1)], axis=1)


@settings(max_examples=8)
@given(
    counts=st.lists(st.integers(0, 300), min_size=1, max_size=4).filter(any),
    parties=st.integers(1, 3),
    number=st.integers(0, 2**31),
)
def test_sums_are_exact(counts: list[int], parties: int, number: int) -> None:
    packing = Packing(tuple(counts))
    random = np.random.default_rng(number)
    rows = int(random.integers(1, packing.rows + 1))
    most = (PRIME // 2 - 1) // packing.slots
    weights = random.integers(-most, most + 1, (rows, packing.slots))
    allowed = [random.random((rows, packing.slots)) < 0.7 for _ in range(parties)]
    sums, _ = scored(packing, weights, allowed, number)
    np.testing.assert_array_equal(sums, wanted(packing, weights, allowed))


def test_a_row_of_many_leaves_has_several_ciphertexts() -> None:
    packing = Packing((4_200, 40))
    random = np.random.default_rng(0)
    weights = random.integers(-1000, 1000, (1, packing.slots))
    allowed = [random.random(weights.shape) < 0.5 for _ in range(2)]
    assert (packing.rows, packing.ciphertexts(1)) == (1, 2)
    sums, answers = scored(packing, weights, allowed, "large")
    np.testing.assert_array_equal(sums, wanted(packing, weights, allowed))
    assert len(answers) == 2


def blocks_of(answers: Sequence[Answered]) -> NDArray[np.int64]:
    return (to_slots(read_plaintexts(answers, SECRET)) * BLOCK_SLOTS % PRIME).ravel()


def chi_square(numbers: NDArray[np.int64], bins: int = 16) -> float:
    """Of numbers below t, against uniform ones; with 16 bins 38 is exceeded once in 1,000."""
    counts = np.bincount(numbers * bins // PRIME, minlength=bins)
    expected = len(numbers) / bins
    return float(((counts - expected) ** 2).sum() / expected)


def test_blocks_are_uniform_but_for_the_sum_of_a_row() -> None:
    """A simulator that knows the sums alone draws the same: uniform blocks, the last one fixed."""
    packing = Packing((3 * BLOCK_SLOTS,))
    rows = packing.rows
    weights = np.full((rows, packing.slots), 1000)
    allowed = [np.arange(packing.slots) < BLOCK_SLOTS for _ in range(rows)]
    sums, drawn = [], []
    for name in range(12):
        found, answers = scored(packing, weights, [np.stack(allowed)], name)
        sums.append(found)
        drawn.append(blocks_of(answers))
    assert {int(number) for number in np.concatenate(sums).ravel()} == {1000 * BLOCK_SLOTS}
    by_row = np.stack(drawn)[:, : 3 * rows].reshape(-1, 3)
    for place in range(3):
        assert chi_square(by_row[:, place]) < 38
    assert chi_square((by_row[:, 0] - by_row[:, 1]) % PRIME) < 38
    assert chi_square(np.stack(drawn)[:, 3 * rows :].ravel()) < 38  # blocks of no row


@pytest.mark.parametrize("hides", [True, False], ids=["as it is", "without R"])
def test_errors_as_large_as_can_be_show_nothing_of_what_they_are_multiplied_by(
    hides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label holder that lies puts numbers into the errors: where they stand in the room below a
    plaintext would tell the product. Two parties' answers stand there alike, uniformly."""
    if not hides:
        monkeypatch.setattr(
            ciphertexts, "uniform", lambda stream, count=DEGREE: _few(stream, count)
        )
    packing = Packing((BLOCK_SLOTS,))
    allowed = np.ones((BLOCKS, BLOCK_SLOTS), np.bool_)  # all slots: the plaintext 1
    places = []
    for name in range(12):
        [honest] = query(packing, np.zeros(allowed.shape, np.int64), name)
        limbs = unpacked(honest.words)
        limbs[2] += 1 << 21  # 2^75 in each coefficient, far above errors and below a plaintext
        asked = [Ciphertext(honest.seed, packed(carried(limbs)))]
        [answer] = AnswerQuery(asked, KEY, packing, allowed, seed(name, "answer")).answers()
        places.append(_places(answer))
    alike = chi_square(np.concatenate(places)) < 38
    assert alike == hides


def _places(answer: Answered) -> NDArray[np.int64]:
    """Where the numbers of ``answer`` stand in the room below a plaintext, as numbers below t."""
    secret = transformed(draw_secret(SECRET, DEGREE, ciphertexts.LARGEST_SECRET))
    masks, numbers = (
        [sum(part << (16 * place) for place, part in enumerate(column)) for column in of.T.tolist()]
        for of in (answer.masks, answer.numbers)
    )
    parts = np.array([[(mask >> shift) & 0xFFFF for mask in masks] for shift in range(0, 80, 16)])
    products = coefficients(transformed(parts) * secret)[:, ::BLOCK_SLOTS].T.tolist()
    found = [
        number + sum(part << (16 * place) for place, part in enumerate(product))
        for number, product in zip(numbers, products, strict=True)
    ]
    below = [number * PRIME % (1 << 80) for number in found]
    return np.array([number * PRIME >> 80 for number in below])


def _few(stream: Stream, count: int) -> NDArray[np.int64]:
    """Zeros, in place of masks; a's, which are as long as elements, stay."""
    limbs = unpacked(stream.words(2, count))
    return limbs if count == DEGREE else np.zeros_like(limbs)


def test_answers_to_one_query_have_nothing_in_common() -> None:
    packing = Packing((100,))
    allowed = np.ones((packing.rows, 100), np.bool_)
    asked = query(packing, np.ones((packing.rows, 100), np.int64), "once")
    one, other = (
        AnswerQuery(asked, KEY, packing, allowed, seed("own", number)).answers()[0]
        for number in range(2)
    )
    assert np.mean(one.masks == other.masks) < 0.001
    assert not np.intersect1d(blocks_of([one]), blocks_of([other])).size


def test_an_answer_before_the_last_one_is_uniform_to_the_active_party() -> None:
    packing = Packing((100,))
    rows = BLOCKS // 2  # of one ciphertext
    allowed = np.zeros((rows, 100), np.bool_)
    asked = query(packing, np.ones((rows, 100), np.int64), "before")
    [answer] = AnswerQuery(asked, KEY, packing, allowed, seed("x"), None, seed("link")).answers()
    slots = to_slots(read_plaintexts([answer], SECRET))
    assert chi_square(slots.ravel()) < 38
    assert len(np.unique(slots)) > DEGREE - 5


def test_a_number_in_doubt_ends_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    packing = Packing((100,))
    allowed = np.ones((packing.rows, 100), np.bool_)
    asked = query(packing, np.ones((packing.rows, 100), np.int64), "doubt")
    answers = AnswerQuery(asked, KEY, packing, allowed, seed("doubt")).answers()
    monkeypatch.setattr(ciphertexts, "farthest", lambda: 1 << 45)  # of a room of 2^50
    with pytest.raises(Inexact, match=r"in doubt, which happens .* by chance; ask again"):
        read_plaintexts(answers, SECRET)


def test_one_question_of_10_million_is_in_doubt_or_fewer() -> None:
    assert 2 * ciphertexts.farthest() * PRIME * DEGREE / 2**80 < 1 / 10_000_000


def test_malformed_ciphertexts_and_answers_are_refused() -> None:
    words = np.zeros((2, DEGREE), np.uint64)
    with pytest.raises(MessageError, match=r"a ciphertext .* another size"):
        Ciphertext(b"s" * 32, words[:, 1:])
    with pytest.raises(MessageError, match=r"a ciphertext .* another size"):
        Ciphertext(b"s" * 31, words)
    with pytest.raises(MessageError, match=r"a key .* another size"):
        ciphertexts.PublicKey(b"s" * 32, b"")
    few = np.zeros((5, BLOCKS), np.uint16)
    with pytest.raises(MessageError, match=r"an answer .* another size"):
        Answered(few, few).check(BLOCKS)
    packing = Packing((100,))
    allowed = np.ones((1, 100), np.bool_)
    with pytest.raises(MessageError, match="2 ciphertexts, not 1"):
        AnswerQuery([Ciphertext(b"s" * 32, words)] * 2, KEY, packing, allowed, seed("x")).answers()


@pytest.mark.parametrize("counts", [(), (0,), (MOST_SLOTS, 1)], ids=str)
def test_a_row_has_slots_and_not_too_many(counts: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"mode 'sealed' takes 1 to 1,048,576 of a row"):
        Packing(counts)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
    st.floats(1e-30, 1e30),
)
def test_fixed_point_is_as_fine_as_t_allows(parts: list[float], scale: float) -> None:
    numbers = np.array(parts) / 1e6 / len(parts) * scale
    point = FixedPoint.for_sums(scale, len(parts))
    sums = point.of(numbers).sum() % PRIME
    signed = np.array([sums - PRIME * (sums > PRIME // 2)])
    assert abs(point.read(signed)[0] - numbers.sum()) <= len(parts) * scale * 2**-28
    assert len(parts) + scale * 2.0**point.bits <= PRIME // 2


def test_leaves_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match="leaves that are not finite"):
        FixedPoint.for_sums(float("inf"), 3)
