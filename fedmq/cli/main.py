"""The ``fedmq`` command: which commands there are, and how an error ends one.

Exit codes: 0 done, 1 an error inside fedmq, 2 wrong usage, and those of :mod:`fedmq.errors`:
3 configuration, 4 data, 5 broker, 6 session refused, aborted or a party silent, 7 no daemon,
8 foreign message, 9 protocol, 10 a party said what cannot be true; 130 interrupted.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from fedmq.cli.output import print_error
from fedmq.errors import ConfigError, FedmqError

__all__ = ["STAGES", "Listed", "StagedGroup", "cli", "main"]


class Listed(click.Command):
    """A placeholder for a command that is not imported yet.

    ``at`` is ``module:name``, ``sentence`` the first sentence of the command's help.
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
        """The command of that name, imported on demand."""
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


STAGES = {
    "Set up": {
        "demo": Listed(
            "fedmq.cli.demo:demo",
            "Train three parties on breast-cancer data, and compare with XGBoost "
            "on the joined table.",
        ),
        "init": Listed(
            "fedmq.cli.set_up:init",
            "Write a federation into FOLDER: one folder per party, and one for the broker.",
        ),
        "join": Listed(
            "fedmq.cli.set_up:join",
            "Make a party's own FOLDER, with keys that no other party has seen; later complete it.",
        ),
        "party": Listed(
            "fedmq.cli.set_up:party",
            "List, add and remove the parties of the federation.",
        ),
        "keys": Listed(
            "fedmq.cli.set_up:keys",
            "Make, show, change and trust the keys that seal messages between the parties.",
        ),
        "broker": Listed(
            "fedmq.cli.broker:broker",
            "Make a broker's folder, add and remove parties, and check that it keeps them apart.",
        ),
    },
    "Data": {
        "data": Listed("fedmq.cli.data:data", "Check and describe a party's own data."),
        "align": Listed(
            "fedmq.cli.data:align",
            "Find the ids that all parties share, as described in JOB, without showing other ids.",
        ),
        "screen": Listed(
            "fedmq.cli.screen:screen",
            "Look at all parties' columns, as described in JOB, before a training.",
        ),
    },
    "Train": {
        "estimate": Listed(
            "fedmq.cli.estimate:estimate",
            "Estimate time, traffic and memory of the training described in JOB, for each party.",
        ),
        "cv": Listed(
            "fedmq.cli.train:cv",
            "Cross-validate the training described in JOB: score its models on "
            "rows they have not seen.",
        ),
        "schedule": Listed(
            "fedmq.cli.schedule:schedule",
            "Do what SCHEDULE says is due: train anew, evaluate, look for drift.",
        ),
        "search": Listed(
            "fedmq.cli.search:search",
            "Search the best parameters of the training described in JOB.",
        ),
        "train": Listed(
            "fedmq.cli.train:train",
            "Train the model described in JOB, with all parties of the federation.",
        ),
        "follow": Listed(
            "fedmq.cli.train:follow",
            "Watch the training SESSION that the daemon of PARTY drives, up to its end.",
        ),
        "pause": Listed(
            "fedmq.cli.train:pause",
            "Pause the training SESSION after the current tree, also across restarts.",
        ),
        "resume": Listed("fedmq.cli.train:resume", "Resume the paused training SESSION."),
        "cancel": Listed(
            "fedmq.cli.train:cancel",
            "Cancel SESSION at the daemon of PARTY, and tell every party.",
        ),
    },
    "Use": {
        "models": Listed(
            "fedmq.cli.models:models",
            "List, show, describe and compare models; export, import, verify or delete shares.",
        ),
        "predict": Listed(
            "fedmq.cli.scores:predict",
            "Score the people in the CSV file IDS, of an alignment, or of a query to "
            "PARTY's database.",
        ),
        "evaluate": Listed(
            "fedmq.cli.evaluate:evaluate",
            "Evaluate MODEL, what is in production when left out, on rows whose labels are known.",
        ),
        "activate": Listed(
            "fedmq.cli.scores:activate",
            "Serve MODEL (the newest if left out) under a name, at all parties together.",
        ),
        "rollback": Listed(
            "fedmq.cli.scores:rollback",
            "Serve the previous model under a name again, at all parties together.",
        ),
        "serving": Listed(
            "fedmq.cli.scores:serving",
            "Show the models that the daemon of PARTY serves, with request counts and times.",
        ),
        "score": Listed(
            "fedmq.cli.scores:score",
            "Score the person ID by the served model, and show how long each party took.",
        ),
        "changes": Listed(
            "fedmq.cli.changes:changes",
            "Show the smallest change of each party's columns that would have moved the score of "
            "the person ID far enough.",
        ),
    },
    "Consent": {
        "inbox": Listed(
            "fedmq.cli.consent:inbox",
            "List the requests that wait for the consent of the owner of PARTY, with their terms.",
        ),
        "approve": Listed(
            "fedmq.cli.consent:approve",
            "Approve REQUEST in the inbox of PARTY: its session continues.",
        ),
        "refuse": Listed(
            "fedmq.cli.consent:refuse",
            "Refuse REQUEST in the inbox of PARTY: its session ends.",
        ),
    },
    "Operate": {
        "run": Listed(
            "fedmq.cli.run:run",
            "Run the daemon of the party configured in PARTY, until SIGTERM or Ctrl-C.",
        ),
        "status": Listed(
            "fedmq.cli.operate:status",
            "Show the broker connection and the sessions of the daemon of "
            "PARTY, or SESSION in detail.",
        ),
        "history": Listed(
            "fedmq.cli.operate:history",
            "List the ended sessions that PARTY still stores, the oldest first.",
        ),
        "console": Listed(
            "fedmq.cli.operate:console",
            "Open the console of the daemon of PARTY in a browser.",
        ),
        "health": Listed(
            "fedmq.cli.operate:health",
            "Ask whether the daemon of PARTY can serve: exit code 0, 5 without a "
            "broker, 7 if it is down.",
        ),
        "dead": Listed(
            "fedmq.cli.dead:dead",
            "List, show, retry or remove messages that PARTY could not take.",
        ),
        "audit-log": Listed(
            "fedmq.cli.audit_trail:audit_log",
            "Read and verify the audit log of PARTY: questions to it, and its answers.",
        ),
        "forget": Listed(
            "fedmq.cli.forget:forget",
            "Say where the person of an id is in PARTY's own files; with --remove take the person "
            "out.",
        ),
        "audit": Listed(
            "fedmq.cli.audit:audit",
            "Run the known attacks on RECORDING, all that one party saw in a training.",
        ),
        "transcript": Listed(
            "fedmq.cli.audit_trail:transcript",
            "Export the transcript of a training for an auditor, or verify a transcript.",
        ),
        "trace": Listed("fedmq.cli.audit_trail:trace", "Merge timelines of sessions."),
        "bench": Listed("fedmq.cli.bench:bench", "Measure a running federation."),
    },
}
"""Where each command is, and the first sentence of its help: ``--help`` imports no command."""


@click.group(
    cls=StagedGroup,
    stages=STAGES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="fedmq")
def cli() -> None:
    """Train and use one gradient-boosted model together, without showing your table."""


def main() -> None:
    """Run the command line; every expected error becomes one line and its exit code."""
    # The AMQP client logs a lost connection in its own words; ours are in the error or the log.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    named: dict[str, Path] = {}
    try:
        cli.main(standalone_mode=False, obj=named)
    except FedmqError as error:
        print_error(error, named.get("party"))
        sys.exit(error.exit_code)
    except OSError as error:  # an unreachable file or folder that no command handles
        print_error(ConfigError(f"{error.filename or 'a file'}: {error.strerror or error}"))
        sys.exit(ConfigError.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
