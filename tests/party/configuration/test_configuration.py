from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import ConfigError
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import BROKER_VARIABLE, PartyFile

FEDERATION = """\
name = "demo"
active = "bank"
passive = ["telco", "retail"]
"""

PARTY = """\
party = "bank"
federation = "../federation.toml"
broker = "amqp://bank:secret@127.0.0.1:5672/"

[data]
path = "data.csv"
id = "id"
label = "y"
"""

JOB = """\
engine = "paillier"
evaluation = 0.2

[params]
max_depth = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(BROKER_VARIABLE, raising=False)
    (tmp_path / "federation.toml").write_text(FEDERATION)
    bank = tmp_path / "bank"
    bank.mkdir()
    return bank


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def replaced(text: str, before: str, after: str) -> str:
    assert before in text
    return text.replace(before, after)


def fault_in(path: Path, kind: type[PartyFile | Federation | TrainingJob]) -> str:
    """The one line with which ``kind`` refuses the file, after the file's name."""
    with pytest.raises(ConfigError) as caught:
        kind.read(path)
    name, _, fault = str(caught.value).partition(f"{path}: ")
    assert not name
    assert "\n" not in fault
    return fault


def test_paths_are_relative_to_the_folder_of_the_file(folder: Path) -> None:
    party, federation = PartyFile.read(written(folder, "party.toml", PARTY))
    assert party.data.path == folder / "data.csv"
    assert party.state == folder / "state"
    assert party.federation == folder / "../federation.toml"
    assert federation.parties == ("bank", "telco", "retail")


def test_what_is_left_out_has_a_safe_default(folder: Path) -> None:
    party, _ = PartyFile.read(written(folder, "party.toml", PARTY))
    assert party.policy.engines == ("paillier", "ou")
    assert not party.policy.allow_weak_keys
    assert party.serving is None
    assert party.compute.workers is None


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ('party = "bank"\n', "", "party: this key is missing"),
        ("party =", "partty =", "partty: there is no such key; did you mean 'party'?"),
        ("label =", "lable =", "data.lable: there is no such key; did you mean 'label'?"),
        ("[data]", "[dta]", "dta: there is no such key; did you mean 'data'?"),
        ("label =", "zzz =", "data.zzz: there is no such key"),
        ('"id"', "3", "data.id: the name of a column, or a list of names, is needed"),
        (
            'party = "bank"',
            'party = "Bank"',
            "party: 'Bank' is no name; a name is a small letter, and up to 31",
        ),
        (
            'party = "bank"',
            'party = "shop"',
            "party: 'shop' is not among the parties of {folder}/../federation.toml: "
            "bank, telco, retail",
        ),
        ('label = "y"\n', "", "data.label: the active party's label column is missing"),
        ('party = "bank"', 'party = "telco"', "data.label: only bank holds a label"),
        ("amqp://", "http://", "broker: the broker URL names no AMQP host"),
        (":5672", ":port", "broker: the broker URL cannot be read"),
        ("[data]", "[data", "not TOML: "),
        ("[data]", "[compute]\nworkers = 0\n[data]", "compute.workers: Input should be greater"),
        ("[data]", "[retry]\nfirst = -1\n[data]", "retry.first: Input should be greater than 0"),
        (
            "[data]",
            '[policy]\nengines = ["paillier", "magic"]\n[data]',
            "policy.engines: engine 'magic' is unknown; use plain, paillier, ou",
        ),
        (
            "[data]",
            "[http]\nprt = 1\n[data]",
            "http.prt: there is no such key; did you mean 'port'?",
        ),
        (
            "[data]",
            "[online]\nwait_for_broker = true\n[data]",
            "online.wait_for_broker: wait_for_broker belongs at the top of the file, above the",
        ),
        (
            "[data]",
            "[policy]\nengine_options = { lattice = { hints = 5 } }\n[data]",
            "policy.engine_options: lattice: engine_options: engine 'lattice' has no 'hints'",
        ),
        (
            "[data]",
            '[policy]\nengine = ["paillier"]\n[data]',
            "policy.engine: there is no such key; did you mean 'engines'?",
        ),
        (
            "[data]",
            '[serving]\npath = "a.csv"\nid = "id"\nnormalise = ["lower"]\n[data]',
            "serving.normalise: ids are normalised as under data: ['trim']",
        ),
        (
            "[data]",
            '[policy]\nfeatures = ["x"]\n[data]',
            "policy.features: says what a passive party shows of itself; the active party's own",
        ),
        ('path = "data.csv"', 'type = "sql"', "data: url is missing; type = 'sql' needs it"),
        ("[data]", '[data]\nquery = "SELECT 1"', "data: query does not go with type = 'csv'"),
        ("[data]", '[data]\nnormalise = ["sha256", "trim"]', "data.normalise: sha256 comes last"),
        ("[data]", "[data]\nhashed = true", "data: hashed ids need sha256 among the steps"),
        ("[data]", '[data]\nfeatures = ["id"]', "data: column 'id' cannot be a feature as well"),
        ("[data]", '[serving]\npath = "a.csv"\n[data]', "serving.id: this key is missing"),
    ],
)
def test_a_wrong_party_file_is_one_line_that_names_file_and_key(
    folder: Path, before: str, after: str, line: str
) -> None:
    path = written(folder, "party.toml", replaced(PARTY, before, after))
    assert fault_in(path, PartyFile).startswith(line.format(folder=folder))


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("name =", "nmae =", "nmae: there is no such key; did you mean 'name'?"),
        ('active = "bank"\n', "", "active: this key is missing"),
        ('"telco", ', '"telco", "telco", ', "passive: a party is named twice"),
        ('["telco", "retail"]', '"telco"', 'passive: this is a list, such as ["telco"]'),
        ('"demo"', '"a demo"', "name: 'a demo' is no name; a name is a small letter"),
    ],
)
def test_a_wrong_federation_file_is_one_line_that_names_file_and_key(
    folder: Path, before: str, after: str, line: str
) -> None:
    path = written(folder, "federation.toml", replaced(FEDERATION, before, after))
    assert fault_in(path, Federation).startswith(line)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ('"paillier"', '"magic"', "engine: 'magic' is unknown; use plain, paillier, ou"),
        ("evaluation = 0.2", "evaluation = 1", "evaluation: Input should be less than 1"),
        ("max_depth = 3", "max_dept = 3", "params: max_dept: no such parameter; did you mean"),
        ("max_depth = 3", "max_depth = 0", "params: max_depth = 0: without a limit on depth"),
        ("max_depth = 3", "lambda = 1\nreg_lambda = 2", "params: lambda and reg_lambda are the"),
        ("max_depth = 3", 'objective = "multi:softmax"', "params: num_class is missing"),
        ("[params]", "[parms]", "parms: there is no such key; did you mean 'params'?"),
        (
            "[params]",
            "max_depth = 2\n[params]",
            "max_depth: max_depth belongs into the table [params]",
        ),
        ("[params]", '[params]\nalignment = "a"', "params.alignment: alignment belongs at the top"),
        (
            "[params]",
            'model = "a/b"\n[params]',
            "model: 'a/b' is no name; a name is a letter or digit, and up to 63",
        ),
        (
            "[params]",
            "engine_options = { key_bits = 1024 }\n[params]",
            "engine_options: key_bits = 1024: below 2048 nothing is kept secret",
        ),
        (
            "[params]",
            "engine_options = { bits = 4096 }\n[params]",
            "engine_options: engine 'paillier' has no 'bits'; it has key_bits, allow_weak_keys",
        ),
        (
            "[params]",
            'engine_options = { key_bits = "long" }\n[params]',
            "engine_options: key_bits = 'long': Input should be a valid integer",
        ),
    ],
)
def test_a_wrong_job_is_one_line_that_names_file_and_key(
    folder: Path, before: str, after: str, line: str
) -> None:
    path = written(folder, "train.toml", replaced(JOB, before, after))
    assert fault_in(path, TrainingJob).startswith(line)


