"""Which semaphores have killed processes left in shared memory?

A pool of processes makes some by name, and removes them when it ends. Where a whole process group
is killed, nobody does, and they stay until the machine starts again.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

__all__ = ["remove_orphaned_semaphores"]

_SHARED_MEMORY = Path("/dev/shm")
_NAME = re.compile(r"sem\.loky-(\d+)-\w+")


def remove_orphaned_semaphores(folder: Path = _SHARED_MEMORY) -> int:
    """Remove those that this user's pools left in ``folder``, and say how many there were.

    Whoever shares this memory must share process ids too, as containers do by default: theirs are
    told by the process that a name begins with, which is gone.
    """
    removed = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            found = _NAME.fullmatch(entry.name)
            if found is None or Path("/proc", found[1]).exists():
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    Path(entry.path).unlink()
                    removed += 1
    return removed
