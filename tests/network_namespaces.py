"""Machines with a network of their own: Linux network namespaces, wired to one server alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

FILES = Path("/etc/netns")
"""`ip netns exec NAME` shows the file NAME/hosts in here as /etc/hosts."""
BRIDGE = "bridge"


@dataclass(frozen=True)
class Namespace:
    """The network of one machine; its names bear this process's id, so that runs do not meet."""

    name: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """What stands before a command that runs there; the process keeps its id."""
        return ["ip", "netns", "exec", self.name]


@contextlib.contextmanager
def network_namespaces(
    server: str, host_name: str, clients: Sequence[str]
) -> Iterator[Mapping[str, Namespace]]:
    """Networks of ``server`` and ``clients``; all know the server's address as ``host_name``.

    Clients reach the server, not each other, and nothing reaches this machine's own network. At
    the end, however it comes, processes that still run there are killed and all is removed. The
    test is skipped, with a reason, where namespaces cannot be made.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, and the command ip")
    names = [server, *clients]
    machines = {
        name: Namespace(f"fedmq-{os.getpid()}-{name}", f"10.0.0.{number}")
        for number, name in enumerate(names, 1)
    }
    # The bridge has a namespace too: then everything goes with the namespaces.
    switch = f"fedmq-{os.getpid()}-{BRIDGE}"
    try:
        try:
            _ip("netns", "add", switch)
            _ip("-n", switch, "link", "add", BRIDGE, "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made: {error.stderr.strip()}")
        _ip("-n", switch, "link", "set", BRIDGE, "up")
        hosts = f"{Path('/etc/hosts').read_text()}\n{machines[server].address} {host_name}\n"
        for name, machine in machines.items():
            _connect(machine, switch, name, isolated=name != server)
            (FILES / machine.name).mkdir(parents=True)
            (FILES / machine.name / "hosts").write_text(hosts)
        yield machines
    finally:
        for name in (*(machine.name for machine in machines.values()), switch):
            _remove(name)


def _connect(machine: Namespace, switch: str, port: str, *, isolated: bool) -> None:
    """Make the namespace, with a cable to the bridge's ``port``.

    What enters the bridge by an isolated port leaves it by one that is not isolated.
    """
    _ip("netns", "add", machine.name)
    peer = ["type", "veth", "peer", "name", port, "netns", switch]
    _ip("-n", machine.name, "link", "add", "eth0", *peer)
    _ip("-n", switch, "link", "set", port, "master", BRIDGE, "up")
    if isolated:
        _ip("-n", switch, "link", "set", port, "type", "bridge_slave", "isolated", "on")
    _ip("-n", machine.name, "address", "add", f"{machine.address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _ip("-n", machine.name, "link", "set", device, "up")


def _remove(name: str) -> None:
    shutil.rmtree(FILES / name, ignore_errors=True)
    # One that was not made has no processes, and cannot be deleted.
    with contextlib.suppress(subprocess.CalledProcessError):
        for pid in _ip("netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _ip("netns", "delete", name)


def _ip(*words: str) -> str:
    """What ``ip WORDS`` prints."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
