"""The networks of tests keep apart what they should, and leave nothing on the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.network_namespaces import FILES, Namespace, network_namespaces

PORT = 5671
LISTEN = f"""
import socket, sys
server = socket.create_server(("0.0.0.0", {PORT}))
print("listens", flush=True)
sys.stdin.read()
"""
CONNECT = f"""
import socket, sys
try:
    socket.create_connection((sys.argv[1], {PORT}), 1).close()
except OSError:
    sys.exit(3)
"""


def listener(at: Namespace) -> subprocess.Popen[str]:
    """A process in the namespace that takes connections on all its addresses, until it is left."""
    process = subprocess.Popen(
        [*at.prefix, sys.executable, "-c", LISTEN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "listens\n"
    return process


def reaches(machine: Namespace, host: str) -> bool:
    done = subprocess.run([*machine.prefix, sys.executable, "-c", CONNECT, host], check=False)
    assert done.returncode in (0, 3)
    return done.returncode == 0


def left_over() -> list[str]:
    """The namespaces and files of this process."""
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    there = {line.split()[0] for line in listed.stdout.splitlines()}
    there |= {path.name for path in FILES.glob("*")}
    return sorted(name for name in there if name.startswith(f"fedmq-{os.getpid()}-"))


def test_clients_reach_the_server_and_not_each_other() -> None:
    with network_namespaces("operator", "mq.example.org", ["bank", "telco"]) as at:
        bank, telco, operator = at["bank"], at["telco"], at["operator"]
        with listener(operator), listener(telco):
            assert reaches(bank, "mq.example.org")
            assert reaches(bank, operator.address)
            assert reaches(telco, "mq.example.org")
            # telco's listener is there, and its cable works: it is the bank that has no way to it.
            assert reaches(telco, "127.0.0.1")
            assert reaches(operator, telco.address)
            assert not reaches(bank, telco.address)
            assert not reaches(bank, "127.0.0.1")


def test_nothing_is_left_after_a_failure() -> None:
    with (
        pytest.raises(RuntimeError, match="in the middle"),
        network_namespaces("operator", "mq.example.org", ["bank"]) as at,
    ):
        forgotten = listener(at["bank"])
        assert len(left_over()) == 3
        raise RuntimeError("in the middle")
    with forgotten:
        assert forgotten.wait(30) == -signal.SIGKILL
    assert left_over() == []
