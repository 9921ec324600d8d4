"""Sums by group: exact, and of whoever encrypts something else no more than their bits."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.homomorphic.group_sums import (
    add_by_group,
    decrypt_group_sums,
    decrypting,
    encrypt_people,
    sum_bits,
)
from fedmq.privacy.homomorphic.paillier import PrivateKey, PublicKey, generate
from fedmq.privacy.homomorphic.residues import from_wire, to_wire

PEOPLE = 100


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return generate(512)


def test_the_sums_are_those_of_each_group(key: PrivateKey) -> None:
    random = np.random.default_rng(1)
    ones, selected = random.random((2, PEOPLE)) < 0.4
    score, group_of = random.random(PEOPLE), random.integers(3, size=PEOPLE)
    ciphertexts = encrypt_people(key, ones, selected, score)
    sums = add_by_group(key.public, ciphertexts, group_of)
    for group, figures in enumerate(decrypt_group_sums(key, sums, PEOPLE)):
        here = group_of == group
        assert figures.ones == ones[here].sum()
        assert figures.selected == selected[here].sum()
        assert figures.selected_ones == (ones & selected)[here].sum()
        assert figures.score == pytest.approx(score[here].sum(), abs=here.sum() * 2**-17)


def test_the_highest_figures_of_all_people_fit_into_their_bits(key: PrivateKey) -> None:
    everybody = np.ones(PEOPLE, np.bool_)
    ciphertexts = encrypt_people(key, everybody, everybody, np.ones(PEOPLE))
    sums = add_by_group(key.public, ciphertexts, np.zeros(PEOPLE, np.intp))
    [figures] = decrypt_group_sums(key, sums, PEOPLE)
    assert (figures.ones, figures.selected, figures.selected_ones) == (PEOPLE,) * 3
    assert figures.score == PEOPLE


def test_a_bit_for_each_person_is_masked_above_the_bits_of_a_sum(key: PrivateKey) -> None:
    """An active party that lies encrypts 2^row, to read from the sum who is in the group."""
    bits, modulus = sum_bits(PEOPLE), key.public.modulus
    assert bits < PEOPLE
    numbers = key.encrypt([1 << row for row in range(PEOPLE)])
    group_of = np.arange(PEOPLE) % 2
    truth = sum(1 << row for row in range(0, PEOPLE, 2))
    above = set()
    for _ in range(20):
        sums = add_by_group(key.public, to_wire(numbers, modulus), group_of)
        read = int(decrypting(key).decrypt(from_wire(sums, modulus))[0] % key.public.n)
        assert read % (1 << bits) == truth % (1 << bits)
        above.add(read >> bits)
    assert len(above) == 20
    assert truth >> bits not in above


def test_noise_of_the_active_partys_making_hides_no_less(key: PrivateKey) -> None:
    """An active party that lies sends no noise, and a base of hardly any powers."""
    public = PublicKey(key.public.n, key.public.noise_base, 1)
    ciphertexts = to_wire(key.raw_encrypt([1, 1]), public.modulus)
    residues = {
        from_wire(add_by_group(public, ciphertexts, np.zeros(2, np.intp)), public.modulus)[0]
        % public.n
        for _ in range(10)
    }
    assert len(residues) == 10


def test_each_person_needs_one_ciphertext(key: PrivateKey) -> None:
    ciphertexts = to_wire(key.encrypt([1, 2]), key.public.modulus)
    with pytest.raises(MessageError, match="one ciphertext for each person"):
        add_by_group(key.public, ciphertexts, np.zeros(3, np.intp))


def test_a_key_has_room_to_mask() -> None:
    short = generate(128)
    ciphertexts = to_wire(short.encrypt([0]) * 2**20, short.public.modulus)
    with pytest.raises(MessageError, match="too short"):
        add_by_group(short.public, ciphertexts, np.zeros(2**20, np.intp))
