"""How is the memory that arithmetic frees kept for its next arrays?

glibc gives the memory of an array back to the system when it is freed, and the next array of that
size is new memory, page by page. That takes longer than the arithmetic on a ciphertext.
"""

from __future__ import annotations

import numpy as np

__all__ = ["keep_freed_memory"]

_LARGEST = 32 * 1024 * 1024 - 64 * 1024
"""The most that glibc learns from, less what it adds."""


def keep_freed_memory() -> None:
    """Keep up to 64 MiB of what this process frees, in arrays of up to 32 MiB.

    glibc does so for arrays up to the largest that it has seen freed: it is shown one, of which no
    page is touched. Thresholds of the environment hold instead, as Dask's workers have them. Other
    libraries have rules of their own.
    """
    np.empty(_LARGEST, np.uint8)
