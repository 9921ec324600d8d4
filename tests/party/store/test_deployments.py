"""What names stand for, on disk and in memory."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from fedmq.errors import ConfigError, DataError
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


def test_a_file_of_a_later_version_is_left_to_the_fedmq_that_wrote_it(tmp_path: Path) -> None:
    Deployments.read(tmp_path).put("production", Deployment(model="m", mode="hop"))
    path = Deployments.read(tmp_path).path
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "version": 2}))
    with pytest.raises(DataError, match="version 2 is unknown; this fedmq reads version 1, so use"):
        Deployments.read(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "nonsense", '{"version": "2"}', '{"version": 1, "x": 1}']
)
def test_a_damaged_file_names_no_version(tmp_path: Path, text: str) -> None:
    Deployments.read(tmp_path).path.write_text(text)
    with pytest.raises(DataError, match="cannot be read; move it away and activate again"):
        Deployments.read(tmp_path)


def test_fallback_models_are_forgotten_with_their_model(tmp_path: Path) -> None:
    deployments = Deployments.read(tmp_path)

    def serve(model: str, *, falls_back: bool) -> None:
        if falls_back:
            without = Deployment(model=f"{model}-without-telco", mode="hop")
            deployments.put("production-without-telco", without)
        deployments.put("production", Deployment(model=model, mode="hop"))

    serve("m", falls_back=True)
    serve("n", falls_back=False)
    assert deployments.names_of("m-without-telco") == ["production-without-telco"]
    for later in range(4):
        serve(f"later{later}", falls_back=False)
    assert deployments.names_of("m") == deployments.names_of("m-without-telco") == []
    serve("o", falls_back=True)
    again = Deployments.read(tmp_path)
    assert set(again.names()) == {"production"}  # nobody has to choose between them
    assert again.now_of("o-without-telco") == ["production-without-telco"]
