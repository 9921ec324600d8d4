"""Which packages does fedmq run on here? Itself, its extras, and all that they need.

Known from what is installed: names, versions and licences as the packages state them.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from platform import platform, python_implementation, python_version
from typing import Any

__all__ = ["Package", "cyclonedx", "installed", "packages_here"]

_FOR_MAKERS = frozenset(("charts", "docs", "release", "test"))
"""Extras of fedmq that build and test it: nothing of them runs at a party."""

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_OSI = "License :: "


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package; ``needs``: those of its requirements that are installed as well.

    ``expression``: whether ``licence`` is an SPDX expression; otherwise it is in the words of the
    package, and empty if that says nothing.
    """

    name: str
    version: str
    licence: str
    expression: bool
    needs: tuple[str, ...]


def installed(package: str = "fedmq") -> list[Package]:
    """``package`` with its installed extras, and all that they need: by name."""
    extras: dict[str, set[str]] = {}
    found: dict[str, Distribution] = {}
    needs: dict[str, set[str]] = {}
    waiting = [(package, _extras_of(package))]
    while waiting:
        name, wanted = waiting.pop()
        here = _distribution(name)
        if here is None:  # it is for another platform, or an extra that nobody installed
            continue
        key = _normal(here.name)
        if key in found and wanted <= extras[key]:
            continue
        found[key] = here
        extras[key] = extras.get(key, set()) | wanted
        for needed, theirs in _requirements(here, extras[key]):
            other = _distribution(needed)
            if other is not None and _normal(other.name) != key:
                needs.setdefault(key, set()).add(_normal(other.name))
            waiting.append((needed, theirs))
    return [
        Package(here.name, here.version, *_licence(here), tuple(sorted(needs.get(key, ()))))
        for key, here in sorted(found.items())
    ]


def packages_here() -> list[tuple[str, str, str]]:
    """Python, the platform, and the installed packages of fedmq: name, version and licence."""
    found = [(package.name, package.version, package.licence) for package in installed()]
    return [("python", python_version(), "PSF-2.0"), ("platform", platform(), ""), *found]


def _extras_of(package: str) -> set[str]:
    here = _distribution(package)
    named = [] if here is None else here.metadata.get_all("Provides-Extra") or []
    return set(named) - _FOR_MAKERS


def _requirements(here: Distribution, extras: set[str]) -> Iterator[tuple[str, set[str]]]:
    """Each requirement of the package itself, and of these ``extras``, with its own extras."""
    for line in here.requires or ():
        requirement, _, marker = line.partition(";")
        of = _EXTRA.findall(marker)
        named = _REQUIREMENT.match(requirement)
        if named is not None and (not of or extras & set(of)):
            wanted = {extra.strip() for extra in (named[2] or "").split(",")} - {""}
            yield named[1], wanted


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _licence(here: Distribution) -> tuple[str, bool]:
    """The licence as the package states it, and whether it is an SPDX expression."""
    metadata: Any = here.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression), True
    classified = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or []
        if line.startswith(_OSI) and line != "License :: OSI Approved"
    ]
    stated = (metadata.get("License") or "").strip()
    if stated and "\n" not in stated and len(stated) < 100:  # some hold the licence's whole text
        return stated, False
    return " or ".join(classified), False


def cyclonedx(packages: Sequence[Package]) -> str:
    """The bill of materials as JSON of CycloneDX 1.6; the component that it is of is fedmq.

    The platform's other parts, Python among them, are components without an address.
    """
    root = next((of for of in packages if of.name == "fedmq"), None)
    others = [of for of in packages if of is not root]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            **({} if root is None else {"component": _component(root, "application")}),
        },
        "components": [
            *(_component(package, "library") for package in others),
            {
                "type": "platform",
                "bom-ref": "python",
                "name": python_implementation(),
                "version": python_version(),
                "description": platform(),
            },
        ],
        "dependencies": [
            {"ref": _normal(of.name), "dependsOn": [*of.needs]} for of in packages if of.needs
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _component(package: Package, kind: str) -> Mapping[str, Any]:
    name = _normal(package.name)
    licence: list[Mapping[str, Any]] = []
    if package.licence:
        named = {"license": {"name": package.licence}}
        licence = [{"expression": package.licence} if package.expression else named]
    return {
        "type": kind,
        "bom-ref": name,
        "name": package.name,
        "version": package.version,
        "purl": f"pkg:pypi/{name}@{package.version}",
        **({"licenses": licence} if licence else {}),
    }
