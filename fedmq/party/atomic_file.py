"""Writing files: whole or not at all, and tables in which a spreadsheet finds no formula."""

from __future__ import annotations

import csv
import errno
import io
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedmq.errors import ConfigError

__all__ = ["csv_for_people", "write_atomically", "write_whole"]

_FORMULA = tuple("=+-@\t\r\n")
"""What a cell begins with that a spreadsheet computes, or takes for empty before one."""

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


def write_whole(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """As `write_atomically`, but ConfigError, which names the file, if the disk refuses."""
    try:
        write_atomically(path, content, mode)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def csv_for_people(rows: Iterable[Sequence[object]], separator: str = ",") -> str:
    """``rows`` as the text of a CSV file; texts that would be formulas begin with an apostrophe.

    Texts may be another party's. Numbers stay as they are, with a sign too.
    """
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator).writerows([_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def _cell(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and _is_formula(cell) else cell


def _is_formula(cell: str) -> bool:
    if not cell.startswith(_FORMULA):
        return False
    try:
        float(cell.replace(",", "."))  # a decimal comma computes nothing
    except ValueError:
        return True
    return cell[0] in "\t\r\n"


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
