"""Two words compute as Python's integers do modulo 2^128."""

from __future__ import annotations

import numpy as np

from fedmq.privacy.oblivious_transfer.correlated import (
    Wide,
    add,
    bits_of,
    integers_of,
    multiply,
    negate,
    shift_up,
    subtract,
    sum_of,
    wide,
)

EDGES = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 2**64, 2**127, 2**128 - 2**64, 2**128 - 1]


def words(numbers: list[int]) -> Wide:
    raw = b"".join(number.to_bytes(16, "little") for number in numbers)
    return np.frombuffer(raw, np.uint64).reshape(-1, 2)


def numbers_of(found: Wide) -> list[int]:
    return [int(low) | int(high) << 64 for low, high in found]


def drawn() -> tuple[list[int], list[int]]:
    random = np.random.default_rng(0)
    left = [int.from_bytes(random.bytes(16), "little") for _ in range(1000)]
    right = [int.from_bytes(random.bytes(16), "little") for _ in range(1000)]
    return left + [x for x in EDGES for _ in EDGES], right + EDGES * len(EDGES)


def test_sums_differences_and_products() -> None:
    left, right = drawn()
    pairs = list(zip(left, right, strict=True))
    x, y = words(left), words(right)
    assert numbers_of(add(x, y)) == [(a + b) % 2**128 for a, b in pairs]
    assert numbers_of(subtract(x, y)) == [(a - b) % 2**128 for a, b in pairs]
    assert numbers_of(multiply(x, y)) == [a * b % 2**128 for a, b in pairs]
    assert numbers_of(negate(x)) == [-a % 2**128 for a in left]


def test_shifts() -> None:
    left, _ = drawn()
    for bits in (0, 1, 57, 63, 64, 65, 127, 128):
        assert numbers_of(shift_up(words(left), bits)) == [(a << bits) % 2**128 for a in left]


def test_a_sum_of_many() -> None:
    left, _ = drawn()
    columns = words(left).reshape(len(left) // 2, 2, 2)
    wanted = [sum(left[start::2]) % 2**128 for start in (0, 1)]
    assert numbers_of(sum_of(columns)) == wanted


def test_words_keep_their_sign_or_have_none() -> None:
    signed = [0, 5, -1, -(2**63), 2**63 - 1]
    assert numbers_of(wide(np.array(signed, np.int64))) == [value % 2**128 for value in signed]
    unsigned = [0, 5, 2**63, 2**64 - 1]
    assert numbers_of(wide(np.array(unsigned, np.uint64))) == unsigned


def test_bits_stand_lowest_first() -> None:
    left, _ = drawn()
    bits = bits_of(words(left), 110)
    assert bits.shape == (110, len(left))
    assert (
        sum(row.astype(object) << place for place, row in enumerate(bits))
        == [value % 2**110 for value in left]
    ).all()


def test_few_bits_are_integers_again() -> None:
    numbers = np.array([[0, 5], [2**62 - 1, 1]], np.int64)
    assert np.array_equal(integers_of(bits_of(wide(numbers), 62)), numbers)
    assert np.array_equal(integers_of(np.zeros((0, 3), np.bool_)), [0, 0, 0])
