"""The Helm chart, rendered: its pods run what fedmq has, and no more is open than it says."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import fedmq
from fedmq.cli.main import cli
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import BROKER_VARIABLE, PartyFile
from fedmq.party.identity.private_keys import PASSPHRASE_VARIABLE
from tests.deployment.helm import ROOT, Answer, ask, is_here
from tests.documentation.fences import Fence, pages_with, to_run

CHART = ROOT / "deploy" / "helm" / "fedmq"
BANK, TELCO = (CHART / "ci" / f"{party}-values.yaml" for party in ("bank", "telco"))

VALUES = [fence for page in pages_with("yaml") for fence in to_run("yaml", page)]

needs_helm = pytest.mark.skipif(
    not is_here(), reason="there is no helm here; make charts installs one"
)
Manifest = dict[str, Any]


@pytest.fixture(scope="module", params=[BANK, TELCO], ids=lambda path: path.stem)
def rendered(request: pytest.FixtureRequest) -> Answer:
    return ask(CHART, request.param)


@pytest.fixture(scope="module")
def bank() -> Answer:
    return ask(CHART, BANK)


def of_kind(answer: Answer, kind: str) -> Iterator[Manifest]:
    return (manifest for manifest in answer.manifests if manifest["kind"] == kind)


def the(answer: Answer, kind: str, name: str = "bank-fedmq") -> Manifest:
    [found] = [
        manifest for manifest in of_kind(answer, kind) if manifest["metadata"]["name"] == name
    ]
    return found


def pod(answer: Answer) -> Manifest:
    spec: Manifest = the(answer, "StatefulSet")["spec"]["template"]["spec"]
    return spec


@needs_helm
def test_helm_finds_nothing_wrong(rendered: Answer) -> None:
    assert (rendered.findings, rendered.refused) == ([], "")
    assert len(rendered.manifests) > 5


@needs_helm
def test_kubernetes_knows_every_key(rendered: Answer) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="make charts installs it")
    for manifest in rendered.manifests:
        if "." not in manifest["apiVersion"] or manifest["apiVersion"].split("/")[0].endswith(
            "k8s.io"
        ):
            validate.validate(manifest, "1.31", strict=True)


@needs_helm
def test_the_party_file_is_one_that_fedmq_reads(rendered: Answer, tmp_path: Path) -> None:
    text = the(rendered, "Secret")["stringData"]["party.toml"]
    config = PartyFile.model_validate(tomllib.loads(text))
    assert config.party in ("bank", "telco")
    assert str(config.state) == "/var/lib/fedmq/state"
    federation = tmp_path / "federation.toml"
    federation.write_text(the(rendered, "ConfigMap")["data"]["federation.toml"])
    members = Federation.read(federation)
    assert config.party in (members.active, *members.passive)


@needs_helm
def test_every_file_that_the_party_file_names_is_in_the_pod(rendered: Answer) -> None:
    text = the(rendered, "Secret")["stringData"]["party.toml"]
    [given] = [volume for volume in pod(rendered)["volumes"] if volume["name"] == "given"]
    names = {"federation.toml"}
    for source in given["projected"]["sources"]:
        names |= {item["path"] for item in source.get("secret", {}).get("items", [])}
    assert set(re.findall(r'"/etc/fedmq/([^"]+)"', text)) <= names


@needs_helm
def test_what_the_containers_run_is_a_command(rendered: Answer) -> None:
    [container] = pod(rendered)["containers"]
    probes = [container.get(f"{name}Probe", {}) for name in ("liveness", "readiness", "startup")]
    lines = [container["args"], *(probe["exec"]["command"] for probe in probes if "exec" in probe)]
    for line in lines:
        command = re.match(r"(?:.*fedmq )?(\w+)", " ".join(line))
        assert command is not None
        assert isinstance(cli.commands[command[1]], click.Command)
    for probe in probes:
        if "httpGet" in probe:
            assert probe["httpGet"]["path"] in ("/health/live", "/health/ready")
    variables = {variable["name"] for variable in container["env"]}
    assert variables <= {"HOME", BROKER_VARIABLE, PASSPHRASE_VARIABLE}


@needs_helm
def test_the_daemon_runs_as_the_images_user_without_rights(rendered: Answer) -> None:
    user = re.search(r"useradd --uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert user is not None
    assert pod(rendered)["securityContext"]["runAsUser"] == int(user[1])
    assert pod(rendered)["automountServiceAccountToken"] is False
    for container in (*pod(rendered)["containers"], *pod(rendered)["initContainers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@needs_helm
def test_copied_files_are_readable_by_the_daemon_alone(rendered: Answer, tmp_path: Path) -> None:
    """The command of the first container, over folders that stand for the volumes."""
    [container] = pod(rendered)["initContainers"]
    given, files = tmp_path / "given", tmp_path / "files"
    (given / "..data" / "http").mkdir(parents=True)
    files.mkdir()
    (given / "..data" / "keys.json").write_text("{}")
    (given / "..data" / "http" / "tls.key").write_text("key")
    (given / "keys.json").symlink_to("..data/keys.json")
    (given / "http").symlink_to("..data/http")
    shell, option, line = container["command"]
    line = line.replace("/files/", f"{given}/").replace("/etc/fedmq", str(files))
    subprocess.run([shell, option, line], check=True)
    assert (files / "keys.json").stat().st_mode & 0o777 == 0o600
    assert (files / "http" / "tls.key").stat().st_mode & 0o777 == 0o600


@needs_helm
def test_a_party_is_one_daemon_with_a_volume_that_stays(rendered: Answer) -> None:
    spec = the(rendered, "StatefulSet")["spec"]
    assert spec["replicas"] == 1
    assert [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]] == ["state"]
    mounted = {
        mount["name"]: mount["mountPath"]
        for mount in pod(rendered)["containers"][0]["volumeMounts"]
    }
    assert mounted["state"] == "/var/lib/fedmq"


@needs_helm
def test_nobody_reaches_a_party_but_over_http(rendered: Answer) -> None:
    policy = the(rendered, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert all(rule["ports"] == [{"port": "http"}] for rule in policy["ingress"])
    selector = policy["podSelector"]["matchLabels"]
    labels = the(rendered, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()


@needs_helm
def test_prometheus_shows_the_token_that_the_daemon_asks_for(bank: Answer) -> None:
    [endpoint] = the(bank, "ServiceMonitor")["spec"]["endpoints"]
    credentials = endpoint["authorization"]["credentials"]
    secret = the(bank, "Secret", credentials["name"])["stringData"]
    assert f'tokens = ["{secret[credentials["key"]]}"]' in secret["party.toml"]
    assert (endpoint["path"], endpoint["scheme"]) == ("/metrics", "https")


@needs_helm
def test_rules_and_dashboard_are_those_of_deploy(bank: Answer) -> None:
    alerts = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    assert the(bank, "PrometheusRule")["spec"] == alerts
    dashboard = the(bank, "ConfigMap", "bank-fedmq-dashboard")["data"]["fedmq.json"]
    assert json.loads(dashboard) == json.loads((ROOT / "deploy/grafana/fedmq.json").read_text())


@needs_helm
def test_the_operators_broker_has_the_settings_of_ours(bank: Answer) -> None:
    """Paths of certificates are the operator's own."""
    config = the(bank, "RabbitmqCluster", "bank-fedmq-broker")["spec"]["rabbitmq"][
        "additionalConfig"
    ]
    folder = ROOT / "brokers" / "rabbitmq"
    ours = (folder / "rabbitmq.conf").read_text() + (folder / "tls.conf").read_text()
    settings = {line for line in ours.splitlines() if line and not line.startswith("#")}
    operators = re.compile(r"listeners\.|ssl_options\.(cacertfile|certfile|keyfile|verify) ")
    assert {line for line in settings if not operators.match(line)} <= set(config.splitlines())


