"""Which worker takes which tests: the longest first, so that all workers end together.

A worker takes whole files, for the tests of a file share what is dear to make. A file is parted
into functions where durations.json has its functions: where the tests take their time themselves,
and share no fixture of the module, whose state one test may leave to the next.
``make durations`` measures anew.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parent.parent
DURATIONS = Path(__file__).with_name("durations.json")
_UNKNOWN_SECONDS = 1.0
"""For each test of a scope that has not been measured."""
_PARTED_SECONDS = 15.0
_SHARED = 0.2
"""A file whose tests spend more than this part of the time on fixtures is not parted."""


def function_of(nodeid: str) -> str:
    """The test's function, without the parameters."""
    return nodeid.partition("[")[0]


def file_of(nodeid: str) -> str:
    """The test's file."""
    return nodeid.partition("::")[0]


class LongestFirst(LoadScopeScheduling):
    """Hands out the files or functions that take longest first."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._seconds: dict[str, float] = json.loads(DURATIONS.read_text())

    def _split_scope(self, nodeid: str) -> str:
        function = function_of(nodeid)
        return function if function in self._seconds else file_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(max(self.workqueue, key=self._length), last=False)
        super()._assign_work_unit(node)

    def _length(self, scope: str) -> float:
        return self._seconds.get(scope, _UNKNOWN_SECONDS * len(self.workqueue[scope]))


class Stopwatch:
    """Measures a run, and writes durations.json at its end."""

    def __init__(self) -> None:
        self._phases: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._phases[report.nodeid]["call" if report.when == "call" else "fixtures"] += (
            report.duration
        )

    def pytest_sessionfinish(self) -> None:
        if self._phases:
            DURATIONS.write_text(json.dumps(self._scopes(), indent=0, sort_keys=True) + "\n")

    def _scopes(self) -> dict[str, float]:
        files: dict[str, list[str]] = defaultdict(list)
        for nodeid in self._phases:
            files[file_of(nodeid)].append(nodeid)
        scopes: dict[str, float] = defaultdict(float)
        for file, tests in files.items():
            total = sum(sum(self._phases[test].values()) for test in tests)
            fixtures = sum(self._phases[test]["fixtures"] for test in tests)
            shares = 'scope="module"' in (ROOT / file).read_text("utf-8")
            parted = not shares and total > _PARTED_SECONDS and fixtures < _SHARED * total
            for test in tests:
                scopes[function_of(test) if parted else file] += sum(self._phases[test].values())
        return {scope: round(seconds, 1) for scope, seconds in scopes.items() if seconds >= 0.1}
