from __future__ import annotations

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmq.errors import ConfigError, DataError, MessageError
from fedmq.privacy.homomorphic import paillier
from fedmq.privacy.homomorphic.packing import SlotLayout

KEY = paillier.generate(512)
PUBLIC = KEY.public
INT64_MAX = 2**63 - 1


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@st.composite
def layouts_with_sums(draw: st.DrawFn) -> tuple[SlotLayout, np.ndarray, np.ndarray]:
    g_bound = draw(st.integers(0, INT64_MAX))
    h_bound = draw(st.integers(0, INT64_MAX))
    g = st.sampled_from([-g_bound, 0, g_bound]) | st.integers(-g_bound, g_bound)
    h = st.sampled_from([0, h_bound]) | st.integers(0, h_bound)
    pairs = draw(st.lists(st.tuples(g, h), max_size=12))
    layout = SlotLayout.for_sums(g_bound, h_bound, PUBLIC.plaintext_bits)
    return layout, array(*(g for g, _ in pairs)), array(*(h for _, h in pairs))


@settings(deadline=None)
@given(layouts_with_sums())
def test_any_sums_within_the_bounds_come_back_exactly(
    case: tuple[SlotLayout, np.ndarray, np.ndarray],
) -> None:
    layout, g, h = case
    packed = layout.pack(KEY.raw_encrypt(layout.join(g, h)), PUBLIC.modulus)
    assert len(packed) == layout.packed_count(len(g))
    unpacked_g, unpacked_h = layout.unpack(KEY.decrypt(packed), len(g))
    np.testing.assert_array_equal(unpacked_g, g)
    np.testing.assert_array_equal(unpacked_h, h)
    assert unpacked_g.dtype == unpacked_h.dtype == np.int64


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_plaintext_full_of_the_most_extreme_sums_comes_back_exactly(sign: int) -> None:
    layout = SlotLayout.for_sums(INT64_MAX, INT64_MAX, PUBLIC.plaintext_bits)
    g = np.full(2 * layout.capacity, sign * INT64_MAX)
    h = np.full_like(g, INT64_MAX)
    packed = layout.pack(KEY.encrypt(layout.join(g, h)), PUBLIC.modulus)
    assert len(packed) == 2
    unpacked_g, unpacked_h = layout.unpack(KEY.decrypt(packed), len(g))
    np.testing.assert_array_equal(unpacked_g, g)
    np.testing.assert_array_equal(unpacked_h, h)


def test_sums_of_joined_pairs_are_the_pair_of_sums() -> None:
    layout = SlotLayout.for_sums(100, 100, PUBLIC.plaintext_bits)
    g, h = array(-90, 40, 45), array(10, 0, 90)
    total_g, total_h = layout.unpack([mpz(sum(layout.join(g, h)))], 1)
    assert (total_g[0], total_h[0]) == (-5, 100)


def test_packed_ciphertexts_subtract_slot_by_slot() -> None:
    layout = SlotLayout.for_sums(100, 100, PUBLIC.plaintext_bits)
    parent = layout.pack(KEY.encrypt(layout.join(array(5, -7), array(9, 8))), PUBLIC.modulus)
    child = layout.pack(KEY.encrypt(layout.join(array(6, -9), array(1, 8))), PUBLIC.modulus)
    difference = [a - b for a, b in zip(KEY.decrypt(parent), KEY.decrypt(child), strict=True)]
    g, h = layout.unpack(difference, 2)
    assert (g.tolist(), h.tolist()) == ([-1, 2], [8, 0])


def test_slots_are_as_tight_as_the_bounds_allow() -> None:
    layout = SlotLayout.for_sums(2**40 - 1, 2**30 - 1, 2047)
    assert (layout.h_bits, layout.slot_bits, layout.capacity) == (30, 71, 28)


def test_no_sums_make_no_ciphertexts() -> None:
    layout = SlotLayout.for_sums(1, 1, PUBLIC.plaintext_bits)
    assert layout.pack([], PUBLIC.modulus) == []
    assert [part.shape for part in layout.unpack([], 0)] == [(0,), (0,)]


@pytest.mark.parametrize(("g", "h"), [(101, 0), (-128, 0), (0, 128), (0, -1), (-(2**63), 0)])
def test_a_pair_beyond_its_slot_is_refused_with_its_row(g: int, h: int) -> None:
    layout = SlotLayout.for_sums(100, 100, PUBLIC.plaintext_bits)
    if g == 101:
        layout = SlotLayout.for_sums(63, 100, PUBLIC.plaintext_bits)
    with pytest.raises(DataError, match=rf"^row 1: gradient {g} with hessian {h} "):
        layout.join(array(0, g), array(0, h))


def test_sums_beyond_int64_are_refused() -> None:
    with pytest.raises(ConfigError, match="63 bits"):
        SlotLayout.for_sums(2**63, 1, 2047)


def test_a_key_without_room_for_one_slot_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^key_bits: .*100 bits has no room for sums of 121 bits"
    ):
        SlotLayout.for_sums(2**60 - 1, 2**60 - 1, 100)


def test_a_wrong_number_of_packed_ciphertexts_is_refused() -> None:
    layout = SlotLayout.for_sums(100, 100, PUBLIC.plaintext_bits)
    with pytest.raises(MessageError, match="expected 1 packed ciphertexts for 2 sums, got 2"):
        layout.unpack([mpz(0), mpz(0)], 2)


def test_a_plaintext_that_overflows_its_slots_is_refused() -> None:
    layout = SlotLayout.for_sums(100, 100, PUBLIC.plaintext_bits)
    with pytest.raises(MessageError, match="packed ciphertext 0 holds more than its slots"):
        layout.unpack([mpz(1) << (2 * layout.slot_bits)], 2)


@pytest.mark.parametrize("outputs", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_several_outputs_lie_in_as_few_ciphertexts_as_hold_them(outputs: int, count: int) -> None:
    layout = SlotLayout.for_sums(2**40, 2**40, PUBLIC.plaintext_bits, outputs=outputs)
    slots = PUBLIC.plaintext_bits // layout.slot_bits
    assert layout.parts == -(-outputs // slots)
    assert layout.pairs * layout.capacity <= slots
    random = np.random.default_rng(outputs)
    g = random.integers(-(2**40), 2**40, (count, outputs))
    h = random.integers(0, 2**40, (count, outputs))
    rows = (g[:, 0], h[:, 0]) if outputs == 1 else (g, h)
    sent = KEY.raw_encrypt(layout.join(*rows))
    assert len(sent) == count * layout.parts
    by_part = [
        layout.pack(sent[part :: layout.parts], PUBLIC.modulus) for part in range(layout.parts)
    ]
    packed = [ciphertext for group in zip(*by_part, strict=True) for ciphertext in group]
    assert len(packed) == layout.packed_count(count)
    for unpacked, wanted in zip(layout.unpack(KEY.decrypt(packed), count), rows, strict=True):
        np.testing.assert_array_equal(unpacked, wanted)
