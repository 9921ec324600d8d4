"""Ones of a label by bin, counted under encryption; and what a liar reads instead."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.homomorphic.label_counts import count_ones, decrypt_counts, encrypt_labels
from fedmq.privacy.homomorphic.paillier import PrivateKey, generate
from fedmq.privacy.homomorphic.residues import to_wire

ROWS = 60


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return generate(512)


def test_ones_are_counted_by_bin_of_each_column(key: PrivateKey) -> None:
    random = np.random.default_rng(0)
    label = random.random(ROWS) < 0.4
    columns = [random.integers(bins, size=ROWS).astype(np.uint16) for bins in (1, 3, 7)]
    ciphertexts = encrypt_labels(key, label)
    found = decrypt_counts(key, count_ones(key.public, ciphertexts, columns), ROWS)
    for column, ones in zip(columns, found, strict=True):
        assert ones.tolist() == np.bincount(column[label], minlength=column.max() + 1).tolist()


def test_who_encrypts_powers_of_two_reads_the_bins_of_as_many_people_as_rows_have_bits(
    key: PrivateKey,
) -> None:
    random = np.random.default_rng(1)
    column = random.integers(4, size=ROWS).astype(np.uint16)
    lie = to_wire(key.encrypt([1 << row for row in range(ROWS)]), key.public.modulus)
    [found] = decrypt_counts(key, count_ones(key.public, lie, [column]), ROWS)
    bits = ROWS.bit_length()
    read = {row for number in (2,) for row in range(ROWS) if int(found[number]) >> row & 1}
    assert read == {row for row in range(bits) if column[row] == 2}
    sums = count_ones(key.public, lie, [column])[0]
    whole = [int(number) % int(key.public.n) for number in _decrypted(key, sums)]
    for number, masked in enumerate(whole):  # above the bits nothing of the sum is left
        honest = sum(1 << row for row in range(ROWS) if column[row] == number)
        assert masked >> bits != honest >> bits


def _decrypted(key: PrivateKey, sums: np.ndarray) -> list[int]:
    from fedmq.privacy.homomorphic.group_sums import decrypting
    from fedmq.privacy.homomorphic.residues import from_wire

    return decrypting(key).decrypt(from_wire(sums, key.public.modulus))


def test_as_many_ciphertexts_as_rows_are_needed(key: PrivateKey) -> None:
    with pytest.raises(MessageError, match="one ciphertext for each row"):
        count_ones(key.public, encrypt_labels(key, np.ones(3, np.bool_)), [np.zeros(4, np.uint16)])
