"""The federation that ``fedmq init`` writes: certificates, seals, and a broker that refuses."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fedmq.transport.rabbitmq.certificates import Authority, Certificate
from tests.forked_command import forks
from tests.free_port import free_port
from tests.party.daemons import Daemon

FEDMQ = [str(Path(sys.executable).parent / "fedmq")]
PARTIES = ("bank", "telco")
TOKEN = "a-token-of-sixteen-characters"
ENGINES = '["lattice", "ou", "paillier"]'


def fedmq(*words: object) -> subprocess.CompletedProcess[str]:
    return forks().run([str(word) for word in words])


def node(folder: Path, action: str, *words: str) -> None:
    command = [str(folder / "broker" / "node"), action, str(folder / "broker"), *words]
    subprocess.run(command, check=True, capture_output=True, timeout=90)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A federation over TLS, whose broker runs."""
    folder = tmp_path_factory.mktemp("hardened") / "demo"
    port = str(free_port())
    words = ["--active", "bank", "--passive", "telco", "--broker", f"127.0.0.1:{port}"]
    made = fedmq("init", folder, *words, "--example")
    assert made.returncode == 0, made.stderr
    # The management page takes a second to start.
    (folder / "broker" / "enabled_plugins").write_text("[rabbitmq_auth_mechanism_ssl].\n")
    node(folder, "start", "--port", port)
    yield folder
    node(folder, "stop")


def test_secrets_are_readable_by_their_owner_alone(folder: Path) -> None:
    private = [folder / party / name for party in PARTIES for name in ("party.toml", "keys.json")]
    private += [folder / party / "tls" / "party.key" for party in PARTIES]
    private += [folder / "broker" / "authority" / "ca.key"]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert (folder / "broker").stat().st_mode & 0o777 == 0o700


def test_no_password_exists(folder: Path) -> None:
    assert "password" not in (folder / "bank" / "party.toml").read_text()
    definitions = json.loads((folder / "broker" / "definitions.json").read_text())
    assert {user["password_hash"] for user in definitions["users"]} == {""}


def test_the_broker_refuses_what_it_must(folder: Path) -> None:
    checked = fedmq("broker", "check", *(folder / party / "party.toml" for party in PARTIES))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "ok    telco: publish under the name of bank: refused" in checked.stdout
    assert "ok    bank: log in without encryption: refused" in checked.stdout


def test_one_party_cannot_log_in_as_another(folder: Path, tmp_path: Path) -> None:
    # The name in the URL says nothing: the certificate does.
    copy = shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("data"))
    shutil.rmtree(copy / "bank" / "tls")
    shutil.copytree(copy / "telco" / "tls", copy / "bank" / "tls")
    checked = fedmq("broker", "check", copy / "bank" / "party.toml")
    assert checked.returncode == 5
    assert "WRONG bank: publish under its own name: refused" in checked.stdout


def test_a_certificate_that_the_broker_cannot_take_is_named_in_our_words(
    folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("data"))
    tls, authority = copy / "bank" / "tls", Authority.load(read_pem(copy / "broker/authority/ca"))
    own = read_pem(tls / "party")

    write_pem(tls / "party", read_pem(copy / "telco" / "tls" / "party"))
    listed = fedmq("dead", "list", copy / "bank" / "party.toml")
    assert listed.returncode == 3
    assert "party.pem is the certificate of 'telco', not of bank" in listed.stderr

    expired = Certificate(authority.renewed(own.certificate, 0), own.key)
    time.sleep(1.1)  # its end is written in whole seconds
    for certificate, words in (
        (authority.client("shop"), "knows no user with this certificate's name"),
        (Authority.create("other").client("bank"), "refuses this party's certificate"),
        (expired, "fedmq party list PARTY shows until when it is valid"),
    ):
        write_pem(tls / "party", certificate)
        refused = fedmq("broker", "check", copy / "bank" / "party.toml")
        assert refused.returncode == 5
        assert words in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


def read_pem(path: Path) -> Certificate:
    return Certificate(*(path.with_suffix(end).read_bytes() for end in (".pem", ".key")))


def write_pem(path: Path, certificate: Certificate) -> None:
    path.with_suffix(".pem").write_bytes(certificate.certificate)
    path.with_suffix(".key").write_bytes(certificate.key)


