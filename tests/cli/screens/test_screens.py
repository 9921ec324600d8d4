from __future__ import annotations

import inspect
import re

import click
import pytest

from fedmq.cli.main import STAGES, cli
from tests.cli.command import fedmq
from tests.cli.screens.screens import SCREENS, WIDTHS, recorded, shown


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_the_recorded_one(name: str, width: int) -> None:
    text = shown(name, width)
    assert text == recorded(name, width).read_text(), "python -m tests.cli.screens.screens"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["help", "models", "progress"])
def test_a_terminal_need_not_wrap_what_is_set(name: str, width: int) -> None:
    assert max(map(len, shown(name, width).splitlines())) <= width


def test_every_command_stands_at_one_stage() -> None:
    listed = [name for names in STAGES.values() for name in names]
    assert sorted(listed) == sorted(set(listed)) == sorted(cli.commands)


@pytest.mark.parametrize("name", cli.commands)
def test_the_list_of_commands_says_what_each_command_says_of_itself(name: str) -> None:
    [listed] = [known for stage in STAGES.values() for at, known in stage.items() if at == name]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    paragraph, *_ = inspect.cleandoc(command.help or "").split("\n\n")
    first, *_ = re.split(r"(?<=[.?])\s", " ".join(paragraph.split()))
    assert listed.help == first


def test_a_misspelt_command_is_told_the_right_one() -> None:
    outcome = fedmq("statsu")
    assert outcome.code == 2
    assert outcome.err.endswith("Error: No such command 'statsu'. Did you mean 'status'?\n")
