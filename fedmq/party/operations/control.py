"""The protocol between command line and daemon on one machine: JSON lines over a Unix socket.

A request is one line ``{"do": ..., ...}``; the answer is any number of lines ``{"event": ...}``,
the last of which is ``done`` with a ``result``, or ``error`` with a ``message`` and ``exit_code``.
The socket lies in the party's state folder and is open to its owner only. Commands that change
something are audited: who gave them, and how they ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmq.errors import ConfigError, DaemonAway, DaemonError, FedmqError, Refused
from fedmq.transport.background_tasks import BackgroundTasks

if TYPE_CHECKING:  # the command line must not import the daemon's modules
    from fedmq.party.services.service import Command
    from fedmq.party.sessions.sessions import OnProgress

__all__ = [
    "STOPPED",
    "ControlServer",
    "Record",
    "named_fields",
    "remote_error",
    "request_daemon",
    "send_request",
    "socket_path",
    "user_name",
]

log = logging.getLogger(__name__)

Record = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Writes an entry into the audit log; Refused if it cannot."""

_CHANGES = (
    *("activate", "admit", "align", "approve", "cancel", "column_names", "console"),
    *("delete_everywhere", "drop", "joint_model", "noted", "overlap", "pause", "redeliver"),
    *("refuse", "reload", "requeue", "resume", "rollback", "screen", "sign_card", "train"),
)
"""Commands that change something, or ask other parties about people."""
_ALWAYS = ("cancel", "pause")
"""Those that are obeyed on a full disk too, without a record: they end what goes wrong."""
_FIELDS = (
    *("model", "name", "mode", "alignment", "engine", "session", "request", "letter"),
    *("fingerprint", "reason", "did", "party", "who", "roles"),
)
"""What the log keeps of a request: nothing that belongs to people in a table."""

_LARGEST_LINE = 256 * 1024 * 1024
STOPPED = (
    "the daemon stopped before it answered; a training continues when the daemon runs again; "
    "repeat any other request"
)
"""Said where an answer has no end."""


def socket_path(state: Path) -> Path:
    """Where the daemon with the state folder ``state`` listens."""
    return state / "control.sock"


