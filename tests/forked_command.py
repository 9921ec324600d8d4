"""``fedmq`` processes without the seconds that imports take: forks of one that has imported all.

Each is a process of its own, with its own arguments, folder, environment, files and exit code, and
ends as an interpreter ends, with its threads and all that is registered for its exit. What an
interpreter reads of its environment before it runs a program is that of the test run: a test that
changes it starts ``fedmq`` itself. So do a few others, lest nobody sees what is amiss with a
process that is no fork.

::

    python tests/forked_command.py SOCKET

forks for every request on the socket, which is the number of an open file.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

_LARGEST_REQUEST = 1 << 17
_LATER = ("sklearn.datasets",)
"""What commands import once they need it, from other packages."""
_FILES = 4
"""Standard input, output, errors, and where process number and exit code are told."""


# What tests call


class ForkedProcess:
    """A ``fedmq`` that runs; to its owner it is as a ``subprocess.Popen``."""

    def __init__(self, arguments: Sequence[str], told: socket.socket) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._told = told
        self.pid = int(told.recv(20))

    def poll(self) -> int | None:
        """The exit code, once there is one."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; that of a signal is negative.

        Raises:
            subprocess.TimeoutExpired: it still runs after ``timeout`` seconds.
        """
        if self.returncode is None:
            ended, _, _ = select.select([self._told], [], [], timeout)
            if not ended:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._told.recv(20))
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, for it alone: what it has started is in its group."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """The process that has imported all, and its forks."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the tests
            )

    def start(
        self,
        arguments: Sequence[str | Path],
        out: IO[Any],
        err: IO[Any],
        cwd: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> ForkedProcess:
        """Start ``fedmq ARGUMENTS``, which writes into these files."""
        typed = [str(argument) for argument in arguments]
        request = json.dumps([typed, str(cwd or Path.cwd()), dict(environment)])
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, Path(os.devnull).open() as nothing:
            files = [nothing.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
            socket.send_fds(self._ours, [request.encode()], files)
        return ForkedProcess(typed, ours)

    def run(
        self, arguments: Sequence[str | Path], cwd: Path | None = None, timeout: float = 280
    ) -> subprocess.CompletedProcess[str]:
        """Run ``fedmq ARGUMENTS``, and wait for its end.

        Raises:
            subprocess.TimeoutExpired: it takes longer than ``timeout`` seconds; it is killed then.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.start(arguments, out, err, cwd)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
                process.wait()
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(process.args, code, *texts)

    def close(self) -> None:
        """End the process, and what it forked."""
        self._ours.close()
        self._process.wait()


@cache
def forks() -> Forks:
    """Those of this test run."""
    made = Forks()
    atexit.register(made.close)
    return made


# The process that forks


def _import_all() -> None:
    """Also what commands import once they need it: ``init`` took two seconds for its example."""
    import fedmq

    for module in pkgutil.walk_packages(fedmq.__path__, "fedmq."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LATER:
        importlib.import_module(name)


def _serve(requests: socket.socket) -> list[str] | None:
    """The arguments of ``fedmq``, in its own process; nothing, once no test can ask any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for a fedmq
    while True:
        request, files, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, _FILES)
        if not request:
            return None
        if _fork() == 0:
            requests.close()
            return _forked(files, *json.loads(request))
        for file in files:
            os.close(file)


def _fork() -> int:
    with warnings.catch_warnings():  # the threads of BLAS, of which Python warns, bear it
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _forked(
    files: list[int], arguments: list[str], cwd: str, environment: dict[str, str]
) -> list[str]:
    """Fork once more: one waits for the other, and tells its number and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, told = files
    number = _fork()
    if number:
        os.setpgid(number, number)  # a group of its own, with the processes that it starts
        for file in standard:
            os.close(file)
        with socket.socket(fileno=told) as owner:
            _wait(number, owner)
        os._exit(0)
    os.close(told)
    for place, file in enumerate(standard):
        os.dup2(file, place)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    from tests.chaos.stepped_clock import follow

    follow(environment)
    return arguments


def _wait(number: int, owner: socket.socket) -> None:
    owner.sendall(str(number).encode())
    select.select([os.pidfd_open(number), owner], [], [])
    ended, status = os.waitpid(number, os.WNOHANG)
    if ended:
        owner.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    else:  # its owner has gone
        os.killpg(number, signal.SIGKILL)


def _run_and_end(main: Callable[[], object]) -> NoReturn:
    """Run it, and end as an interpreter does, but for taking all modules apart: that takes longer
    than most commands."""
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)
    from tests.chaos.stepped_clock import make_steppable

    del sys.path[0]
    make_steppable()
    _import_all()
    gc.freeze()  # what all share is not looked through, and so not copied
    typed = _serve(socket.socket(fileno=int(sys.argv[1])))
    if typed is not None:
        from fedmq.cli.main import main

        sys.argv[:] = ["fedmq", *typed]
        _run_and_end(main)
