"""Helm, as the program of that name or as the package helm-python-sdk (extra ``charts``).

::

    python -m tests.deployment.helm CHART VALUES

prints what ``helm lint --strict`` and ``helm template`` say, as JSON. The package runs in a process
of its own, for it brings Helm as a library with threads and signals of its own.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RELEASE, NAMESPACE = "bank", "credit"


def is_here() -> bool:
    """Whether there is a Helm to ask."""
    return shutil.which("helm") is not None or importlib.util.find_spec("helm_python") is not None


@dataclass(frozen=True)
class Answer:
    """What Helm says of a chart with some values. ``refused`` is why it renders nothing."""

    findings: list[str]
    manifests: list[dict[str, Any]]
    refused: str = ""


def ask(chart: Path, values: Path) -> Answer:
    """Lint and render the chart."""
    if shutil.which("helm") is None:
        done = subprocess.run(
            [sys.executable, "-m", __name__, chart, values],
            cwd=ROOT, check=True, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        return Answer(**json.loads(done.stdout))
    lint = _helm("lint", "--strict", "--quiet", "--values", values, chart)
    rendered = _helm(
        "template", RELEASE, chart, "--namespace", NAMESPACE, "--values", values, "--skip-tests"
    )
    if rendered.returncode != 0:
        return Answer([], [], rendered.stderr)
    return Answer(lint.stdout.splitlines() if lint.returncode else [], _documents(rendered.stdout))


def _helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["helm", *arguments], check=False, capture_output=True, text=True, timeout=100
    )


def _documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def _by_the_package(chart: str, values: str) -> Answer:
    import helm_python

    given = yaml.safe_load(Path(values).read_text())
    try:
        with helm_python.Chart.load(chart) as loaded:
            loaded.validate_schema(given)
            rendered = loaded.render(given, name=RELEASE, namespace=NAMESPACE)
    except helm_python.HelmError as error:
        return Answer([], [], str(error))
    found = helm_python.lint(chart, given, strict=True, namespace=NAMESPACE)
    worth = [message for message in found["messages"] if message["severity"] > 1]
    texts = [text for name, text in rendered.items() if name.endswith(".yaml")]
    return Answer(
        [f"{message['path']}: {message['error']}" for message in worth],
        [document for text in texts for document in _documents(text)],
    )


if __name__ == "__main__":
    answer = _by_the_package(*sys.argv[1:])
    print(json.dumps(vars(answer), default=str))
