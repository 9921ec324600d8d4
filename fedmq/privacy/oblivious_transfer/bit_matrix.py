"""How are columns of bits turned into rows of bits, as fast as bytes are copied?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["transposed"]


def transposed(columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bits (128 columns, 8 rows a byte) as rows of 128 bits: uint8 (rows, 16).

    In blocks of eight by eight bits, each a number of 64 bits (Warren, Hacker's Delight, 7-3).
    """
    groups, width = len(columns) // 8, columns.shape[1]
    blocks = np.empty((width, groups, 8), np.uint8)
    for column in range(8):  # one after the other: strided copies of all take twice as long
        # The highest byte of a little-endian number comes last: columns are turned, and so are rows
        blocks[:, :, 7 - column] = columns[column::8].T
    bits = blocks.view("<u8")
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0xF0F0F0F0)):
        swapped = bits >> np.uint64(shift)
        swapped ^= bits
        swapped &= np.uint64(mask)
        bits ^= swapped
        swapped <<= np.uint64(shift)
        bits ^= swapped
    by_row = bits.view(np.uint8).reshape(width, groups, 8)[..., ::-1].transpose(0, 2, 1)
    return np.ascontiguousarray(by_row).reshape(8 * width, groups)
