"""A private PostgreSQL server for tests, from Debian's package or any other on the PATH."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.free_port import free_port


class PostgresServer:
    """A cluster in a folder of its own, on a free port of 127.0.0.1; its user is ``fedmq``.

    The server refuses to be root: it then runs as the user ``postgres``. Tests that need it do not
    skip without it: starting fails with the line that says how to install it.
    """

    def __init__(self) -> None:
        self._bin = _programs()
        self._user = "postgres" if os.getuid() == 0 else None
        # Not below pytest's own folder, which other users may not enter.
        self._folder = Path(tempfile.mkdtemp(prefix="fedmq-postgres-"))
        if self._user:
            os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
        self.port = free_port()
        self._run("initdb", "-D", self._data, "-U", "fedmq", "-A", "trust", "--no-sync")

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    @property
    def url(self) -> str:
        """The database as SQLAlchemy names it."""
        return f"postgresql+psycopg://fedmq:secret@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder} -F"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", self._data, "-w", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """End at once, with whoever is connected."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def discard(self) -> None:
        """End, and remove the cluster."""
        self.stop()
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder,
            user=self._user,
            timeout=60,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.strip()}")


def _programs() -> Path:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    if not folders:
        raise RuntimeError("PostgreSQL is not installed; run: apt-get install postgresql")
    return folders[-1]
