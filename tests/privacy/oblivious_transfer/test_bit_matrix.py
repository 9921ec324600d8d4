"""Rows of bits are columns turned."""

from __future__ import annotations

import numpy as np

from fedmq.privacy.oblivious_transfer.extension import transposed


def test_bits_are_transposed() -> None:
    columns = np.random.default_rng(0).integers(0, 256, (128, 21)).astype(np.uint8)
    rows = np.unpackbits(transposed(columns), axis=1)
    np.testing.assert_array_equal(rows, np.unpackbits(columns, axis=1).T)
