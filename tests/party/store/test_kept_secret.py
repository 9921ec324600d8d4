"""A party's secret: drawn once, readable to its owner alone, and damaged in one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.errors import ConfigError, DataError
from fedmq.party.store.kept_secret import kept_secret


def test_a_secret_is_drawn_once(tmp_path: Path) -> None:
    secret = kept_secret(tmp_path)
    assert len(secret) == 32 and kept_secret(tmp_path) == secret
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert kept_secret(tmp_path / "elsewhere") != secret


def test_a_damaged_secret_and_a_disk_that_refuses_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "kept.secret").write_bytes(b"short")
    with pytest.raises(DataError, match=r"kept\.secret: not a secret of 32 bytes; delete it"):
        kept_secret(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises((ConfigError, DataError), match=r"file/kept\.secret"):
        kept_secret(tmp_path / "file")
