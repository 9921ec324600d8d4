"""The commands by the stage at which they are typed, as ``fedmq --help`` lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

__all__ = ["StagedGroup"]


class StagedGroup(click.Group):
    """A group whose help has a heading for each stage; `add_stage` says what belongs below it."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]  # click's own
        self._stages: dict[str, Sequence[str]] = {}

    @property
    def stages(self) -> Mapping[str, Sequence[str]]:
        """The names of the commands by stage."""
        return self._stages

    def add_stage(self, stage: str, *commands: click.Command) -> None:
        """List ``commands`` under the heading ``stage``."""
        for command in commands:
            self.add_command(command)
        self._stages[stage] = [command.name or "" for command in commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for stage, names in self._stages.items():
            limit = formatter.width - 6 - max(map(len, self.commands))
            rows = [(name, self.commands[name].get_short_help_str(limit)) for name in names]
            with formatter.section(stage):
                formatter.write_dl(rows, col_max=20)
