"""Results come back as they were, and leave no file behind."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.large_array import FILES
from fedmq.party.compute.processes import ProcessPool, ResultFile, SharedArrays, packed_result
from tests.full_disk import room_for
from tests.party.compute.computations import Copy
from tests.party.compute.test_shared_arrays import arrays, open_files


@pytest.mark.parametrize(("_", "array"), arrays(), ids=[name for name, _ in arrays()])
def test_an_array_comes_back_as_it_was(_: str, array: NDArray[Any]) -> None:
    gc.collect()  # what other tests have left is closed before, not meanwhile
    before = open_files()
    file = ResultFile()
    result = file.read(packed_result({"held": [array, array[:1]]}, file.address))
    file.close()
    [held, first] = result["held"]
    assert held.dtype == array.dtype
    np.testing.assert_array_equal(held, array)
    np.testing.assert_array_equal(first, array[:1])
    del result, held, first
    gc.collect()
    assert open_files() == before


def test_several_arrays_share_a_file_that_outlives_its_descriptor() -> None:
    random = np.random.default_rng(0)
    made = [random.integers(0, 255, 300_001, np.uint8), random.normal(size=(90, 900))]
    file = ResultFile()
    packed = packed_result(made, file.address)
    assert len(packed) < 1000
    read = file.read(packed)
    file.close()
    for before, after in zip(made, read, strict=True):
        np.testing.assert_array_equal(before, after)
    read[1][0] = 0  # it is nobody else's


LONG = np.arange(2 << 20)


def test_a_computation_reads_a_long_result_where_it_lies() -> None:
    gc.collect()
    before, counted, shared, file = open_files(), FILES.in_memory, SharedArrays(), ResultFile()
    short = np.arange(100_000)
    result = file.read(packed_result([short, LONG], file.address), shared)
    file.close()
    held = FILES.in_memory
    assert held - counted >= short.nbytes + LONG.nbytes
    copy = pickle.loads(shared.pickled(Copy(result[1])))  # noqa: S301 (made in the line itself)
    np.testing.assert_array_equal(copy.array, LONG)
    assert FILES.in_memory == held, "no other file was made"
    del result, copy
    gc.collect()
    assert FILES.in_memory == counted
    assert open_files() == before


def test_a_long_result_beyond_the_limit_is_copied_when_a_computation_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gc.collect()
    monkeypatch.setattr(FILES, "limit", FILES.in_memory + 1000)
    monkeypatch.setattr(FILES, "folder", tmp_path)
    counted, on_disk, shared, file = FILES.in_memory, FILES.on_disk, SharedArrays(), ResultFile()
    result = file.read(packed_result(LONG, file.address), shared)
    file.close()
    assert FILES.in_memory == counted
    copy = pickle.loads(shared.pickled(Copy(result)))  # noqa: S301 (made in the line itself)
    assert FILES.on_disk == on_disk + LONG.nbytes
    np.testing.assert_array_equal(copy.array, LONG)


def test_without_anonymous_files_arrays_travel_with_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    array = np.arange(100_000)
    file = ResultFile()
    np.testing.assert_array_equal(file.read(packed_result(array, file.address)), array)
    file.close()


def test_where_no_more_files_may_be_open_arrays_travel_with_the_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    array = np.arange(100_000)
    file = ResultFile()
    np.testing.assert_array_equal(file.read(packed_result(array, file.address)), array)
    file.close()
    assert "Too many open files" in caplog.text


def test_where_the_file_may_not_grow_arrays_travel_with_the_rest() -> None:
    array, file = np.arange(100_000), ResultFile()
    with room_for(4096):
        packed = packed_result(array, file.address)
    np.testing.assert_array_equal(file.read(packed), array)
    file.close()


def test_a_worker_sends_a_large_array_by_a_file() -> None:
    array = np.random.default_rng(1).normal(size=200_000)

    async def run() -> Any:
        pool = ProcessPool(1)
        try:
            return await pool.run(Copy(array))
        finally:
            await pool.close()

    copy = asyncio.run(run())
    np.testing.assert_array_equal(getattr(copy, "array", copy), array)