def test_a_file_of_another_kind_is_said_to_be_one(folder: Path) -> None:
    path = written(folder, "party.toml", PARTY)
    with pytest.raises(ConfigError, match=rf"^{path}: this is no training job, where there is no"):
        TrainingJob.read(path)
    with pytest.raises(ConfigError, match=r": this is no party file, where there is no 'name'; is"):
        PartyFile.read(folder / "../federation.toml")


def test_a_job_knows_xgboosts_aliases(folder: Path) -> None:
    text = replaced(JOB, "max_depth = 3", 'learning_rate = 0.1\nlambda = 2.0\neval_metric = "auc"')
    job = TrainingJob.read(written(folder, "train.toml", text))
    assert (job.params.eta, job.params.reg_lambda) == (0.1, 2.0)
    assert job.params.eval_metric == ("auc",)


def test_settings_take_the_place_of_what_a_job_says(folder: Path) -> None:
    path = written(folder, "train.toml", replaced(JOB, "max_depth = 3", "learning_rate = 0.3"))
    settings = {"eta": 0.1, "max_depth": 5, "model": "second", "engine_options.key_bits": 3072}
    job = TrainingJob.read(path, settings)
    assert (job.params.eta, job.params.max_depth, job.model) == (0.1, 5, "second")
    assert job.engine_options == {"key_bits": 3072}
    assert job.params.num_boost_round == TrainingJob.read(path).params.num_boost_round


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"ete": 0.1}, "params: ete: no such parameter; did you mean eta"),
        ({"eta": "high"}, "params: eta"),
        ({"model.name": 1}, "model.name: model is no table, so that nothing is below it"),
    ],
)
def test_a_wrong_setting_is_named(folder: Path, settings: dict[str, Any], line: str) -> None:
    path = written(folder, "train.toml", 'model = "first"\n' + JOB)
    with pytest.raises(ConfigError, match=line):
        TrainingJob.read(path, settings)


def test_a_job_survives_its_way_to_the_daemon(folder: Path) -> None:
    job = TrainingJob.read(written(folder, "train.toml", JOB))
    assert TrainingJob.model_validate(job.model_dump(mode="json")) == job


@pytest.mark.parametrize(
    ("content", "line"),
    [(None, "there is no such file"), (b"\xff\xfe", "is not UTF-8; save it as that")],
)
def test_a_file_that_cannot_be_read_is_named(
    folder: Path, content: bytes | None, line: str
) -> None:
    path = folder / "party.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        PartyFile.read(path)
    assert str(caught.value).startswith(f"{path}: {line}")


def test_the_environment_may_name_another_broker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BROKER_VARIABLE, "amqp://bank:other@broker:5673/")
    party, _ = PartyFile.read(written(folder, "party.toml", PARTY))
    assert party.broker == "amqp://bank:other@broker:5673/"


def test_a_wrong_broker_in_the_environment_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BROKER_VARIABLE, "http://broker")
    with pytest.raises(ConfigError, match=f"^{BROKER_VARIABLE}: the broker URL names no AMQP"):
        PartyFile.read(written(folder, "party.toml", PARTY))


def test_no_error_shows_the_brokers_password(folder: Path) -> None:
    text = replaced(PARTY, "127.0.0.1:5672", "127.0.0.1:port")
    with pytest.raises(ConfigError) as caught:
        PartyFile.read(written(folder, "party.toml", text))
    assert "secret" not in str(caught.value)
