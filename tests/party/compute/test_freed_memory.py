"""Arrays that are freed serve the next ones: a new page costs more than what is computed on it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
import sys
import numpy as np
from fedmq.party.compute.freed_memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
numbers = np.arange(40_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    (numbers + 1) * (numbers + 2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _new_pages(how: str) -> int:
    # Dask sets glibc's thresholds in the environment of whoever starts its workers.
    environment = {name: text for name, text in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep memory by other rules")
def test_freed_arrays_are_no_new_pages() -> None:
    assert _new_pages("kept") < 1_000 < _new_pages("given back")
