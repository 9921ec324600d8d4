from __future__ import annotations

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmq.errors import MessageError
from fedmq.privacy.homomorphic import residues as wire

# 21 bytes, not a whole number of machine words.
MODULUS = mpz(2) ** 163 - 5


@settings(deadline=None)
@given(st.lists(st.sampled_from([1, 2**64, int(MODULUS) - 1]) | st.integers(1, int(MODULUS) - 1)))
def test_ciphertexts_come_back_from_their_bytes(values: list[int]) -> None:
    ciphertexts = [mpz(value) for value in values]
    rows = wire.to_wire(ciphertexts, MODULUS)
    assert rows.dtype == np.uint8
    assert rows.shape == (len(values), 21)
    assert wire.from_wire(rows, MODULUS) == ciphertexts


def test_a_row_is_the_little_endian_number() -> None:
    rows = wire.to_wire([mpz(258), mpz(7)], MODULUS)
    assert [int.from_bytes(row.tobytes(), "little") for row in rows] == [258, 7]


def test_a_slice_of_rows_is_read_like_a_copy() -> None:
    rows = wire.to_wire([mpz(i) for i in range(1, 10)], MODULUS)
    assert wire.from_wire(rows[::3], MODULUS) == [1, 4, 7]


@pytest.mark.parametrize("bad", [mpz(0), MODULUS, MODULUS + 1])
@pytest.mark.parametrize("row", [0, 2])
def test_a_row_that_is_no_residue_is_refused_by_number(bad: mpz, row: int) -> None:
    values = [mpz(1)] * 3
    values[row] = bad
    with pytest.raises(MessageError, match=f"row {row} is no residue"):
        wire.from_wire(wire.to_wire(values, MODULUS), MODULUS)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((3, 20), dtype=np.uint8),
        np.zeros(21, dtype=np.uint8),
        np.zeros((3, 21), dtype=np.int8),
    ],
    ids=["width", "dimension", "dtype"],
)
def test_rows_of_another_key_are_refused(rows: np.ndarray) -> None:
    with pytest.raises(MessageError, match="expected uint8 rows of 21 bytes"):
        wire.from_wire(rows, MODULUS)
