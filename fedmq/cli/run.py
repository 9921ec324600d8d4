"""``fedmq run``: the daemon of one party."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

import click

from fedmq.party.configuration.party import PartyFile
from fedmq.party.daemon import Daemon

__all__ = ["run"]


@click.command()
@click.argument("party", type=click.Path(path_type=Path))
@click.option(
    "-v", "--verbose", is_flag=True, help="Log every message that is dropped or sent again."
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder to write a timeline of each session into.",
)
def run(party: Path, verbose: bool, trace: Path | None) -> None:
    """Run the daemon of the party configured in PARTY, until SIGTERM or Ctrl-C."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("fedmq").setLevel(logging.DEBUG if verbose else logging.INFO)
    # The client library reports each lost connection with a traceback; the link says it in a line.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    config, federation = PartyFile.read(party)

    async def serve() -> None:
        daemon = Daemon(config, federation, trace)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.stop)
        await daemon.run(
            on_ready=lambda: click.echo(f"{config.party} is ready in {federation.name}", err=True)
        )

    asyncio.run(serve())
