"""What a release is made of fits together."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import fedmq

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_package_knows_its_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", fedmq.__version__)
    assert version("fedmq") == fedmq.__version__


def test_the_changelog_begins_with_what_is_to_be_released() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in ("Unreleased", fedmq.__version__)


def test_it_may_be_cited() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["license"] == PROJECT["license"]
    assert citation["version"] == fedmq.__version__
    papers = {paper["identifiers"][0]["value"] for paper in citation["references"]}
    assert papers == {"arXiv:1901.08755", "arXiv:2106.10662"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_of_the_makefile(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    steps = [step.get("run", "") for job in jobs for step in job["steps"]]
    targets = set(re.findall(r"\bmake ([a-z-]+)", "\n".join(steps)))
    for job in jobs:
        long = job.get("strategy", {}).get("matrix", {}).get("target", [])
        targets |= {target.split()[0] for target in long}
    assert targets and targets <= TARGETS


def test_workflows_are_what_github_reads() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
    ]
    checked = subprocess.run([*command, *WORKFLOWS], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_what_is_published_was_attested_by_the_workflow_that_built_it() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert "attest" in jobs["publish"]["needs"] and jobs["attest"]["needs"] == "build"
    used = [step["uses"].partition("@")[0] for step in jobs["attest"]["steps"] if "uses" in step]
    assert {"actions/attest-build-provenance", "sigstore/gh-action-sigstore-python"} <= set(used)
    allowed = {name: set(job.get("permissions", ())) for name, job in jobs.items()}
    assert allowed["build"] == set()  # what runs foreign code can sign nothing


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_uses_pythons_that_the_project_names(path: Path) -> None:
    named = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text}
    assert set(re.findall(r"\"(3\.\d+)\"", path.read_text())) <= named


def test_the_script_of_a_release_can_be_read() -> None:
    subprocess.run(["bash", "-n", ROOT / ".ci" / "release"], check=True)
