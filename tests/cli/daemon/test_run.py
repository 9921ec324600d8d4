"""A daemon that gets SIGTERM ends, even if a part of it never would."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

# A party whose sessions never close, in a hurry.
_HANGING = """
import asyncio, sys
from fedmq.cli import main
from fedmq.cli import run
from fedmq.party.sessions.sessions import Sessions
async def never(*_):
    await asyncio.Event().wait()
Sessions.close = never
run._STOP_SECONDS = 0.5
main.main()
"""


def test_a_daemon_that_cannot_come_to_its_end_says_where_it_stands_and_ends(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text('name = "demo"\nactive = "bank"\npassive = []\n')
    (tmp_path / "bank.csv").write_text("id,x,y\na,1,1\nb,2,0\n")
    (tmp_path / "bank.toml").write_text(
        'party = "bank"\nfederation = "federation.toml"\nstate = "state"\n'
        'broker = "amqp://bank:bank@127.0.0.1:1/"\nwait_for_broker = true\n'
        '[data]\npath = "bank.csv"\nid = "id"\nlabel = "y"\n'
        "[compute]\nworkers = 1\n[policy]\nallow_unsealed = true\n"
    )
    with (tmp_path / "log").open("ab") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-c", _HANGING, "run", "bank.toml"], cwd=tmp_path, stderr=log
        )
    deadline = time.monotonic() + 90
    while "is ready" not in (tmp_path / "log").read_text():
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.05)
    daemon.send_signal(signal.SIGTERM)

    assert daemon.wait(60) == 1
    log = (tmp_path / "log").read_text()
    assert "fedmq: bank does not stop within 0.5 s, and is ended" in log
    assert "daemon.py" in log or "asyncio" in log
