from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fedmq.party.compute.processes import remove_orphaned_semaphores


def test_semaphores_of_a_process_that_is_gone_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    orphan = tmp_path / f"sem.loky-{ended.pid}-0a1b2c3d"
    orphan.touch()

    assert remove_orphaned_semaphores(tmp_path) == 1
    assert not orphan.exists()


def test_what_a_living_process_or_somebody_else_made_stays(tmp_path: Path) -> None:
    own = tmp_path / f"sem.loky-{os.getpid()}-0a1b2c3d"
    other = tmp_path / "sem.somebody-1"
    for path in (own, other):
        path.touch()

    assert remove_orphaned_semaphores(tmp_path) == 0
    assert own.exists() and other.exists()


def test_without_shared_memory_there_is_nothing_to_remove(tmp_path: Path) -> None:
    assert remove_orphaned_semaphores(tmp_path / "nowhere") == 0
