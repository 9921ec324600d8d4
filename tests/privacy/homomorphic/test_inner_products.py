"""Coefficients of columns of two parties under encryption: right to two digits, and no finer."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.standard_columns import carried_by, standardised
from fedmq.errors import MessageError
from fedmq.privacy.homomorphic.group_sums import decrypting
from fedmq.privacy.homomorphic.inner_products import (
    add_products,
    decrypt_products,
    encrypt_columns,
    slots_of,
)
from fedmq.privacy.homomorphic.paillier import PrivateKey, generate
from fedmq.privacy.homomorphic.residues import from_wire

ROWS = 150


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return generate(512)


def columns(seed: int, number: int) -> np.ndarray:
    """Of all kinds: even, skewed by far, marks of few people, some values missing."""
    random = np.random.default_rng(seed)
    base = np.random.default_rng(9).normal(size=ROWS)
    found = random.normal(size=(ROWS, number)) + random.normal(size=number) * base[:, np.newaxis]
    found[:, 0] = np.exp(3 * found[:, 0])
    found[:, 1] = found[:, 1] > 2
    found[random.random(ROWS) < 0.3, 2] = np.nan
    return found


def imputed(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), np.nanmean(values, axis=0), values)


def test_coefficients_are_those_of_the_joined_table_to_a_hundredth(key: PrivateKey) -> None:
    theirs, own = columns(1, slots_of(key.public, ROWS) + 3), columns(2, 4)
    encrypted = encrypt_columns(key, standardised(theirs), ROWS)
    assert encrypted.shape[:2] == (ROWS, 2)
    sums = add_products(key.public, encrypted, standardised(own), theirs.shape[1])
    found = decrypt_products(key, sums, ROWS, theirs.shape[1])
    both = np.corrcoef(np.hstack([imputed(own), imputed(theirs)]), rowvar=False)
    np.testing.assert_allclose(found, both[:4, 4:], atol=0.0106)
    np.testing.assert_array_equal(found, np.round(found, 2))


def test_noise_of_a_hundredth_is_all_that_is_below_two_digits(key: PrivateKey) -> None:
    """Decrypted whole, the same question has answers that spread evenly over a hundredth."""
    theirs, own = standardised(columns(1, 3)), standardised(columns(2, 3))
    encrypted = encrypt_columns(key, theirs, ROWS)
    exact = float((theirs[:, 0] * own[:, 0]).mean())
    bits = ROWS.bit_length() + 24
    many = np.repeat(own[:, :1], 200, axis=1)
    opened = decrypting(key).decrypt(
        from_wire(add_products(key.public, encrypted, many, 3)[:, 0], key.public.modulus)
    )
    told = np.array(
        [(int(one % key.public.n) % 2**bits - 2 ** (bits - 1)) / ROWS / 2**22 for one in opened]
    )
    off = told - exact
    assert np.abs(off).max() < 0.0056
    assert off.min() < -0.0045 and off.max() > 0.0045 and abs(off.mean()) < 0.001


def test_nothing_above_the_slots_is_told(key: PrivateKey) -> None:
    encrypted = encrypt_columns(key, standardised(columns(1, 3)), ROWS)
    own = np.repeat(standardised(columns(2, 3))[:, :1], 2, axis=1)
    one, other = decrypting(key).decrypt(
        from_wire(add_products(key.public, encrypted, own, 3)[:, 0], key.public.modulus)
    )
    for above in (3 * (ROWS.bit_length() + 24), slots_of(key.public, ROWS) * 32):
        assert int(one % key.public.n) >> above != int(other % key.public.n) >> above


def test_slots_of_columns_that_were_not_offered_are_masked(key: PrivateKey) -> None:
    own = standardised(columns(2, 3))
    encrypted = encrypt_columns(key, standardised(columns(1, 5)), ROWS)
    sums = add_products(key.public, encrypted, own, 2)
    assert np.abs(decrypt_products(key, sums, ROWS, 5)[:, 2:]).max() > 0.9  # of any size, cut to 1
    again = decrypt_products(key, add_products(key.public, encrypted, own, 2), ROWS, 5)
    first = decrypt_products(key, sums, ROWS, 5)
    assert (np.abs(first - again)[:, :2] <= 0.0101).all()
    assert (np.abs(first - again)[:, 2:] > 0.1).any()
    with pytest.raises(MessageError, match="1 blocks of columns, not 2"):
        add_products(key.public, encrypted, own, slots_of(key.public, ROWS) + 1)


def test_a_liar_that_encrypts_one_large_number_reads_one_person_s_value(key: PrivateKey) -> None:
    """What docs/explanation/screening.md says: a value for each column that is sent."""
    own = standardised(columns(2, 3))
    lie = np.zeros((ROWS, 1))
    lie[7] = ROWS / 8
    found = decrypt_products(
        key, add_products(key.public, encrypt_columns(key, lie, ROWS), own, 1), ROWS, 1
    )
    np.testing.assert_allclose(8 * found[:, 0], own[7], atol=8 * 0.0106)


def test_as_many_ciphertexts_as_rows_are_needed(key: PrivateKey) -> None:
    encrypted = encrypt_columns(key, np.ones((3, 1)), 3)
    with pytest.raises(MessageError, match="one ciphertext for each row"):
        add_products(key.public, encrypted, np.ones((4, 1)), 1)


def test_people_who_carry_a_column() -> None:
    mark = np.zeros((10_000, 2))
    mark[:30, 0] = 1
    mark[0, 1] = 1e9
    found = carried_by(standardised(mark))
    assert found[0] == 30
    assert found[1] == pytest.approx(1, rel=0.02)
    assert carried_by(standardised(np.full((9, 1), 0.1))) == [0]
    assert carried_by(standardised(np.arange(20).reshape(20, 1) < 7)) == [7]
