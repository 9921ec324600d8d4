from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import pytest
import yaml

from fedmq.party.configuration.job import AlignmentJob, ScreenJob, TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.table import read_table
from tests.cli.command import Outcome, fedmq

PARTIES = ("--active", "bank", "--passive", "telco", "--passive", "retail")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("init") / "my-federation"
    return folder, fedmq("init", folder, *PARTIES, "--example")


def test_a_new_federation_has_what_each_side_needs(made: tuple[Path, Outcome]) -> None:
    folder, outcome = made
    assert outcome.code == 0
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "federation.toml",
        "docker-compose.yml",
        *(f"broker/{name}" for name in ("definitions.json", "enabled_plugins", "node")),
        "broker/rabbitmq.conf",
        *(f"broker/authority/{name}" for name in ("ca.key", "ca.pem")),
        *(f"broker/issued/{party}.pem" for party in ("bank", "telco", "retail")),
        *(f"broker/tls/{name}" for name in ("ca.pem", "server.pem", "server.key")),
        *(f"bank/{name}.toml" for name in ("party", "align", "screen", "train")),
        "bank/ids.csv",
        *(
            f"{party}/{name}"
            for party in ("bank", "telco", "retail")
            for name in (
                *("party.toml", "keys.json", "data.csv", "serving.csv"),
                *("tls/ca.pem", "tls/party.pem", "tls/party.key"),
            )
        ),
    }


def test_it_says_what_to_type_next(made: tuple[Path, Outcome]) -> None:
    folder, outcome = made
    assert outcome.out.splitlines()[1:] == [
        "A broker, then one daemon per party:",
        f"  {folder}/broker/node start {folder}/broker --port 5671",
        *(f"  fedmq run {folder}/{party}/party.toml" for party in ("bank", "telco", "retail")),
        "Then:",
        f"  fedmq train {folder}/bank/train.toml",
    ]


