"""Keys on a SoftHSM token change while daemons train, and an auditor proves that training."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.free_port import free_port
from tests.party.daemons import Daemon

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
PIN = "4711"
FEDMQ = str(Path(sys.executable).with_name("fedmq"))

pytestmark = [
    pytest.mark.long,
    pytest.mark.broker,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (MODULE.exists() and shutil.which("softhsm2-util")),
        reason="Debian's softhsm2 is missing",
    ),
]


def fedmq(*words: object, code: int = 0) -> str:
    done = subprocess.run(
        [FEDMQ, *map(str, words)], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A federation whose broker runs, and whose telco keeps its keys on a token."""
    (tmp_path / "tokens").mkdir()
    settings = tmp_path / "softhsm2.conf"
    settings.write_text(f"directories.tokendir = {tmp_path / 'tokens'}\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(settings))
    monkeypatch.setenv("FEDMQ_KEYS_PASSPHRASE", PIN)
    initial = ["softhsm2-util", "--init-token", "--free", "--label", "telco"]
    subprocess.run([*initial, "--pin", PIN, "--so-pin", "0815"], check=True, capture_output=True)
    folder, port = tmp_path / "demo", str(free_port())
    parties = ("--active", "bank", "--passive", "telco")
    fedmq("init", folder, *parties, "--broker", f"127.0.0.1:{port}", "--example")
    for party in ("bank", "telco"):  # each its own file of the federation, as at two organisations
        shutil.copy(folder / "federation.toml", folder / party)
        config = folder / party / "party.toml"
        config.write_text(config.read_text().replace("../federation.toml", "federation.toml"))
    made = ("keys", "new", folder / "telco" / "party.toml", "--token", "telco", "--module", MODULE)
    assert "move that file away, then make keys on the token" in fedmq(*made, code=3)
    (folder / "telco" / "keys.json").unlink()
    fedmq(*made)
    assert '"token"' in (folder / "telco" / "keys.json").read_text()
    trust(folder, "--only", "--replace-key", "telco")
    node = folder / "broker" / "node"
    subprocess.run([node, "start", node.parent, "--port", port], check=True, capture_output=True)
    yield folder
    subprocess.run([node, "stop", node.parent], check=True, capture_output=True)


def trust(folder: Path, *more: str) -> None:
    """The bank pins the newest key of telco, which is read to it."""
    keys = json.loads((folder / "telco" / "keys.json").read_text())["keys"]
    public = keys.get("next", keys["current"])
    fedmq("keys", "trust", folder / "bank" / "party.toml", "telco", public, *more)


def test_keys_on_a_token_change_under_a_training_that_an_auditor_proves(folder: Path) -> None:
    bank, telco = (folder / party / "party.toml" for party in ("bank", "telco"))
    before = json.loads((folder / "telco" / "keys.json").read_text())["keys"]["current"]
    daemons = [Daemon(config) for config in (bank, telco)]
    try:
        for daemon in daemons:
            daemon.wait_until_says("is ready")
        job = folder / "bank" / "train.toml"
        command = [FEDMQ, "train", str(job), "--set", "num_boost_round=8"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as training:
            assert training.stderr is not None
            said = ""
            while "trees 1/8" not in said:
                line = training.stderr.readline()
                assert line, said
                said += line
            fedmq("keys", "rotate", telco)
            trust(folder)
            shutil.copy(folder / "bank" / "federation.toml", folder / "both.toml")
            fedmq("keys", "rotate", telco, "--finish")
            assert training.poll() is None, "the keys changed under no training"
            said += training.stderr.read()
        assert training.returncode == 0, said
        session = re.findall(r"session (\w+)", said)[0]

        keys = json.loads((folder / "telco" / "keys.json").read_text())["keys"]
        assert keys["current"] != before
        fedmq("train", job, "--set", "num_boost_round=1")
        trust(folder, "--only", "--replace-key", "telco")
        fedmq("train", job, "--set", "num_boost_round=1")
    finally:
        for daemon in daemons:
            daemon.discard()

    for config in (bank, telco):
        file = folder / f"{config.parent.name}.transcript"
        fedmq("transcript", "export", config, session, "--output", file)
    files = (folder / "telco.transcript", "--signed", folder / "bank.transcript", "--federation")
    proved = fedmq("transcript", "verify", *files, folder / "both.toml")
    assert "signed by both sides: 8 of 8 trees" in proved
    # Who has forgotten the old key cannot check what it signed, and is told so.
    forgotten = fedmq("transcript", "verify", *files, bank.with_name("federation.toml"), code=4)
    assert "if keys changed since, give the file of that time" in forgotten
