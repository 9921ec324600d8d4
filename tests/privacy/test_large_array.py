from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.large_array import (
    FILES,
    allow_open_files,
    descriptor_of,
    large_zeros,
    limit_memory,
    too_many_files,
)
from fedmq.party.compute.processes import SharedArrays
from fedmq.simulation.simulate import simulate
from tests.full_disk import room_for


@pytest.fixture(autouse=True)
def no_limit_afterwards() -> Iterator[None]:
    yield
    limit_memory(None)


def test_others_see_what_is_written_without_a_copy() -> None:
    array = large_zeros((300, 1000), np.uint8)
    place = SharedArrays().share(array)
    assert place is not None
    segment, start = place
    assert (segment.file, start) == (descriptor_of(array), 0)
    array[7, 8] = 9
    assert os.pread(segment.file, 1, 7008) == b"\x09"


def test_a_disk_without_room_says_so_and_nothing_is_counted(tmp_path: Path) -> None:
    limit_memory(0, tmp_path)
    before = FILES.on_disk, len(list(Path("/proc/self/fd").iterdir()))
    with room_for(4096), pytest.raises(OSError, match="large"):
        large_zeros((800_000,), np.uint8)
    assert (FILES.on_disk, len(list(Path("/proc/self/fd").iterdir()))) == before


def test_beyond_the_limit_arrays_lie_on_disk_and_leave_nothing_behind(tmp_path: Path) -> None:
    limit_memory(FILES.in_memory + 1_000_000, tmp_path)
    first = large_zeros((800_000,), np.uint8)
    second = large_zeros((800_000,), np.uint8)
    places = [Path(f"/proc/self/fd/{descriptor_of(array)}").readlink() for array in (first, second)]
    assert "memfd" in str(places[0])
    assert str(places[1]).startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_memory_is_given_back_with_the_array() -> None:
    gc.collect()  # of what other tests have left
    before = FILES.in_memory
    array = large_zeros((100_000,), np.int64)
    assert FILES.in_memory == before + 800_000
    del array
    gc.collect()
    assert FILES.in_memory == before


def test_an_array_of_nothing_is_nothing_special() -> None:
    assert descriptor_of(large_zeros((0, 5), np.uint8)) is None


def test_a_model_that_streams_from_disk_is_the_same(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(3000, 4))
    models = []
    for limit in (None, 0):
        limit_memory(limit, tmp_path)
        model = simulate(
            active=values[:, :2],
            label=values.sum(axis=1) > 0,
            passive={"telco": values[:, 2:]},
            params=TrainParams(num_boost_round=1, max_depth=2, max_bin=8),
            engine="ou",
            engine_options={"key_bits": 1024, "allow_weak_keys": True},
            workers=1,
        )
        models.append(model.share.model_dump_json())
    assert models[0] == models[1]
    assert FILES.on_disk == 0 or not list(tmp_path.iterdir())


def test_too_many_open_files_are_named_before_one_is_refused() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(list(Path("/proc/self/fd").iterdir())) + 2
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        assert "the systemd unit" in too_many_files()
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert not too_many_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert f"{hard + 1:,} will be open" in too_many_files(hard + 1)
    assert not too_many_files(100)
