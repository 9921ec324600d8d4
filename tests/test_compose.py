"""``docker-compose.yml`` without Docker: every command line runs, with the files it would see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedmq.party.configuration.party import BROKER_VARIABLE
from tests.party.daemons import PARTIES
from tests.rabbitmq_node import RabbitNode

ROOT = Path(__file__).parent.parent
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in (ROOT / "Dockerfile").read_text().splitlines()
    if line and not line.startswith("#")
]


def instruction(name: str) -> str:
    [argument] = [argument for keyword, argument in INSTRUCTIONS if keyword == name]
    return argument


def mounts(service: str) -> list[tuple[str, str, bool]]:
    """(what, where in the container, whether it may be written)."""
    split = [volume.split(":") for volume in SERVICES[service]["volumes"]]
    return [(source, target, mode != ["ro"]) for source, target, *mode in split]


@dataclass(frozen=True)
class Container:
    """A service's root folder: bind mounts are copied, volumes are folders that services share."""

    service: str
    root: Path
    volumes: Path

    def prepare(self) -> None:
        """Lay out the files that the service sees."""
        for source, target, _ in mounts(self.service):
            path = self.root / target.removeprefix("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            if source.startswith("./"):
                shutil.copy(ROOT / source, path)
            else:
                volume = self.volumes / source
                volume.mkdir(parents=True, exist_ok=True)
                path.symlink_to(volume)

    def command(self, arguments: list[str]) -> list[str]:
        """``arguments`` with absolute paths inside the root folder."""
        programs = {"fedmq": str(Path(sys.executable).with_name("fedmq")), "python": sys.executable}
        inside = [
            str(self.root / word.removeprefix("/")) if word.startswith("/") else word
            for word in arguments
        ]
        return [programs.get(inside[0], inside[0]), *inside[1:]]

    def popen(self, arguments: list[str], **environment: str) -> subprocess.Popen[str]:
        """Start a process where the image's working directory is."""
        return subprocess.Popen(
            self.command(arguments),
            cwd=self.root / instruction("WORKDIR").removeprefix("/"),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def entrypoint(service: str) -> list[str]:
    default: list[str] = json.loads(instruction("ENTRYPOINT"))
    return SERVICES[service].get("entrypoint", default)


def at(node: RabbitNode, url: str) -> str:
    """The address of a service named ``broker``, as the private node has it."""
    assert "@broker:5672" in url
    return url.replace("@broker:5672", f"@127.0.0.1:{node.port}")


@pytest.fixture(scope="module")
def containers(
    tmp_path_factory: pytest.TempPathFactory, node: RabbitNode
) -> Iterator[dict[str, Container]]:
    """All services but the broker, running as the file says."""
    folder = tmp_path_factory.mktemp("compose")
    found = {
        service: Container(service, folder / service, folder / "volumes")
        for service in ("tables", *PARTIES)
    }
    for container in found.values():
        container.prepare()
    tables = found["tables"].popen(entrypoint("tables") + SERVICES["tables"]["command"])
    _, errors = tables.communicate(timeout=60)
    assert tables.returncode == 0, errors
    daemons = []
    try:
        for party in PARTIES:
            url = at(node, SERVICES[party]["environment"][BROKER_VARIABLE])
            command = entrypoint(party) + SERVICES[party]["command"]
            daemons.append(found[party].popen(command, **{BROKER_VARIABLE: url}))
        for party, daemon in zip(PARTIES, daemons, strict=True):
            assert daemon.stderr is not None
            for line in daemon.stderr:
                if line == f"{party} is ready in demo; see: fedmq status party.toml\n":
                    break
            assert daemon.poll() is None
        yield found
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.communicate(timeout=90)
        assert {daemon.returncode for daemon in daemons} == {0}


@pytest.mark.long
def test_every_party_becomes_healthy(containers: dict[str, Container]) -> None:
    for party in PARTIES:
        kind, *check = SERVICES[party]["healthcheck"]["test"]
        assert kind == "CMD"
        process = containers[party].popen(check)
        out, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors
        assert out.strip() == "ready"


@pytest.mark.long
def test_the_commands_in_its_head_work(containers: dict[str, Container]) -> None:
    head = (ROOT / "docker-compose.yml").read_text().partition("name:")[0]
    marker = "docker compose exec bank "
    commands = [line.split(marker)[1].split() for line in head.splitlines() if marker in line]
    assert [command[:2] for command in commands] == [["fedmq", "train"], ["fedmq", "predict"]]
    job = containers["bank"].root / "party" / "train.toml"
    job.write_text(job.read_text().replace("num_boost_round = 5", "num_boost_round = 1"))
    for command in commands:
        process = containers["bank"].popen(command)
        _, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors
    scores = (containers["bank"].volumes / "bank-state" / "scores.csv").read_text()
    assert scores.startswith("id,score,reason\n")


def test_there_is_a_service_for_each_party_with_its_own_files_and_volumes() -> None:
    assert set(SERVICES) == {"broker", "tables", *PARTIES}
    for party in PARTIES:
        assert SERVICES[party]["depends_on"] == {
            "broker": {"condition": "service_healthy"},
            "tables": {"condition": "service_completed_successfully"},
        }
        others = [name for name in PARTIES if name != party]
        sources = [source for source, _, _ in mounts(party)]
        assert not [source for source in sources for other in others if other in source]


def test_what_is_mounted_exists_and_only_state_is_written() -> None:
    for service in SERVICES:
        for source, target, writeable in mounts(service):
            if source.startswith("./"):
                assert (ROOT / source).is_file()
                assert not writeable
            else:
                assert source in COMPOSE["volumes"]
            if writeable and service in PARTIES:
                assert target == "/party/state"
    named = {source for service in SERVICES for source, _, _ in mounts(service)}
    assert set(COMPOSE["volumes"]) <= named


def test_the_brokers_files_lie_where_rabbitmq_looks_for_them() -> None:
    targets = {target: source for source, target, _ in mounts("broker")}
    for name in ("rabbitmq.conf", "definitions.json", "enabled_plugins"):
        assert targets[f"/etc/rabbitmq/{name}"] == f"./brokers/rabbitmq/{name}"
    settings = (ROOT / "brokers" / "rabbitmq" / "rabbitmq.conf").read_text()
    assert "load_definitions = /etc/rabbitmq/definitions.json" in settings


def test_the_image_runs_as_a_user_of_its_own() -> None:
    keywords = [keyword for keyword, _ in INSTRUCTIONS]
    assert instruction("USER") == "fedmq"
    assert keywords.index("USER") < keywords.index("ENTRYPOINT")
    copied = [argument.split()[:-1] for keyword, argument in INSTRUCTIONS if keyword == "COPY"]
    for source in (path for paths in copied for path in paths):
        assert (ROOT / source).exists()
        assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()
