"""The systemd unit: its command is one of fedmq's, and systemd reads every line of it."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from fedmq.cli.main import cli
from fedmq.errors import ConfigError, FedmqError
from fedmq.party.identity.private_keys import PASSPHRASE_VARIABLE
from tests.deployment.helm import ROOT

UNIT = ROOT / "deploy" / "systemd" / "fedmq@.service"
PAGE = (ROOT / "docs" / "how-to" / "operations.md").read_text()


@pytest.fixture(scope="module")
def service() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def test_it_runs_a_command_with_options_that_exist(service: configparser.SectionProxy) -> None:
    program, command, config, *options = service["ExecStart"].split()
    assert f"ln -s /opt/fedmq/bin/fedmq {program}" in PAGE
    assert config == "/etc/fedmq/%i/party.toml"
    typed = cli.get_command(click.Context(cli), command)
    assert typed is not None
    spelt = {name for option in typed.params for name in option.opts}
    assert {word for word in options if word.startswith("--")} <= spelt


def test_wrong_files_are_not_tried_again(service: configparser.SectionProxy) -> None:
    given_up = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert given_up == {click.UsageError.exit_code, ConfigError.exit_code}
    assert FedmqError.exit_code not in given_up


def test_the_page_for_operators_writes_where_the_unit_looks(
    service: configparser.SectionProxy,
) -> None:
    state = f"/var/lib/{service['StateDirectory']}".replace("%i", "telco")
    assert f'state = "{state}"' in PAGE
    assert (
        f"useradd --system --home-dir /var/lib/fedmq --shell /usr/sbin/nologin {service['User']}"
        in PAGE
    )
    passphrase = service["EnvironmentFile"].removeprefix("-").replace("%i", "telco")
    assert f"`{PASSPHRASE_VARIABLE}=…` in `{passphrase}`" in re.sub(r"\s+", " ", PAGE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    """With a program that is there, for fedmq may be installed elsewhere."""
    unit = tmp_path / "fedmq@bank.service"
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/fedmq", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
