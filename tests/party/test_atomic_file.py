"""Files are replaced whole, whatever happens to the disk or the process."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_atomically, write_whole
from tests.full_disk import room_for


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "share.json"


def names(path: Path) -> list[str]:
    return [neighbour.name for neighbour in path.parent.iterdir()]


def test_text_and_bytes_are_written_and_replace_what_was_there(path: Path) -> None:
    write_atomically(path, "böb\n")
    assert path.read_bytes() == "böb\n".encode()
    write_atomically(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert names(path) == ["share.json"]


def test_a_private_file_is_its_owners_alone_at_every_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    fsync = os.fsync

    def watched(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            seen.append(os.fstat(file).st_mode & 0o777)
        fsync(file)

    path.parent.mkdir()
    path.write_text("old, and open to all")
    path.chmod(0o644)
    monkeypatch.setattr(os, "fsync", watched)
    write_atomically(path, "secret", mode=0o600)
    assert seen == [0o600]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_umask_decides_who_may_read_any_other_file(path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(path, "text")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_file_is_on_disk_before_it_has_its_name_and_the_name_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []

    def watched(file: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file"
        synced.append((kind, path.exists()))

    monkeypatch.setattr(os, "fsync", watched)
    write_atomically(path, "text")
    assert synced == [("file", False), ("folder", True)]


def test_a_disk_that_fills_up_midway_leaves_the_old_file_and_nothing_beside_it(path: Path) -> None:
    write_atomically(path, "old")
    with room_for(5000), pytest.raises(OSError) as caught:
        write_atomically(path, bytes(20_000))
    assert caught.value.errno == errno.EFBIG
    assert path.read_text() == "old"
    assert names(path) == ["share.json"]


def test_a_disk_that_is_found_full_when_it_is_synced_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert names(path) == ["share.json"]


def test_a_file_system_that_syncs_no_folders_is_good_enough(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files_only(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", files_only)
    write_atomically(path, "text")
    assert path.read_text() == "text"


def test_an_interruption_leaves_nothing_either(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Path, __: Path) -> None:
        raise KeyboardInterrupt

    write_atomically(path, "old")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", interrupted)
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert names(path) == ["share.json"]


_KILLED = """
import os, pathlib, signal, sys
from fedmq.party.atomic_file import write_atomically, write_whole

pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(pathlib.Path(sys.argv[1]), "new")
"""


def test_a_crash_between_write_and_replace_leaves_the_old_file(path: Path) -> None:
    write_atomically(path, "old")
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    (left,) = set(names(path)) - {"share.json"}
    assert left.startswith(".share.json.") and left.endswith(".part")
    assert [found.name for found in path.parent.glob("*.json")] == ["share.json"]
    write_atomically(path, "newer")
    assert path.read_text() == "newer"


def test_a_disk_that_refuses_is_one_line_that_names_the_file(path: Path) -> None:
    write_whole(path, "old", 0o600)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("old", 0o600)
    with room_for(5000), pytest.raises(ConfigError) as caught:
        write_whole(path, bytes(20_000))
    assert str(caught.value) == f"{path}: cannot be written: File too large"
    assert path.read_text() == "old"
