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
from fedmq.cli.daemon.systemd import tell_supervisor
from fedmq.cli.setup.keys import ask_passphrase
from fedmq.errors import FedmqError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.daemon import Daemon
from fedmq.party.identity.party_files import PartyFiles

__all__ = ["run"]

_STOP_SECONDS = 12.0
"""Service managers kill a daemon that takes longer, and nobody learns what it was waiting for."""


@click.command()
@click.argument("party", type=click.Path(path_type=Path))
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
    # What a daemon writes down is for its own user.
    os.umask(0o077)
    # Asked for once: whoever typed it need not sit there when the files are read anew.
    files = PartyFiles.read(party, functools.cache(ask_passphrase))
    if trace is not None:
        trace.mkdir(parents=True, exist_ok=True)

    async def serve() -> None:
        daemon = Daemon(files, trace)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            daemon.stop()
            last = threading.Timer(_STOP_SECONDS, _leave, [config.party])
            last.daemon = True
            last.start()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, daemon.reload)

        def ready() -> None:
            click.echo(f"{config.party} is ready in {files.federation.name}", err=True)
            tell_supervisor("READY=1")
            # What is loaded by now stays: to look at it again and again would hold up scores.
            gc.collect()
            gc.freeze()

        await daemon.run(on_ready=ready)

    asyncio.run(serve())


def _leave(party: str) -> None:
    """End as a crash would, from which the next start recovers, and show where it stood."""
    click.echo(f"fedmq: {party} does not stop within {_STOP_SECONDS:g} s, and is ended", err=True)
    faulthandler.dump_traceback(sys.stderr)
    os._exit(FedmqError.exit_code)
