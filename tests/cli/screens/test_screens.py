from __future__ import annotations

import pytest

from fedmq.cli.main import cli
from fedmq.cli.stages import StagedGroup
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
    assert isinstance(cli, StagedGroup)
    listed = [name for names in cli.stages.values() for name in names]
    assert sorted(listed) == sorted(cli.commands)
