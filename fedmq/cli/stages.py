"""The commands by the stage at which they are typed, as ``fedmq --help`` lists them.

A command's module is imported when the command is typed: the others do not pay for its imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

__all__ = ["Listed", "StagedGroup"]


class Listed(click.Command):
    """Stands for a command that is not imported yet.

    ``at`` is ``module:name``, ``sentence`` the first one of the command's own help.
    """

    def __init__(self, at: str, sentence: str) -> None:
        super().__init__(None, help=sentence)
        self._at = at

    def imported(self) -> click.Command:
        """The command itself."""
        module, _, name = self._at.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


class StagedGroup(click.Group):
    """A group whose help has a heading for each of its ``stages``, with its commands below."""

    def __init__(self, *, stages: Mapping[str, Mapping[str, Listed]], **settings: Any) -> None:
        listed = {name: known for commands in stages.values() for name, known in commands.items()}
        super().__init__(commands=dict(listed), **settings)
        self.stages = stages

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported if it was only listed before."""
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, Listed):
            command = self.commands[cmd_name] = command.imported()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, self.commands))
        for stage, listed in self.stages.items():
            rows = [(name, known.get_short_help_str(limit)) for name, known in listed.items()]
            with formatter.section(stage):
                formatter.write_dl(rows, col_max=20)
