"""Numbers modulo q and modulo t are Python's own, and what is sent is what is read."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.lattice_security import cheapest_attack
from fedmq.privacy.lattice.ring import draw_secret, transformed
from fedmq.privacy.random_stream import Stream
from fedmq.privacy.sealed_scores import machine_ring
from fedmq.privacy.sealed_scores.modulus import (
    carried,
    decrypted,
    factor_transforms,
    from_slots,
    packed,
    product,
    reduced,
    rounded,
    scaled,
    to_slots,
    transforms_of,
    uniform,
    unpacked,
)
from fedmq.privacy.sealed_scores.parameters import (
    BLOCK_SLOTS,
    BLOCKS,
    DEGREE,
    LIMB_BITS,
    LIMBS,
    MODULUS_BITS,
    PRIME,
    SENT_BITS,
)

Q = 1 << MODULUS_BITS


@pytest.fixture(autouse=True, params=["numpy", "machine code"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test holds with numpy alone, and in machine code."""
    if request.param == "machine code" and not machine_ring.can_compute():
        pytest.skip("llvmlite is not installed")
    monkeypatch.setattr(machine_ring, "can_compute", lambda: request.param == "machine code")


def integers(limbs: NDArray[np.integer], bits: int = LIMB_BITS) -> list[int]:
    columns = limbs.T.tolist()
    return [sum(part << (bits * place) for place, part in enumerate(column)) for column in columns]


def element(seed: str) -> NDArray[np.int64]:
    return uniform(Stream(b"s" * 32, seed))


def plaintext(seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, PRIME, DEGREE)


def is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def test_t_is_the_largest_prime_with_as_many_slots_as_a_plaintext_has_numbers() -> None:
    assert is_prime(PRIME)
    step = 2 * DEGREE
    assert (PRIME - 1) % step == 0
    assert not any(is_prime(larger) for larger in range(PRIME + step, 1 << 30, step))


def test_the_ring_is_harder_than_promised() -> None:
    assert cheapest_attack(DEGREE, MODULUS_BITS).bits >= 128


def test_products_are_the_schoolbooks() -> None:
    left, right = element("a"), plaintext(1)
    found = carried(product(transforms_of(packed(left)), factor_transforms(right)))
    numbers = integers(left)
    signed = [number - PRIME * (number > PRIME // 2) for number in right.tolist()]
    for place in (0, 1, 2047, DEGREE - 1):
        turned = [
            numbers[other] * signed[place - other] * (1 if other <= place else -1)
            for other in range(DEGREE)  # an index below 0 counts from the end: X^N is -1
        ]
        assert integers(found[:, place : place + 1]) == [sum(turned) % Q]


def test_some_coefficients_of_a_product_are_those_of_the_whole() -> None:
    left, right = transforms_of(packed(element("a"))), factor_transforms(plaintext(1))
    whole, some = carried(product(left, right)), carried(product(left, right, count=BLOCKS))
    np.testing.assert_array_equal(whole[:, ::BLOCK_SLOTS], some)


def test_numbers_are_scaled_reduced_and_rounded_as_python_does() -> None:
    numbers, large = plaintext(2), element("b")
    wanted = integers(large)
    up = integers(scaled(numbers))
    off = [2 * (high * PRIME - low * Q) for high, low in zip(up, numbers.tolist(), strict=True)]
    assert max(map(abs, off)) <= PRIME
    assert reduced(large).tolist() == [number * PRIME // Q for number in wanted]
    half = 1 << (MODULUS_BITS - SENT_BITS - 1)
    shift = MODULUS_BITS - SENT_BITS
    assert integers(rounded(large.copy()), 16) == [
        ((number + half) >> shift) % (1 << SENT_BITS) for number in wanted
    ]
    np.testing.assert_array_equal(unpacked(packed(large)), large)


def test_slots_are_values_at_odd_powers_and_their_products_are_products_of_plaintexts() -> None:
    numbers = plaintext(3)
    slots = to_slots(numbers)
    root = pow(3, (PRIME - 1) // (2 * DEGREE), PRIME)
    assert pow(root, DEGREE, PRIME) == PRIME - 1
    for place in (0, 1, 3000):
        at, value = pow(root, 2 * place + 1, PRIME), 0
        for number in reversed(numbers.tolist()):
            value = (value * at + number) % PRIME
        assert value == slots[place]
    np.testing.assert_array_equal(from_slots(slots), numbers)


def test_the_sums_of_blocks_follow_from_some_coefficients() -> None:
    numbers = plaintext(4)
    sums = to_slots(numbers).reshape(BLOCK_SLOTS, BLOCKS).sum(axis=0) % PRIME
    some = to_slots(numbers[::BLOCK_SLOTS]) * BLOCK_SLOTS % PRIME
    np.testing.assert_array_equal(sums, some)


@pytest.mark.parametrize("count", [BLOCKS, DEGREE])
def test_a_number_next_to_the_border_of_a_plaintext_is_in_doubt(count: int) -> None:
    secret = transformed(draw_secret(b"k" * 32, DEGREE, DEGREE))
    masks = np.zeros((5, DEGREE), np.uint16)
    numbers = np.zeros((5, count), np.uint16)
    far, wide = 3000, 1 << SENT_BITS
    borders = [-(-place * wide // PRIME) for place in (0, 1, PRIME // 2, PRIME - 1)]
    steps = (-1, 0, 1, 1 - far, far - 1, -2 * far, 2 * far)
    cases = [(border + step) % wide for border in borders for step in steps]
    for place, case in enumerate(cases):
        numbers[:, place] = [(case >> (16 * part)) & 0xFFFF for part in range(5)]
    numbers[4, len(cases) :] = 1 << 14  # far from every border
    found, doubtful = decrypted(masks, numbers, secret, far)
    assert found[: len(cases)].tolist() == [case * PRIME // wide for case in cases]
    doubts = doubtful[: len(cases)].reshape(-1, len(steps))
    assert doubts[:, :5].all()
    assert not doubts[:, 5:].any()


def test_the_worst_factors_stay_exact() -> None:
    worst = np.full((LIMBS, DEGREE), (1 << LIMB_BITS) - 1)
    factor = np.full(DEGREE, PRIME // 2)
    found = carried(product(transforms_of(packed(worst)), factor_transforms(factor)))
    # q - 1 is -1: coefficient k is N - 2 (k + 1) times the factor
    wanted = [(DEGREE - 2 * (place + 1)) * (PRIME // 2) % Q for place in range(DEGREE)]
    assert integers(found) == wanted
