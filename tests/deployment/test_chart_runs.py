"""What the Helm chart lays out becomes a daemon that is ready, by the chart's commands and probes.

There is no cluster: paths of the pod are folders here. The broker is a private node with
certificates.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from tests.cli.command import fedmq
from tests.deployment.helm import Answer, ask, is_here
from tests.deployment.test_chart import CHART, pod, the
from tests.free_port import free_port
from tests.party.daemons import Daemon

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not is_here(), reason="there is no helm here; make charts installs one"),
]
TOKEN = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Pod:
    """A pod's volumes as folders, and what the chart rendered."""

    rendered: Answer
    folder: Path

    def here(self, text: str) -> str:
        """``text`` with the folders of this machine; nobody outside it reaches the daemon."""
        for inside, outside in (
            ("/files/.", f"{self.folder / 'given'}/."),
            ("/etc/fedmq", str(self.folder / "files")),
            ("/var/lib/fedmq", str(self.folder / "state")),
            ("0.0.0.0", "127.0.0.1"),
        ):
            text = text.replace(inside, outside)
        return text

    def lay_out(self, own: Path) -> None:
        """The projected volume, with the party's ``own`` files; then the first container."""
        given = self.folder / "given"
        for folder in (given, self.folder / "files", self.folder / "state"):
            folder.mkdir(parents=True)
        party_file = the(self.rendered, "Secret")["stringData"]["party.toml"]
        (given / "party.toml").write_text(self.here(party_file))
        for name, text in the(self.rendered, "ConfigMap")["data"].items():
            (given / name).write_text(text)
        for path in (own / "keys.json", *(own / "tls").iterdir()):
            (given / path.name).write_bytes(path.read_bytes())
        [container] = pod(self.rendered)["initContainers"]
        *shell, line = container["command"]
        subprocess.run([*shell, self.here(line)], check=True)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pod, int]]:
    folder = tmp_path_factory.mktemp("chart")
    broker, http = free_port(), free_port()
    federation = folder / "federation"
    made = fedmq(
        "init", federation, "--active", "bank", "--passive", "telco", "--example",
        "--broker", f"127.0.0.1:{broker}",
    )  # fmt: skip
    assert made.code == 0, made.err
    own = federation / "bank"
    sections = (own / "party.toml").read_text().partition("[data]")
    tables = (sections[1] + sections[2]).replace('path = "', f'path = "{own}/')
    values = {
        "party": "bank",
        "files": {
            "federation": (federation / "federation.toml").read_text(),
            "party": tables,
            "secret": "fedmq-bank-files",
        },
        "broker": {"host": "127.0.0.1", "port": broker},
        "http": {"port": http, "token": TOKEN},
    }
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    rendered = ask(CHART, path)
    assert rendered.refused == ""
    node = federation / "broker" / "node"
    subprocess.run(
        [node, "start", node.parent, "--port", str(broker)], check=True, capture_output=True
    )
    laid_out = Pod(rendered, folder / "pod")
    laid_out.lay_out(own)
    daemon = Daemon(folder / "pod" / "files" / "party.toml")
    try:
        yield laid_out, http
    finally:
        daemon.discard()
        subprocess.run([node, "stop", node.parent], check=True, capture_output=True)


def test_the_probes_become_green(running: tuple[Pod, int]) -> None:
    laid_out, port = running
    [container] = pod(laid_out.rendered)["containers"]
    assert container["args"][:2] == ["run", "/etc/fedmq/party.toml"]
    deadline = time.monotonic() + 60
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        url = f"http://127.0.0.1:{port}{container[probe]['httpGet']['path']}"
        while not answers(url):
            assert time.monotonic() < deadline, probe
            time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_the_token_of_the_secret_shows_the_metrics(running: tuple[Pod, int]) -> None:
    laid_out, port = running
    token = the(laid_out.rendered, "Secret")["stringData"]["http-token"]
    url = f"http://127.0.0.1:{port}/metrics"
    assert httpx.get(url).status_code == 401
    shown = httpx.get(url, headers={"Authorization": f"Bearer {token}"})
    assert "fedmq_broker_connected 1.0" in shown.text


def test_the_owners_commands_reach_the_daemon(running: tuple[Pod, int]) -> None:
    """As kubectl exec types them."""
    laid_out, _ = running
    assert fedmq("health", laid_out.folder / "files" / "party.toml").code == 0
