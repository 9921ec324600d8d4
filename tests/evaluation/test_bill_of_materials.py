"""The bill of materials: every package that fedmq may import here, and none that only tests it."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import pytest

from fedmq.evaluation.bill_of_materials import Package, cyclonedx, installed


def names(packages: list[Package]) -> set[str]:
    return {package.name.lower().replace("_", "-") for package in packages}


def test_packages_of_installed_extras_are_there_with_what_they_need() -> None:
    found = names(installed())
    assert {"fedmq", "numpy", "cffi", "pydantic-core"} <= found
    for extra in ("fpdf2", "scikit-learn", "jinja2", "llvmlite", "xgboost-cpu", "psycopg-binary"):
        try:
            distribution(extra)
        except PackageNotFoundError:
            continue
        assert extra in found, extra


def test_packages_that_only_test_and_build_are_not() -> None:
    assert not {"pytest", "ruff", "mypy", "import-linter", "hypothesis"} & names(installed())


def test_licences_are_those_that_packages_state() -> None:
    by_name = {package.name: package for package in installed()}
    assert by_name["fedmq"].licence == "Apache-2.0" and by_name["fedmq"].expression
    unknown = [name for name, package in by_name.items() if not package.licence]
    assert len(unknown) < len(by_name) / 10, unknown


class Stated:
    """A package that states its licence by these fields."""

    def __init__(self, **fields: Any) -> None:
        self.name, self.version, self.requires = "stated", "1", ()
        self._fields = fields
        self.metadata = self

    def get(self, name: str) -> Any:
        return self._fields.get(name.replace("-", "_"))

    def get_all(self, name: str) -> Any:
        return self._fields.get(name.replace("-", "_"))


@pytest.mark.parametrize(
    ("fields", "licence", "expression"),
    [
        ({"License_Expression": "MIT", "License": "other"}, "MIT", True),
        ({"License": "BSD-3-Clause"}, "BSD-3-Clause", False),
        (
            {"License": "Permission\nis", "Classifier": ["License :: OSI Approved :: MIT License"]},
            "MIT License",
            False,
        ),
        ({}, "", False),
    ],
)
def test_a_licence_is_an_expression_a_name_or_a_class_and_never_a_whole_text(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], licence: str, expression: bool
) -> None:
    monkeypatch.setattr(
        "fedmq.evaluation.bill_of_materials.distribution", lambda _: Stated(**fields)
    )
    [found] = installed("stated")
    assert (found.licence, found.expression) == (licence, expression)


def test_cyclonedx_names_each_package_once_and_only_known_ones_as_needed() -> None:
    packages = installed()
    document = json.loads(cyclonedx(packages))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    components = [document["metadata"]["component"], *document["components"]]
    references = [of["bom-ref"] for of in components]
    assert len(set(references)) == len(references) == len(packages) + 1  # and Python
    known = set(references)
    for edge in document["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= known
    fedmq = next(edge for edge in document["dependencies"] if edge["ref"] == "fedmq")
    assert "numpy" in fedmq["dependsOn"]
