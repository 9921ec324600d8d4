"""Timers of the system call ``fedmq schedule`` as it is: systemd's, and a CronJob."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from fedmq.cli.main import cli
from tests.deployment.helm import ROOT
from tests.documentation.fences import DOCS, fences

UNITS = ROOT / "deploy" / "systemd"
[CRON_JOB] = [
    yaml.safe_load(fence.text)
    for fence in fences(DOCS / "how-to" / "schedule.md")
    if fence.language == "yaml"
]


def check_command(words: list[str]) -> None:
    """``fedmq schedule FILE --json``, with options that exist."""
    assert words[0].endswith("fedmq")
    typed = cli.get_command(click.Context(cli), words[1])
    assert typed is not None
    spelt = {name for option in typed.params for name in option.opts}
    assert {word for word in words[2:] if word.startswith("--")} <= spelt


def test_the_unit_calls_the_command_beside_the_daemon() -> None:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((UNITS / "fedmq-schedule@.service").read_text())
    check_command(parser["Service"]["ExecStart"].split())
    daemon = (UNITS / "fedmq@.service").read_text()
    for key in ("User", "Group", "StateDirectory", "UMask"):
        assert f"{key}={parser['Service'][key]}\n" in daemon


def test_the_cron_job_calls_the_command_in_the_daemons_pod() -> None:
    pod = CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    words = pod["containers"][0]["args"]
    assert words[:3] == ["exec", "bank-fedmq-0", "--"]
    check_command(words[3:])
    assert CRON_JOB["spec"]["concurrencyPolicy"] == "Forbid"


def test_the_cron_job_is_one_of_kubernetes() -> None:
    checked = pytest.importorskip("kubernetes_validate")
    checked.validate(CRON_JOB, "1.31", strict=True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    for name in ("fedmq@.service", "fedmq-schedule@.service", "fedmq-schedule@.timer"):
        text = (UNITS / name).read_text().replace("/usr/local/bin/fedmq", "/bin/true")
        (tmp_path / name.replace("@", "@bank")).write_text(text.replace("fedmq@%i", "fedmq@bank"))
    units = sorted(tmp_path.iterdir())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
