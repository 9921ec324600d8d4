"""Arrays that are freed serve the next ones: a new page costs more than what is computed on it."""

from __future__ import annotations

import os
import platform
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


_RETURNED = """
from pathlib import Path
import numpy as np
from fedmq.party.compute.freed_memory import keep_freed_memory, return_freed_memory


def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


keep_freed_memory()
before = megabytes()
columns = [np.ones(20_000, np.float32) for _ in range(5000)]
others = [np.ones(20_000, np.float32) for _ in range(5000)]
del columns  # below memory that is still held
print(megabytes() - before, return_freed_memory(), megabytes() - before, return_freed_memory())
"""


def _new_pages(how: str, **thresholds: str) -> int:
    return int(_printed(_PROGRAM, how, **thresholds))


def _printed(program: str, *arguments: str, **thresholds: str) -> str:
    # Dask sets glibc's thresholds in the environment of whoever starts its workers.
    others = {name: text for name, text in os.environ.items() if "MALLOC" not in name}
    environment = others | thresholds
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return done.stdout


_OF_DASK = {"MALLOC_TRIM_THRESHOLD_": "65536"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep memory by other rules")
@pytest.mark.parametrize("thresholds", [{}, _OF_DASK], ids=["daemon", "worker of Dask"])
def test_freed_arrays_are_no_new_pages(thresholds: dict[str, str]) -> None:
    assert _new_pages("kept", **thresholds) < 1_000
    assert _new_pages("given back", **_OF_DASK) > 1_000


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc",
    reason="other C libraries keep memory by other rules",
)
def test_what_the_columns_of_a_wide_table_leave_behind_goes_back_to_the_system() -> None:
    kept, returned, left, again = _printed(_RETURNED).split()
    assert float(kept) > 750
    assert (returned, again) == ("True", "False")
    assert float(left) < 500