@contextlib.contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """A name of ``path`` that fits the 108 bytes of a Unix socket's address."""
    if len(os.fsencode(path)) < 100 or not Path("/proc/self/fd").exists():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class ControlServer:
    """Answers requests by ``commands`` while the daemon runs; ``record`` audits changes."""

    def __init__(
        self, state: Path, commands: Mapping[str, Command], record: Record | None = None
    ) -> None:
        self._path = socket_path(state)
        self._record = record
        self._commands = commands
        self._server: asyncio.Server | None = None
        self._requests = BackgroundTasks()

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: another daemon listens already, or the folder cannot be written.
        """
        try:
            _make_private(self._path.parent)
            if await self._is_alive():
                raise ConfigError(
                    f"{self._path.parent}: another daemon of this party runs already; stop it first"
                )
            self._path.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                with _short_name(self._path) as name:
                    self._server = await asyncio.start_unix_server(
                        self._on_connection, name, limit=_LARGEST_LINE
                    )
            finally:
                os.umask(before)
        except OSError as error:
            raise ConfigError(
                f"state: the folder {self._path.parent} cannot be used: {error.strerror}; name "
                "another one under state in the party's file"
            ) from None

    async def close(self) -> None:
        """Stop listening; open requests are answered when their command ends."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def hang_up(self) -> None:
        """Close the requests that are still open: their commands will not end any more."""
        await self._requests.close()

    async def _is_alive(self) -> bool:
        try:
            with _short_name(self._path) as name:
                _, writer = await asyncio.open_unix_connection(name)
        except OSError:
            return False
        writer.close()
        return True

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._requests.spawn(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(event: Mapping[str, Any]) -> None:
            writer.write(json.dumps(event).encode() + b"\n")
            await writer.drain()

        try:
            with contextlib.suppress(ConnectionError):
                line = await reader.readline()
                if line:
                    await send(await self.answer(line, send, _user_of(writer)))
        finally:
            writer.close()

    async def answer(
        self, line: bytes, on_progress: OnProgress, who: str, whence: str = "command line"
    ) -> dict[str, Any]:
        """The last event of the answer to the request in ``line``, which ``who`` makes.

        ``on_progress`` takes those before it; ConnectionError if nobody reads them any more.
        """
        from fedmq.party.consent.person import Person  # the command line needs none

        try:
            request = json.loads(line)
            command = self._commands.get(request.get("do"))
            if command is None:
                raise DaemonError(f"this daemon does not know the command {request.get('do')!r}")
            if self._record is not None and request["do"] in _CHANGES:
                command = _audited(command, self._record, who, whence)
            given = {**request, "person": Person.proven(who)}
            return {"event": "done", "result": await command(given, on_progress)}
        except FedmqError as error:
            return {"event": "error", "message": str(error), "exit_code": error.exit_code}
        except ConnectionError:
            raise
        except Exception as error:
            log.exception("a request failed")
            message = f"internal error: {type(error).__name__}; see the daemon's log"
            return {"event": "error", "message": message, "exit_code": FedmqError.exit_code}


def _audited(command: Command, record: Record, who: str, whence: str) -> Command:
    """``command`` with its beginning and its end on record; refused where there can be none."""

    async def run(request: Mapping[str, Any], on_progress: OnProgress) -> Any:
        given = {
            "event": "command",
            "what": request["do"],
            "by": who,
            "whence": whence,
            **named_fields(request),
        }
        try:
            await record(given)
        except Refused:
            if request["do"] not in _ALWAYS:
                raise
        outcome = "interrupted"
        try:
            result = await command(request, on_progress)
            outcome = "done"
        except ConnectionError:
            outcome = "goes on, nobody watches"
            raise
        except Exception as error:
            outcome = str(error) if isinstance(error, FedmqError) else type(error).__name__
            raise
        finally:
            with contextlib.suppress(Refused):  # it is logged, and too late to refuse
                await record({**given, "event": "command ended", "outcome": outcome})
        return result

    return run


def named_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the audit log keeps of ``request``."""
    job = request.get("job")
    every = {**job, **request} if isinstance(job, Mapping) else request
    return {name: every[name] for name in _FIELDS if every.get(name) is not None}


def _user_of(writer: asyncio.StreamWriter) -> str:
    """The operating system's name of who is at the other end."""
    connection = writer.get_extra_info("socket")
    if not hasattr(socket, "SO_PEERCRED"):
        return user_name(os.getuid())
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return user_name(struct.unpack("3i", found)[1])


def user_name(number: int) -> str:
    """The name of the operating system's user, or its number where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _make_private(folder: Path) -> None:
    """Create ``folder``, or remove other users' access to an existing one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        try:
            folder.chmod(0o700)
        except PermissionError:  # a volume of another user
            log.warning("%s: others can look into the state folder; chmod 700 it", folder)


async def send_request(state: Path, request: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The events with which the daemon answers ``request``, up to ``done``.

    Raises:
        ConfigError: the socket is another user's.
        DaemonAway: no daemon listens, or it hung up.
        DaemonError: it answered with an error, whose exit code the exception carries.
    """
    path = socket_path(state)
    try:
        with _short_name(path) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=_LARGEST_LINE)
    except PermissionError as error:
        raise ConfigError(
            f"{state}: cannot be used: {error.strerror}; run this as the daemon's own user"
        ) from None
    except OSError:
        raise DaemonAway(
            f"no daemon runs at {state}; start it with: fedmq run PARTY.toml"
        ) from None
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        while line := await reader.readline():
            event = json.loads(line)
            if event["event"] == "error":
                raise remote_error(event)
            yield event
            if event["event"] == "done":
                return
        raise DaemonAway(STOPPED)
    except ConnectionError:
        raise DaemonAway(STOPPED) from None
    finally:
        writer.close()


def request_daemon(
    state: Path,
    request: Mapping[str, Any],
    on_progress: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Any:
    """Send ``request`` to the daemon with the state folder ``state``; returns its result.

    ``on_progress`` takes the events before the result. An event loop may run here, as in a
    notebook.

    Raises:
        ConfigError: the socket in ``state`` is another user's.
        DaemonError: no daemon listens, it stopped, or it answered with an error, whose exit code
            the exception carries.
    """

    async def last_event() -> Any:
        async for event in send_request(state, request):
            if event["event"] == "done":
                return event["result"]
            on_progress(event)
        raise AssertionError("the answer ends with done or an error")

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(last_event())
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, last_event()).result()


def remote_error(event: Mapping[str, Any]) -> DaemonError:
    """The error that an ``event`` of a daemon tells, with its exit code."""
    error = DaemonError(event["message"])
    error.exit_code = int(event["exit_code"])  # type: ignore[misc]
    return error