@needs_helm
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"party": "Bank"}, "party"),
        ({"http": {"token": "short"}}, "token"),
        ({"http": {"token": ""}}, "openssl rand -hex 16"),
        ({"partty": "bank"}, "partty"),
        ({"rabbitmq": {"enabled": False}}, "broker.host"),
        ({"files": {"party": "[data]\n[http]\nport = 1\n"}}, "party"),
    ],
)
def test_wrong_values_are_refused_by_name(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    values = yaml.safe_load(BANK.read_text())
    for key, value in change.items():
        values[key] = {**values[key], **value} if isinstance(value, dict) else value
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    assert reason in ask(CHART, path).refused


@needs_helm
@pytest.mark.parametrize("fence", VALUES, ids=str)
def test_values_on_a_page_are_taken(fence: Fence, tmp_path: Path) -> None:
    """With the files that the page gives on the command line."""
    given, ours = yaml.safe_load(fence.text), yaml.safe_load(BANK.read_text())
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump({**given, "files": {**ours["files"], **given["files"]}}))
    assert ask(CHART, path).refused == ""


def test_the_chart_has_the_packages_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (fedmq.__version__, fedmq.__version__)


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    def compare(values: dict[str, Any], schema: dict[str, Any]) -> None:
        properties = schema["properties"]
        assert values.keys() == properties.keys() - {"global"}
        for name, inner in properties.items():
            if "properties" in inner:
                compare(values[name], inner)

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    compare(values, json.loads((CHART / "values.schema.json").read_text()))
