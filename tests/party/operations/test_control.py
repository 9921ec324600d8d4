from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import ConfigError, DaemonError, DataError
from fedmq.party.operations.control import ControlServer, send_request, socket_path
from fedmq.party.sessions.sessions import OnProgress


async def count(request: Mapping[str, Any], on_progress: OnProgress) -> Any:
    for number in range(request["to"]):
        await on_progress({"event": "progress", "done": number})
    return {"counted": request["to"]}


async def refuse(_: Mapping[str, Any], __: OnProgress) -> Any:
    raise DataError("bank: no such ids")


async def stumble(_: Mapping[str, Any], __: OnProgress) -> Any:
    raise ZeroDivisionError("secret number 42")


COMMANDS = {"count": count, "refuse": refuse, "stumble": stumble}


@asynccontextmanager
async def serving(state: Path) -> AsyncIterator[None]:
    server = ControlServer(state, COMMANDS)
    await server.start()
    try:
        yield
    finally:
        await server.close()


async def answer(state: Path, **request: Any) -> list[dict[str, Any]]:
    return [event async for event in send_request(state, request)]


async def test_a_request_is_answered_by_events_and_a_result(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert await answer(tmp_path, do="count", to=2) == [
            {"event": "progress", "done": 0},
            {"event": "progress", "done": 1},
            {"event": "done", "result": {"counted": 2}},
        ]


async def test_nobody_else_looks_into_the_state_folder(tmp_path: Path) -> None:
    made, found = tmp_path / "made", tmp_path / "found"
    found.mkdir(mode=0o755)
    for state in (made, found):
        async with serving(state):
            assert stat.S_IMODE(state.stat().st_mode) == 0o700


async def test_an_error_keeps_its_words_and_its_exit_code(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(DaemonError, match=r"^bank: no such ids$") as caught:
            await answer(tmp_path, do="refuse")
    assert caught.value.exit_code == DataError.exit_code


async def test_a_fault_of_the_daemon_stays_in_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path):
        with pytest.raises(DaemonError, match=r"^internal error: ZeroDivisionError") as caught:
            await answer(tmp_path, do="stumble")
        assert await answer(tmp_path, do="count", to=0)
    assert "42" not in str(caught.value)
    assert "42" in caplog.text


async def test_an_unknown_request_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(DaemonError, match="does not know the command 'dance'"):
            await answer(tmp_path, do="dance")


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n", b"\xff\n"])
async def test_a_line_that_is_no_request_is_answered_by_an_error(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(socket_path(tmp_path)))
        writer.write(line)
        assert json.loads(await reader.readline())["event"] == "error"
        writer.close()


async def test_without_a_daemon_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match=f"^no daemon runs at {tmp_path}; start it with: fedmq"):
        await answer(tmp_path, do="count", to=1)


async def test_who_waits_while_the_daemon_stops_is_still_answered(tmp_path: Path) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def wait(_: Mapping[str, Any], __: OnProgress) -> Any:
        begun.set()
        await release.wait()
        raise DataError("bank is shutting down")

    server = ControlServer(tmp_path, {"wait": wait})
    await server.start()
    asked = asyncio.create_task(answer(tmp_path, do="wait"))
    await begun.wait()
    await server.close()
    release.set()
    with pytest.raises(DaemonError, match=r"^bank is shutting down$"):
        await asked


async def test_a_request_that_waits_for_ever_ends_with_the_daemon(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(_: Mapping[str, Any], __: OnProgress) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    server = ControlServer(tmp_path, {"wait": wait})
    await server.start()
    asked = asyncio.create_task(answer(tmp_path, do="wait"))
    await begun.wait()
    await server.close()
    await server.hang_up()
    assert ended.is_set()
    with pytest.raises(DaemonError, match=r"^the daemon stopped before it answered"):
        await asked


async def test_a_daemon_that_hangs_up_is_an_error(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async with await asyncio.start_unix_server(hang_up, str(socket_path(tmp_path))):
        with pytest.raises(DaemonError, match="the daemon stopped before it answered"):
            await answer(tmp_path, do="count", to=1)


async def test_the_socket_is_open_to_its_owner_only(tmp_path: Path) -> None:
    async with serving(tmp_path):
        mode = socket_path(tmp_path).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


async def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(ConfigError, match="another daemon of this party runs already"):
            await ControlServer(tmp_path, COMMANDS).start()
        assert await answer(tmp_path, do="count", to=0)


async def test_the_socket_of_a_daemon_that_was_killed_is_replaced(tmp_path: Path) -> None:
    killed = ControlServer(tmp_path, COMMANDS)
    await killed.start()
    socket = socket_path(tmp_path)
    left_behind = socket.with_name("left-behind")
    socket.rename(left_behind)
    await killed.close()
    left_behind.rename(socket)
    async with serving(tmp_path):
        assert await answer(tmp_path, do="count", to=0)


async def test_a_state_folder_may_lie_deeper_than_a_socket_address_is_long(tmp_path: Path) -> None:
    state = tmp_path / ("a" * 100) / ("b" * 100)
    async with serving(state):
        assert await answer(state, do="count", to=0)
    assert not socket_path(state).exists()


async def test_a_state_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("a file")
    with pytest.raises(ConfigError, match=f"^state: the folder {state} cannot be used: "):
        await ControlServer(state, COMMANDS).start()