def test_without_an_example_it_leads_to_tables_and_an_alignment(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    outcome = fedmq("init", folder, "--active", "bank", "--passive", "telco")
    files = [f"{folder}/{party}/party.toml" for party in ("bank", "telco")]
    assert outcome.out.splitlines()[1:] == [
        "Every party names its table under [data] in its party.toml, and looks at it:",
        *(f"  fedmq data check {file}" for file in files),
        "A broker, then one daemon per party:",
        f"  {folder}/broker/node start {folder}/broker --port 5671",
        *(f"  fedmq run {file}" for file in files),
        "Then find the people that all share, and train:",
        f"  fedmq align {folder}/bank/align.toml",
        f"  fedmq train {folder}/bank/train.toml",
    ]
    alignment = AlignmentJob.read(folder / "bank" / "align.toml")
    assert TrainingJob.read(folder / "bank" / "train.toml").alignment == alignment.name
    look = ScreenJob.read(folder / "bank" / "screen.toml")
    assert (look.alignment, look.sums) == (alignment.name, "hidden")


def test_its_files_can_be_read(made: tuple[Path, Outcome]) -> None:
    folder, _ = made
    for party in ("bank", "telco", "retail"):
        config, federation = PartyFile.read(folder / party / "party.toml")
        assert federation.parties == ("bank", "telco", "retail")
        assert config.party == party
        assert config.policy.engines == ("lattice", "ou", "paillier")
        for engine in config.policy.engines:
            assert config.policy.engine_options[engine] == {"sums": "hidden"}
        trained, served = read_table(party, config.data), read_table(party, config.serving)
        assert set(trained.ids) < set(served.ids)
        assert trained.features == served.features
    assert ScreenJob.read(folder / "bank" / "screen.toml").alignment is None
    job = TrainingJob.read(folder / "bank" / "train.toml")
    assert job.party == folder / "bank" / "party.toml"
    assert (job.engine, job.engine_options) == ("lattice", {"sums": "hidden"})


def test_the_people_to_score_are_not_trained_on(made: tuple[Path, Outcome]) -> None:
    folder, _ = made

    def ids(name: str) -> set[str]:
        with (folder / "bank" / name).open(newline="") as file:
            return {row["id"] for row in csv.DictReader(file)}

    assert not ids("ids.csv") & ids("data.csv")
    assert ids("ids.csv") | ids("data.csv") == ids("serving.csv")


def test_secrets_are_readable_by_their_owner_alone(made: tuple[Path, Outcome]) -> None:
    folder, _ = made
    for party in ("bank", "telco", "retail"):
        for name in ("party.toml", "keys.json", "tls/party.key"):
            assert stat.S_IMODE((folder / party / name).stat().st_mode) == 0o600
    # The broker may run as another user, inside a container; nobody else gets past the folder.
    assert stat.S_IMODE((folder / "broker").stat().st_mode) == 0o700


def test_without_tls_passwords_are_drawn_anew(tmp_path: Path) -> None:
    outcomes = [fedmq("init", tmp_path / name, *PARTIES, "--no-tls") for name in ("a", "b")]
    brokers = [
        PartyFile.read(tmp_path / name / party / "party.toml")[0].broker
        for name in ("a", "b")
        for party in ("bank", "telco", "retail")
    ]
    passwords = [broker.split(":")[2].split("@")[0] for broker in brokers]
    assert len({*passwords}) == 6
    definitions = (tmp_path / "a" / "broker" / "definitions.json").read_text()
    assert not any(word in definitions or word in outcomes[0].out for word in passwords)
    assert stat.S_IMODE((tmp_path / "a" / "docker-compose.yml").stat().st_mode) == 0o600


def test_keys_are_drawn_anew_and_pinned_at_every_party(
    made: tuple[Path, Outcome], tmp_path: Path
) -> None:
    folder, _ = made
    fedmq("init", tmp_path / "other", *PARTIES)
    pins = [
        PartyFile.read(root / "bank" / "party.toml")[1].pinned(party)
        for root in (folder, tmp_path / "other")
        for party in ("bank", "telco", "retail")
    ]
    assert len({*pins}) == 6


@pytest.mark.parametrize("more", [(), ("--no-tls",)])
def test_the_compose_file_reaches_every_file_it_names(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    folder = tmp_path / "f"
    assert fedmq("init", folder, *PARTIES, *more).code == 0
    services = yaml.safe_load((folder / "docker-compose.yml").read_text())["services"]
    assert set(services) == {"broker", "bank", "telco", "retail"}
    for service in services.values():
        assert service["healthcheck"]["test"][0] == "CMD"
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source == "broker" or (folder / source).exists()
    for party in ("bank", "telco", "retail"):
        url = services[party]["environment"]["FEDMQ_BROKER"]
        own = PartyFile.read(folder / party / "party.toml")[0].broker
        assert url.split("@")[0] == own.split("@")[0]
        # The broker listens where the parties look for it, inside the file's own network.
        assert url.endswith("@broker:5672/" if more else "@broker:5671/")


def test_the_broker_has_a_user_for_each_party(made: tuple[Path, Outcome]) -> None:
    folder, _ = made
    definitions = json.loads((folder / "broker" / "definitions.json").read_text())
    assert {"bank", "telco", "retail"} <= {user["name"] for user in definitions["users"]}
    assert (folder / "broker" / "node").stat().st_mode & stat.S_IXUSR


def test_another_broker_and_name_may_be_chosen(tmp_path: Path) -> None:
    outcome = fedmq(
        "init", tmp_path / "f", *PARTIES[:4],
        "--name", "credit", "--broker", "mq.example.org:5673", "--json",
    )  # fmt: skip
    assert outcome.result == {
        "folder": str(tmp_path / "f"),
        "federation": "credit",
        "parties": ["bank", "telco"],
    }
    config, federation = PartyFile.read(tmp_path / "f" / "telco" / "party.toml")
    assert config.broker.endswith("@mq.example.org:5673/")
    assert federation.name == "credit"
    assert not list((tmp_path / "f").rglob("*.csv"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--active", "bank", "--passive", "bank"), "a party is named twice"),
        (("--active", "Bank", "--passive", "telco"), "party 'Bank': a name starts with a letter"),
        (("--active", "bank", "--passive", "broker"), "a party may not be named broker"),
        (("--active", "bank", "--passive", "telco", "--name", "a b"), "federation 'a b': a name"),
    ],
)
def test_names_that_cannot_be_are_refused_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], line: str
) -> None:
    outcome = fedmq("init", tmp_path / "f", *arguments)
    assert outcome.code == 3
    assert outcome.error.startswith(line)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "broker",
    ["mq.example.org", "mq.example.org:", ":5671", "mq:amqp", "mq:99999", "mq:5671/x", "a@mq:5671",
     "amqps://mq:5671", "[::1:5671", "m q:5671", "mq_\u00fc:5671"],
)  # fmt: skip
def test_a_broker_without_host_and_port_is_refused_and_nothing_is_written(
    tmp_path: Path, broker: str
) -> None:
    outcome = fedmq("init", tmp_path / "f", *PARTIES, "--broker", broker)
    assert outcome.code == 3
    assert outcome.error == (
        f"--broker {broker}: write it as HOST:PORT, such as mq.example.org:5671"
    )
    assert not list(tmp_path.iterdir())


def test_a_broker_may_be_an_address_of_ipv6(tmp_path: Path) -> None:
    assert fedmq("init", tmp_path / "f", *PARTIES, "--broker", "[::1]:5671").code == 0
    config, _ = PartyFile.read(tmp_path / "f" / "telco" / "party.toml")
    assert config.broker == "amqps://telco@[::1]:5671/"


def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    outcome = fedmq("init", tmp_path, *PARTIES)
    assert outcome.code == 3
    assert outcome.error == f"{tmp_path}: the folder is not empty; choose another one"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
