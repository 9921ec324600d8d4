"""The form of fedmq: its figures may fall, and they may not rise (``make form``)."""

from __future__ import annotations

import pytest

from tests.form import source
from tests.form.figures import ALLOWED, WALKS, of_imports, of_source, walks
from tests.form.imports import COMMANDS, imported, seconds, slowness

SLACK = 1.06
"""Threads take turns as they like: one walk has a few moves and calls more than another.

On a machine where all cores are taken, acknowledgements that wait for more to come are sent by
their timers: up to 5 % more calls of `ou` in each walk.
"""
ATTEMPTS = 5
"""A loaded machine adds calls, such as of timers, and takes none away: the shortest walk counts."""


@pytest.mark.parametrize("name", WALKS)
@pytest.mark.timeout(300)
def test_a_reader_walks_no_further_than_before(name: str) -> None:
    allowed = {key: round(figure * SLACK) for key, figure in ALLOWED[name].items()}
    shortest: dict[str, int] = {}
    for walk in walks(name, ATTEMPTS):
        shortest = {key: min(walk[key], shortest.get(key, walk[key])) for key in walk}
        if all(shortest[key] <= allowed[key] for key in allowed):
            return
    assert all(shortest[key] <= allowed[key] for key in allowed), f"{shortest}, allowed {allowed}"


@pytest.mark.parametrize("name", ALLOWED["source"])
def test_files_and_classes_grow_no_larger(name: str) -> None:
    assert of_source()[name] <= ALLOWED["source"][name]


def test_levels_are_steps_of_inheritance_between_classes_of_fedmq() -> None:
    levels = source.levels()
    objectives = "fedmq.boosting.objectives"
    assert levels[f"{objectives}.objective.Objective"] == 0
    assert levels[f"{objectives}.objective.RegressionLoss"] == 1
    assert levels[f"{objectives}.regression.SquaredError"] == 2


def test_commands_import_no_more_modules_than_before() -> None:
    today = of_imports()
    for command, allowed in ALLOWED["modules imported"].items():
        assert today[command] <= allowed, command


def test_no_command_of_every_day_imports_arithmetic() -> None:
    for command in COMMANDS:
        packages = {module.partition(".")[0] for module in imported(command)}
        assert not packages & {"numpy", "scipy", "aio_pika", "fastapi"}, command


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_take_no_more_processor_time_than_people_wait_for(command: str) -> None:
    taken: list[float] = []
    for _ in range(ATTEMPTS):
        taken.append(seconds(command))
        if min(taken) <= COMMANDS[command]:
            return
    assert min(taken) <= COMMANDS[command] * slowness(), f"{taken}"


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert source.circle() == []
