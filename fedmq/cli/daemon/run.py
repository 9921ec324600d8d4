"""``fedmq run``: the daemon of one party."""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import gc
import os
import signal
import sys
import threading
from pathlib import Path

import click

from fedmq.cli.daemon.log_format import LOG_FORMATS, LogFormat, log_to_stderr
from fedmq.cli.daemon.systemd import notify_systemd
from fedmq.cli.party_argument import party_argument
from fedmq.cli.setup.keys import ask_passphrase
from fedmq.errors import FedmqError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.daemon import Daemon
from fedmq.party.identity.party_files import PartyFiles

__all__ = ["run"]

_STOP_SECONDS = 12.0
"""Service managers kill a daemon that takes longer, and then nobody learns what held it up."""


@click.command()
@party_argument
@click.option(
    "-v", "--verbose", is_flag=True, help="Log every message that is dropped or sent again."
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder to write a timeline of each session into.",
)
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    default="text",
    show_default=True,
    help="Lines for people, or an object of JSON per line for machines.",
)
def run(party: Path, verbose: bool, trace: Path | None, log_format: LogFormat) -> None:
    """Run the daemon of the party configured in PARTY, until SIGTERM or Ctrl-C.

    SIGHUP makes it take up changed keys and a changed policy.
    """
    config, _ = PartyFile.read(party)
    log_to_stderr(log_format, config.party, verbose=verbose)
    # The files that a daemon writes are for its own user.
    os.umask(0o077)
    # Nobody may be at the terminal when the files are read again, so the passphrase is kept.
    files = PartyFiles.read(party, functools.cache(ask_passphrase))
    if trace is not None:
        trace.mkdir(parents=True, exist_ok=True)

    async def serve() -> None:
        daemon = Daemon(files, trace)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            daemon.stop()
            timer = threading.Timer(_STOP_SECONDS, _exit, [config.party])
            timer.daemon = True
            timer.start()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, daemon.reload)

        def ready() -> None:
            click.echo(
                f"{config.party} is ready in {files.federation.name}; see: fedmq status {party}",
                err=True,
            )
            notify_systemd("READY=1")
            # What is loaded by now stays. To collect garbage among it would hold up scores.
            gc.collect()
            gc.freeze()

        await daemon.run(on_ready=ready)

    asyncio.run(serve())


def _exit(party: str) -> None:
    """End as in a crash, from which the next start recovers, and show where the threads are."""
    click.echo(f"fedmq: {party} does not stop within {_STOP_SECONDS:g} s, and is ended", err=True)
    faulthandler.dump_traceback(sys.stderr)
    os._exit(FedmqError.exit_code)
