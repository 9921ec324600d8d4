"""``fedmq run``: a party's daemon, its log, and its notifications to systemd."""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

import click

from fedmq.cli.output import printable
from fedmq.cli.party_daemon import party_argument
from fedmq.cli.set_up import ask_passphrase
from fedmq.errors import FedmqError
from fedmq.large_array import allow_open_files
from fedmq.party.configuration.party import PartyFile
from fedmq.party.daemon import Daemon
from fedmq.party.identity.party_files import PartyFiles

__all__ = ["LOG_FORMATS", "LogFormat", "RepeatedWarnings", "log_to_stderr", "notify_systemd", "run"]

LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
_STOP_SECONDS = 12.0
"""Service managers kill a daemon that takes longer, which hides the cause of the delay."""


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
    # Only the daemon's own user may read its files.
    os.umask(0o077)
    allow_open_files()
    # Keep the passphrase: a reload may happen without a person at the terminal.
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
            # The objects loaded by now stay. Garbage collection among them would delay scores.
            gc.collect()
            gc.freeze()

        await daemon.run(on_ready=ready)

    asyncio.run(serve())


def _exit(party: str) -> None:
    """Exit as in a crash, from which the next start recovers, and print the threads' stacks."""
    click.echo(f"fedmq: {party} does not stop within {_STOP_SECONDS:g} s, and is ended", err=True)
    faulthandler.dump_traceback(sys.stderr)
    os._exit(FedmqError.exit_code)


# Formats of a daemon's log: lines for people, or one JSON object per line for machines.

_ABOUT = ("session", "message_id")


def log_to_stderr(form: LogFormat, party: str, *, verbose: bool) -> None:
    """Log fedmq's own news, and warnings of the libraries it uses."""
    handler = logging.StreamHandler()
    handler.addFilter(RepeatedWarnings())
    handler.setFormatter(
        _JsonFormatter(party)
        if form == "json"
        else _TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("fedmq").setLevel(logging.DEBUG if verbose else logging.INFO)


class _TextFormatter(logging.Formatter):
    """A single line per message, even with a peer's text in it."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return super().formatMessage(record).replace("\n", "\\n")


class _JsonFormatter(logging.Formatter):
    """Keys: at, level, logger, party, text, session and message_id where known, error."""

    def __init__(self, party: str) -> None:
        super().__init__()
        self._party = party

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "party": self._party,
            "text": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in _ABOUT if hasattr(record, name)}
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


# Repeated warnings are limited: otherwise a peer that causes them could fill the disk.

_MOST = 20
_SECONDS = 60.0
_KINDS = 1000  # distinct warnings; beyond, the oldest is forgotten


class _Window:
    __slots__ = ("left_out", "since", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 0
        self.left_out = 0


class RepeatedWarnings(logging.Filter):
    """Lets through 20 warnings a minute of one kind: of one logger, level and first line.

    Different values in a line make no new kind. The next written warning gives the number of
    suppressed ones. ``clock`` gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: OrderedDict[tuple[str, int, str], _Window] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether ``record`` is written."""
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        window = self._window(
            (record.name, record.levelno, str(record.msg).partition("\n")[0]), now
        )
        if now - window.since > _SECONDS:
            if window.left_out:
                record.msg = f"{record.getMessage()} (and {window.left_out} more like it before)"
                record.args = None
            window.since, window.written, window.left_out = now, 0, 0
        if window.written == _MOST:
            window.left_out += 1
            return False
        window.written += 1
        return True

    def _window(self, kind: tuple[str, int, str], now: float) -> _Window:
        window = self._windows.get(kind)
        if window is None:
            window = self._windows[kind] = _Window(now)
            if len(self._windows) > _KINDS:
                self._windows.popitem(last=False)
        return window


# The state of the daemon for systemd: the protocol of sd_notify(3), without its library.


def notify_systemd(state: str) -> None:
    """Send ``state``, such as ``READY=1``, to systemd; do nothing if it does not listen."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # An abstract name begins with a null byte, which systemd writes as @.
    name = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), name)
