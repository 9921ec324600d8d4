from __future__ import annotations

import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from fedmq.errors import ConfigError
from fedmq.party.configuration.party import ComputeSection, PartyFile
from fedmq.simulation.memory_watch import MemoryWatch


def party(tmp_path: Path, compute: str) -> ComputeSection:
    (tmp_path / "federation.toml").write_text(
        'name = "demo"\nactive = "bank"\npassive = ["telco"]\n'
    )
    (tmp_path / "party.toml").write_text(
        'party = "telco"\nfederation = "federation.toml"\nbroker = "amqp://t:t@localhost/"\n'
        f'{compute}\n[data]\npath = "data.csv"\nid = "id"\n'
    )
    return PartyFile.read(tmp_path / "party.toml")[0].compute


def test_a_dask_scheduler_is_all_that_compute_need_name(tmp_path: Path) -> None:
    assert party(tmp_path, 'compute = "dask://head:8786"').dask == "dask://head:8786"


def test_workers_and_memory_are_read(tmp_path: Path) -> None:
    compute = party(tmp_path, 'compute = { workers = 3, memory = "1.5 GB" }')
    assert (compute.workers, compute.memory_bytes) == (3, 1_500_000_000)
    assert ComputeSection().memory_bytes is None


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        ('compute = "head:8786"', "no address of a Dask scheduler"),
        ('compute = { memory = "lots" }', "is no size"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(tmp_path: Path, compute: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"compute.*{message}"):
        party(tmp_path, compute)


_HOLDS_FOR_A_WHILE = """
held = bytearray(b"x") * 80_000_000
print(flush=True)
input()
del held
print(flush=True)
input()
"""


def test_the_peak_of_memory_is_seen_though_it_has_passed() -> None:
    # In a process of its own: what other tests left in this one may go at any time.
    command = [sys.executable, "-c", _HOLDS_FOR_A_WHILE]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        with MemoryWatch(process.pid) as watch:
            while not watch.peak:
                time.sleep(0.01)
            print(file=process.stdin, flush=True)
            process.stdout.readline()
            with MemoryWatch(process.pid) as later:
                while not later.peak:
                    time.sleep(0.01)
        print(file=process.stdin, flush=True)
    assert watch.peak >= 80_000_000
    assert later.peak < watch.peak - 60_000_000
