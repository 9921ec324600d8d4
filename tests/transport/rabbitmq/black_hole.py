"""A way to a broker that can swallow all packets: nothing is refused, and nothing arrives."""

from __future__ import annotations

import asyncio
import contextlib
import socket

__all__ = ["BlackHole"]


class BlackHole:
    """Forwards to ``target`` on this machine, but while it is ``dark``.

    Then no connection is taken, and the kernel drops the first packet of each further one, because
    the line of those that wait is full.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self._clear = asyncio.Event()
        self._clear.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._waiting: list[socket.socket] = []
        self._opened: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._accept())

    def darken(self) -> None:
        """Swallow everything from now on."""
        self._clear.clear()
        for _ in range(4):
            waiting = socket.socket()
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(("127.0.0.1", self.port))
            self._waiting.append(waiting)

    def lighten(self) -> None:
        """Let everything pass again."""
        for waiting in self._waiting:
            waiting.close()
        self._waiting.clear()
        self._clear.set()

    async def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for opened in (self._listener, *self._opened, *self._waiting):
            opened.close()

    def _spawn(self, work: asyncio._CoroutineLike[None]) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._clear.wait()
            try:
                near, _ = self._listener.accept()
            except BlockingIOError:
                # A cancelled `sock_accept` would lose what it has accepted.
                await asyncio.sleep(0.02)
                continue
            far = socket.socket()
            self._opened += (near, far)
            near.setblocking(False)
            far.setblocking(False)
            await loop.sock_connect(far, ("127.0.0.1", self.target))
            self._spawn(self._forward(near, far))
            self._spawn(self._forward(far, near))

    async def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(source, 65536):
                await self._clear.wait()
                await loop.sock_sendall(sink, data)
            sink.shutdown(socket.SHUT_WR)
