"""A test run that is killed leaves no broker, database or daemon behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.left_behind import watch

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.mark.parametrize("knows", ["by its command", "by its directory", "by its environment"])
def test_what_a_run_has_started_ends_with_it(tmp_path: Path, knows: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    inside = {
        "by its command": {"args": (*SLEEP, str(folder / "file"))},
        "by its directory": {"args": SLEEP, "cwd": folder},
        "by its environment": {"args": SLEEP, "env": {**os.environ, "NODE": str(folder)}},
    }
    watcher = watch(folder)
    started = subprocess.Popen(start_new_session=True, **inside[knows])
    other = subprocess.Popen((*SLEEP, f"{folder}-of-another-run"), start_new_session=True)
    try:
        time.sleep(0.2)
        assert started.poll() is None

        watcher.communicate()

        assert started.wait(timeout=15) < 0
        assert other.poll() is None
    finally:
        for process in (started, other):
            process.kill()
            process.wait()


WITH_SEMAPHORES = """
import sys
from pathlib import Path
from loky.backend.resource_tracker import _resource_tracker
from loky.backend.synchronize import Lock
from tests.left_behind import watch

lock = Lock()
watch(Path(sys.argv[1])).communicate()
assert _resource_tracker._check_alive()
"""


def test_a_tracker_is_there_until_the_last_semaphore_is_given_back(tmp_path: Path) -> None:
    environment = {**os.environ, "NODE": str(tmp_path)}
    run = [sys.executable, "-W", "error", "-c", WITH_SEMAPHORES, str(tmp_path)]
    ended = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
