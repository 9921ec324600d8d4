"""What names stand for, on disk and in memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fedmq.errors import ConfigError
from fedmq.party.store.documents import Deployment, Deployments


def test_what_the_disk_refuses_is_switched_on_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Deployments.read(tmp_path)
    kept.put("production", Deployment(model="old", mode="hop"))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(ConfigError, match="cannot be written: No space left"):
            kept.put("production", Deployment(model="new", mode="hop"))

    for deployments in (kept, Deployments.read(tmp_path)):
        assert deployments.names()["production"].model == "old"
        assert [deployment.model for deployment in deployments.kept()] == ["old"]
