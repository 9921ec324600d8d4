"""Writing a file whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

__all__ = ["write_atomically"]

_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EACCES}
"""Errors of file systems, and of write-only folders, that cannot be synced."""


def write_atomically(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Put a file with ``content`` (text as UTF-8) at ``path``, replacing any file there.

    A reader of ``path``, also after a crash or a power loss, finds the old file or the new one.
    A missing folder is made. The umask applies to ``mode``; 0o600 is for the owner alone.

    Raises:
        OSError: the disk refuses; the old file stays, and no part file remains.
    """
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is random: no other writer uses it, and no file or link can exist there.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Put the new name on disk, too."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