def test_a_broker_of_another_authority_is_not_spoken_to(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    port = re.findall(r":(\d+)/", (folder / "bank" / "party.toml").read_text())[0]
    words = ["--active", "bank", "--passive", "telco", "--broker", f"127.0.0.1:{port}"]
    assert fedmq("init", other, *words).returncode == 0
    refused = fedmq("broker", "check", other / "bank" / "party.toml")
    assert refused.returncode == 5
    assert "cannot be trusted" in refused.stderr
    assert "check its certificate, and tls.ca" in refused.stderr


def changed_certificate_is_refused(folder: Path, daemon: subprocess.Popen[str]) -> None:
    """Another party's certificate is seen when the files are read again, not at the next login."""
    tls = folder / "bank" / "tls" / "party"
    own = read_pem(tls)
    write_pem(tls, read_pem(folder / "telco" / "tls" / "party"))
    try:
        daemon.send_signal(signal.SIGHUP)
        assert daemon.stderr is not None
        while "no change applies" not in (line := daemon.stderr.readline()):
            assert line, "the daemon ended"
    finally:
        write_pem(tls, own)
    assert "is the certificate of 'telco', not of bank; put its own beside the party's file" in line


def test_sealed_daemons_train_over_tls(folder: Path) -> None:
    for party in PARTIES:
        path = folder / party / "party.toml"
        path.write_text(path.read_text().replace(ENGINES, '["plain"]'))
    port = free_port()
    with (folder / "telco" / "party.toml").open("a") as file:
        file.write(f'[http]\nport = {port}\ntokens = ["{TOKEN}"]\n')
    job = folder / "bank" / "train.toml"
    hiding = 'engine = "lattice"\n', 'engine_options = { sums = "hidden" }\n'
    text = job.read_text()
    assert all(line in text for line in hiding)
    job.write_text(text.replace(hiding[0], 'engine = "plain"\n').replace(hiding[1], ""))
    daemons = [
        subprocess.Popen(
            [*FEDMQ, "run", str(folder / party / "party.toml")], stderr=subprocess.PIPE, text=True
        )
        for party in PARTIES
    ]
    try:
        for daemon in daemons:
            assert daemon.stderr is not None
            while "is ready" not in (line := daemon.stderr.readline()):
                assert line, "a daemon ended"
        trained = fedmq("train", job, "--json")
        assert trained.returncode == 0, trained.stderr
        assert json.loads(trained.stdout)["metrics"]["eval-auc"] > 0.9
        assert fedmq("health", folder / "bank" / "party.toml").returncode == 0
        metrics = httpx.get(
            f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        ).text
        assert 'fedmq_messages_received_total{kind="gradient broadcast"} 5.0' in metrics
        assert "fedmq_trees_total 5.0" in metrics
        audit = json.loads(
            fedmq("audit-log", "list", folder / "telco" / "party.toml", "--json").stdout
        )
        events = [entry["event"] for entry in audit if entry["event"] != "policy holds"]
        assert events == ["keys pinned", "asked", "agreed", "foretold", "ended"]
        assert audit[-1]["outcome"] == "finished"
        status = json.loads(fedmq("status", folder / "telco" / "party.toml", "--json").stdout)
        assert status["sealed"]
        assert status["refused"] == {}
        changed_certificate_is_refused(folder, daemons[0])
    finally:
        for daemon in daemons:
            daemon.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        for daemon in daemons:
            daemon.communicate(timeout=60)
    assert [daemon.returncode for daemon in daemons] == [0, 0]
    assert time.monotonic() - begun < 10


@pytest.fixture
def daemons(folder: Path) -> Iterator[dict[str, Daemon]]:
    """Both daemons, which take the engine plain; the bank's broker for requests is down."""
    before = {party: (folder / party / "party.toml").read_text() for party in PARTIES}
    for party in PARTIES:
        path = folder / party / "party.toml"
        path.write_text(before[party].replace(ENGINES, '["plain"]'))
    with (folder / "bank" / "party.toml").open("a") as file:
        file.write('[online.requests]\nbroker = "amqp://a:b@127.0.0.1:1/"\nqueue = "scores"\n')
    daemons = {party: Daemon(folder / party / "party.toml") for party in PARTIES}
    try:
        for party, daemon in daemons.items():
            daemon.wait_until_says(f"{party} is ready in demo", 120)
        yield daemons
    finally:
        for party, daemon in daemons.items():
            daemon.discard()
            (folder / party / "party.toml").write_text(before[party])


def test_what_an_owner_should_mend_stands_in_status_and_health(
    folder: Path, daemons: dict[str, Daemon]
) -> None:
    bank, telco = (folder / party / "party.toml" for party in PARTIES)
    daemons["bank"].wait_until_says("online.requests: broker 127.0.0.1:1 cannot be reached")
    telco.write_text(f"wait_for_broker = true\n{telco.read_text()}")
    for command in ("status", "health"):
        line = "online.requests: broker 127.0.0.1:1 cannot be reached"
        assert line in fedmq(command, bank).stdout
    assert "online.requests" in json.loads(fedmq("health", bank, "--json").stdout)["warnings"][0]
    time.sleep(5.1)  # what was found at the start is that old by then
    shown = fedmq("status", telco).stdout
    assert f"{telco}: wait_for_broker changed; restart the daemon to apply this" in shown


@pytest.mark.long
def test_who_waits_for_keys_reads_why_the_other_party_refuses(
    folder: Path, daemons: dict[str, Daemon]
) -> None:
    bank, telco = (folder / party / "party.toml" for party in PARTIES)
    federation = (folder / "federation.toml").read_text()
    job = folder / "bank" / "refused.toml"
    job.write_text(
        'party = "party.toml"\nengine = "plain"\nmodel = "keys"\n'
        "[params]\nnum_boost_round = 1\nmax_depth = 2\n"
    )
    rotated = fedmq("keys", "rotate", telco, "--now", "--json")
    assert rotated.returncode == 0, rotated.stderr
    # All parties of this test share one federation file; the bank's has the old key for now.
    new = (folder / "federation.toml").read_text()
    (folder / "federation.toml").write_text(federation)
    daemons["bank"].terminate()
    daemons["bank"] = Daemon(bank)
    daemons["bank"].wait_until_says("bank is ready in demo", 120)
    training = subprocess.Popen(
        [*FEDMQ, "train", str(job), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 180
        while "a key that is not pinned here" not in waiting(bank):
            assert time.monotonic() < deadline, waiting(bank)
            time.sleep(0.5)
        (folder / "federation.toml").write_text(new)
        daemons["bank"].process.send_signal(signal.SIGHUP)
        assert training.wait(90) == 0
    finally:
        training.kill()
        training.communicate()


def waiting(party: Path) -> str:
    """The lines that say for whom a party's sessions wait."""
    status = json.loads(fedmq("status", party, "--json").stdout)
    return "\n".join(line for session in status["sessions"] for line in session["waiting"])
