"""A daemon's log for machines, and what it tells systemd."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmq.cli.run import log_to_stderr, notify_systemd


@pytest.fixture
def clean_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("fedmq").setLevel(logging.NOTSET)


@pytest.mark.usefixtures("clean_root")
def test_each_line_is_an_object_with_the_session(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("json", "bank", verbose=False)
    log = logging.getLogger("fedmq.party.sessions.sessions")
    about = {"session": "s1", "message_id": "m1"}
    log.info("training %s\nfinished", "s1", extra=about)
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")

    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.pop("at").endswith("+00:00")
    assert first == {
        "level": "info",
        "logger": "fedmq.party.sessions.sessions",
        "party": "bank",
        "text": "training s1\nfinished",
        "session": "s1",
        "message_id": "m1",
    }
    assert "ValueError: no" in second["error"]


@pytest.mark.usefixtures("clean_root")
def test_what_others_have_put_into_a_line_stays_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("text", "bank", verbose=False)
    log = logging.getLogger("fedmq.transport.link")
    log.warning("dead-lettered message %s", "\x1b[2J\n2026-01-01 INFO fedmq: all is well")
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        log.exception("failed")

    shown, *_, raised = capsys.readouterr().err.splitlines()
    assert shown.endswith(r"dead-lettered message \x1b[2J\n2026-01-01 INFO fedmq: all is well")
    assert raised == r"ValueError: \x1b[2J"


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_hears_that_the_daemon_is_ready(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"\0fedmq-test-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name)
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name.replace("\0", "@"))
        notify_systemd("READY=1")
        assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_systemd("READY=1")
