"""The ``fedmq`` command.

Exit codes: 0 done, 1 an error inside fedmq, 2 wrong usage, and those of :mod:`fedmq.errors`:
3 configuration, 4 data, 5 broker, 6 session refused, aborted or a party silent, 7 no daemon,
8 foreign message, 9 protocol, 10 a party said what cannot be true; 130 interrupted.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from fedmq.cli.output import print_error
from fedmq.cli.stages import Listed, StagedGroup
from fedmq.errors import ConfigError, FedmqError

__all__ = ["STAGES", "cli", "main"]

STAGES = {
    "Set up": {
        "demo": Listed(
            "fedmq.cli.model.demo:demo",
            "Train three parties on breast-cancer data, and compare with XGBoost "
            "on the joined table.",
        ),
        "init": Listed(
            "fedmq.cli.setup.init:init",
            "Write a federation into FOLDER: one folder per party, and one for the broker.",
        ),
        "join": Listed(
            "fedmq.cli.setup.join:join",
            "Make a party's own FOLDER, with keys that nobody else has seen; later complete it.",
        ),
        "party": Listed(
            "fedmq.cli.setup.party:party",
            "See who is in the federation, and let parties in and out.",
        ),
        "keys": Listed(
            "fedmq.cli.setup.keys:keys",
            "Make, show, change and trust the keys that seal messages between the parties.",
        ),
        "broker": Listed(
            "fedmq.cli.setup.broker:broker",
            "Make a broker's folder, let parties in and out, and see that it keeps them apart.",
        ),
    },
    "Data": {
        "data": Listed("fedmq.cli.setup.data:data", "Look at a party's own data."),
        "align": Listed(
            "fedmq.cli.model.align:align",
            "Find the ids that all parties share, as described in JOB, without showing the others.",
        ),
    },
    "Train": {
        "estimate": Listed(
            "fedmq.cli.model.estimate:estimate",
            "Estimate time, traffic and memory of the training described in JOB, for each party.",
        ),
        "cv": Listed(
            "fedmq.cli.model.cv:cv",
            "Cross-validate what JOB describes: how good would its model be on "
            "rows it has not seen?",
        ),
        "train": Listed(
            "fedmq.cli.model.train:train",
            "Train the model described in JOB, with all parties of the federation.",
        ),
        "follow": Listed(
            "fedmq.cli.model.train:follow",
            "Watch the training SESSION that the daemon of PARTY drives, up to its end.",
        ),
        "pause": Listed(
            "fedmq.cli.daemon.status:pause",
            "Let the training SESSION rest after the tree that grows now, also across restarts.",
        ),
        "resume": Listed(
            "fedmq.cli.daemon.status:resume", "Let the paused training SESSION go on."
        ),
        "cancel": Listed(
            "fedmq.cli.daemon.status:cancel",
            "End SESSION at the daemon of PARTY; every party is told.",
        ),
    },
    "Use": {
        "models": Listed(
            "fedmq.cli.model.models:models",
            "List, show, describe and compare models; export, import, verify or delete shares.",
        ),
        "predict": Listed(
            "fedmq.cli.model.predict:predict",
            "Score the people whose ids stand in the CSV file IDS, or everybody in an alignment.",
        ),
        "evaluate": Listed(
            "fedmq.cli.model.evaluate:evaluate",
            "Evaluate MODEL, the newest when left out, on rows whose labels are known.",
        ),
        "activate": Listed(
            "fedmq.cli.model.serving:activate",
            "Let a name stand for MODEL (the newest if left out) at all parties together.",
        ),
        "rollback": Listed(
            "fedmq.cli.model.serving:rollback",
            "Let a name stand for the model before again, at all parties together.",
        ),
        "serving": Listed(
            "fedmq.cli.model.serving:serving",
            "Show what the daemon of PARTY serves, and how that goes.",
        ),
        "score": Listed(
            "fedmq.cli.model.score:score",
            "Score the person ID by the model that is served, and say how long each party took.",
        ),
    },
    "Consent": {
        "inbox": Listed(
            "fedmq.cli.daemon.consent:inbox",
            "List what waits for the consent of the owner of PARTY, with its terms.",
        ),
        "approve": Listed(
            "fedmq.cli.daemon.consent:approve",
            "Agree to REQUEST, which waits in the inbox of PARTY: the session goes on.",
        ),
        "refuse": Listed(
            "fedmq.cli.daemon.consent:refuse",
            "Refuse REQUEST, which waits in the inbox of PARTY: the session ends.",
        ),
    },
    "Operate": {
        "run": Listed(
            "fedmq.cli.daemon.run:run",
            "Run the daemon of the party configured in PARTY, until SIGTERM or Ctrl-C.",
        ),
        "status": Listed(
            "fedmq.cli.daemon.status:status",
            "Show the broker connection and the sessions of the daemon of PARTY; "
            "or a SESSION closely.",
        ),
        "history": Listed(
            "fedmq.cli.daemon.status:history",
            "List the sessions of PARTY that ended and are remembered, the oldest first.",
        ),
        "console": Listed(
            "fedmq.cli.daemon.console:console",
            "Open the console of the daemon of PARTY in a browser.",
        ),
        "health": Listed(
            "fedmq.cli.daemon.health:health",
            "Ask whether the daemon of PARTY can serve: exit code 0, 5 without a "
            "broker, 7 if it is down.",
        ),
        "dead": Listed(
            "fedmq.cli.daemon.dead:dead", "Look after messages that PARTY could not take, and why."
        ),
        "audit-log": Listed(
            "fedmq.cli.daemon.audit_log:audit_log",
            "Read and verify what was asked of PARTY, and what it answered.",
        ),
        "audit": Listed(
            "fedmq.cli.model.audit:audit",
            "Mount the known attacks on what one party saw in a training: its RECORDING.",
        ),
        "transcript": Listed(
            "fedmq.cli.daemon.transcript:transcript",
            "Export what PARTY keeps of a training for an auditor, and verify what a party shows.",
        ),
        "trace": Listed("fedmq.cli.model.trace:trace", "Look at timelines of sessions."),
        "bench": Listed("fedmq.cli.model.bench:bench", "Measure a running federation."),
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
    except OSError as error:  # a file or folder that no command expected to be out of reach
        print_error(ConfigError(f"{error.filename or 'a file'}: {error.strerror or error}"))
        sys.exit(ConfigError.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
