from __future__ import annotations

import gc
import os
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.party.compute.processes import SharedArrays
from tests.full_disk import room_for
from tests.party.compute.computations import Copy

LARGE = 1 << 20


def open_files() -> set[str]:
    return {file.name for file in Path("/proc/self/fd").iterdir()}


def arrays() -> list[tuple[str, NDArray[Any]]]:
    random = np.random.default_rng(0)
    return [
        ("bytes", random.integers(0, 256, (1000, 512), dtype=np.uint8)),
        ("rows", random.normal(size=(300, 200)).astype(np.float32)),
        ("columns", np.asfortranarray(random.normal(size=(300, 200)))),
        ("strided", random.normal(size=(600, 200))[::2]),
        ("small", np.arange(3)),
        ("empty", np.empty((0, 7))),
        ("objects", np.array([10**30, 2], dtype=object)),
    ]


@pytest.mark.parametrize(("_", "array"), arrays(), ids=[name for name, _ in arrays()])
def test_an_array_arrives_as_it_was(_: str, array: NDArray[Any]) -> None:
    shared = SharedArrays()
    copy = pickle.loads(shared.pickled(Copy(array)))  # noqa: S301 (made in the line itself)
    assert copy.array.dtype == array.dtype
    np.testing.assert_array_equal(copy.array, array)


def test_a_large_array_travels_once() -> None:
    shared, array = SharedArrays(), np.zeros(LARGE, dtype=np.uint8)
    first = shared.share(array)
    assert first is not None
    assert shared.share(array) == first
    assert len(shared.pickled(Copy(array))) < 1000


def test_a_small_array_travels_as_bytes() -> None:
    assert SharedArrays().share(np.zeros(100)) is None


def test_what_arrives_cannot_be_written() -> None:
    array = np.zeros(LARGE, dtype=np.uint8)
    copy = pickle.loads(SharedArrays().pickled(Copy(array)))  # noqa: S301 (made in the line itself)
    with pytest.raises(ValueError, match="read-only"):
        copy.array[0] = 1


def test_memory_is_given_back_with_the_array() -> None:
    shared = SharedArrays()
    before = open_files()
    array = np.zeros(LARGE, dtype=np.uint8)
    shared.share(array)
    assert len(open_files() - before) == 1
    del array
    gc.collect()
    assert not open_files() - before


def test_an_array_that_travelled_is_gone_with_its_last_reader() -> None:
    shared = SharedArrays()
    before = open_files()
    array = np.zeros(LARGE, dtype=np.uint8)
    left = weakref.ref(array)
    gc.disable()  # arrays are no reason for a collection, however long they are
    try:
        shared.pickled(Copy(array))
        del array
        assert left() is None
        assert not open_files() - before
    finally:
        gc.enable()


def test_arrays_that_a_computation_reads_first_share_a_file_on_both_sides() -> None:
    shared, before = SharedArrays(), open_files()
    pieces = [np.full(LARGE // 2, value, dtype=np.uint8) for value in range(20)]
    work = shared.pickled(Copy(pieces))  # type: ignore[arg-type]
    assert len(open_files() - before) == 1
    copies = pickle.loads(work).array  # noqa: S301 (made a line above)
    assert len(open_files() - before) == 2  # this process reads them too, by a mapping
    for piece, copy in zip(pieces, copies, strict=True):
        np.testing.assert_array_equal(piece, copy)
    del copies, copy
    gc.collect()

    later = [*pieces, np.ones(LARGE, dtype=np.uint8)]
    shared.pickled(Copy(later))  # type: ignore[arg-type]
    assert len(open_files() - before) == 2  # a file for what is new alone: it may end before
    del later
    gc.collect()
    assert len(open_files() - before) == 1
    kept = pieces[7]
    del pieces, piece
    gc.collect()
    copy = pickle.loads(shared.pickled(Copy(kept))).array  # noqa: S301 (made in the line itself)
    np.testing.assert_array_equal(copy, kept)
    del kept, copy
    gc.collect()
    assert not open_files() - before


def test_a_long_array_ends_its_file_although_others_of_its_computation_live_on() -> None:
    shared, before = SharedArrays(), open_files()
    short, long = np.zeros(LARGE, dtype=np.uint8), np.zeros(16 * LARGE, dtype=np.uint8)
    shared.pickled(Copy([short, long]))  # type: ignore[arg-type]
    assert len(open_files() - before) == 2
    del long
    gc.collect()
    assert len(open_files() - before) == 1


def test_an_array_at_the_address_of_a_former_one_is_another() -> None:
    shared = SharedArrays()
    for value in range(5):
        array = np.full(LARGE, value, dtype=np.uint8)
        copy = pickle.loads(shared.pickled(Copy(array)))  # noqa: S301 (made in the line itself)
        assert copy.array[0] == value
        del array, copy


def test_without_anonymous_files_arrays_travel_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    array = np.arange(LARGE)
    work = SharedArrays().pickled(Copy(array))
    assert len(work) > array.nbytes
    np.testing.assert_array_equal(pickle.loads(work).array, array)  # noqa: S301 (see above)


def test_where_a_file_is_refused_arrays_travel_as_bytes() -> None:
    array, before, shared = np.arange(LARGE), open_files(), SharedArrays()
    with room_for(4096):
        work = shared.pickled(Copy(array))
    assert len(work) > array.nbytes
    np.testing.assert_array_equal(pickle.loads(work).array, array)  # noqa: S301 (see above)
    assert open_files() == before
    assert len(shared.pickled(Copy(array))) < 1000  # there is room again
