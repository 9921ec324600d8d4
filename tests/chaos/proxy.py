"""A TCP proxy between a party and its broker that cuts, delays, slows down, stalls and freezes."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

_CHUNK = 65536
_BETWEEN_STALLS = 20_000


class Proxy:
    """Forwards connections to a port of this machine, as badly as it is told to.

    ``cut_every`` ends each connection after so many bytes, ``delay`` holds each piece back for so
    many seconds, ``rate`` lets so many bytes a second through on each connection, both ways
    together, ``stall`` forwards nothing for so many seconds after every 20 kB, ``frozen`` forwards
    nothing and hangs up on nobody.
    """

    def __init__(self, target: int) -> None:
        self.cut_every = 0
        self.delay = 0.0
        self.rate = 0.0
        self.stall = 0.0
        self.frozen = False
        self.cuts = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._closing = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def cut(self) -> None:
        """End all connections now."""
        self.cuts += 1
        for pair in list(self._pairs):
            for each in pair:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Behave from now on."""
        self.cut_every, self.frozen = 0, False
        self.delay = self.rate = self.stall = 0.0

    def close(self) -> None:
        self._closing = True
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            near.settimeout(None)
            far.settimeout(None)
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        pair = (near, far)
        self._pairs.add(pair)
        passed = 0
        other = {near: far, far: near}
        try:
            while not self._closing:
                if self.frozen:
                    time.sleep(0.02)
                    continue
                ready, _, _ = select.select(list(pair), [], [], 0.05)
                for each in ready:
                    data = each.recv(max(1, min(_CHUNK, int(self.rate / 10) or _CHUNK)))
                    if not data:
                        return
                    if self.delay:
                        time.sleep(self.delay)
                    if rate := self.rate:
                        time.sleep(len(data) / rate)
                    if passed // _BETWEEN_STALLS != (passed + len(data)) // _BETWEEN_STALLS:
                        time.sleep(self.stall)
                    passed += len(data)
                    if self.cut_every and passed > self.cut_every:
                        # Cut in the middle of a frame, as a broken line would.
                        other[each].sendall(data[: len(data) // 2])
                        self.cuts += 1
                        return
                    other[each].sendall(data)
        except OSError:
            pass
        finally:
            self._pairs.discard(pair)
            for each in pair:
                each.close()
