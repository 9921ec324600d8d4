"""The ``fedmq`` command.

Exit codes: 0 done, 1 an error inside fedmq, 2 wrong usage, and those of :mod:`fedmq.errors`:
3 configuration, 4 data, 5 broker, 6 session refused, aborted or a party silent, 7 no daemon,
8 foreign message, 9 protocol; 130 interrupted.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from fedmq.cli.daemon.audit_log import audit_log
from fedmq.cli.daemon.consent import approve, inbox, refuse
from fedmq.cli.daemon.console import console
from fedmq.cli.daemon.dead import dead
from fedmq.cli.daemon.health import health
from fedmq.cli.daemon.run import run
from fedmq.cli.daemon.status import cancel, history, pause, resume, status
from fedmq.cli.daemon.transcript import transcript
from fedmq.cli.model.align import align
from fedmq.cli.model.audit import audit
from fedmq.cli.model.bench import bench
from fedmq.cli.model.cv import cv
from fedmq.cli.model.demo import demo
from fedmq.cli.model.estimate import estimate
from fedmq.cli.model.evaluate import evaluate
from fedmq.cli.model.models import models
from fedmq.cli.model.predict import predict
from fedmq.cli.model.score import score
from fedmq.cli.model.serving import activate, rollback, serving
from fedmq.cli.model.trace import trace
from fedmq.cli.model.train import follow, train
from fedmq.cli.output import print_error
from fedmq.cli.setup.broker import broker
from fedmq.cli.setup.data import data
from fedmq.cli.setup.init import init
from fedmq.cli.setup.join import join
from fedmq.cli.setup.keys import keys
from fedmq.cli.setup.party import party
from fedmq.cli.stages import StagedGroup
from fedmq.errors import ConfigError, FedmqError

__all__ = ["cli", "main"]


@click.group(
    cls=StagedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="fedmq")
def cli() -> None:
    """Train and use one gradient-boosted model together, without showing your table."""


assert isinstance(cli, StagedGroup)
cli.add_stage("Set up", demo, init, join, party, keys, broker)
cli.add_stage("Data", data, align)
cli.add_stage("Train", estimate, cv, train, follow, pause, resume, cancel)
cli.add_stage("Use", models, predict, evaluate, activate, rollback, serving, score)
cli.add_stage("Consent", inbox, approve, refuse)
cli.add_stage(
    "Operate",
    *(run, status, history, console, health, dead, audit_log, audit, transcript, trace, bench),
)


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
