"""A private cluster of Debian's PostgreSQL: a folder and a socket of its own, no port, nobody else's data."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

START_SECONDS = 30.0
_USER = "postgres"  # of the machine, as whom it runs where the tests are root: it refuses to be root
_BINARIES = Path("/usr/lib/postgresql")

# Everything is flushed to the disk as on any server; but what a kill left is flushed by one call, not by a
# thousand, one for each file.
_OPTIONS = ("-c", "recovery_init_sync_method=syncfs")

# Who comes by the socket is let in, but for one who needs a password.
_ACCESS = """\
local all locked scram-sha-256
local all all trust
"""


class PostgresServer:
    """The cluster; it can be killed as in a power cut, and started again."""

    def __init__(self, folder: Path, *, is_root: bool) -> None:
        self._folder = folder
        self._user = _USER if is_root else None
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0

    def url(self, database: str, *, user: str = "postgres", password: str = "", schema: str = "") -> str:
        """How SQLAlchemy finds a database of it, or a part of one."""
        name = f"{user}:{password}" if password else user
        part = f"&options=-csearch_path%3D{schema}" if schema else ""
        return f"postgresql+psycopg://{name}@/{database}?host={self._folder}{part}"

    def environment(self) -> dict[str, str]:
        """How PostgreSQL's own programs, and addresses without a host, find it."""
        return {"PGHOST": str(self._folder), "PGUSER": "postgres"}

    def new_database(self) -> str:
        """The name of a database that is empty."""
        self._count += 1
        name = f"test_{self._count}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return name

    def new_schema(self) -> str:
        """The name of an empty part of the database `postgres`: made in no time."""
        self._count += 1
        name = f"part_{self._count}"
        self.run("postgres", f"CREATE SCHEMA {name}")
        return name

    def run(self, database: str, *statements: str) -> list[tuple[Any, ...]]:
        """What the last statement gives."""
        with self.connect(database) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def connect(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection that commits by itself."""
        return psycopg.connect(
            host=str(self._folder), dbname=database, user="postgres", autocommit=True, connect_timeout=5
        )

    def start(self) -> None:
        """Returns when it answers; after a kill it first mends what that left."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            process = self._begin()
            while process.poll() is None:
                try:
                    self.connect("postgres").close()
                except psycopg.OperationalError:
                    time.sleep(0.02)
                else:
                    self._process = process
                    return
                assert time.monotonic() < deadline, self._said()
            # Children of one that was killed may still hold its memory for a moment.
            assert time.monotonic() < deadline, self._said()
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends it in peace."""
        self._end(signal.SIGINT)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends it at once: SIGKILL as a power cut, SIGQUIT as it does itself after a crash of a part."""
        self._end(number)

    def _begin(self) -> subprocess.Popen[bytes]:
        log = (self._folder / "log").open("ab")
        with log:
            return subprocess.Popen(
                [_binary("postgres"), "-D", self._folder / "data", "-k", self._folder, "-h", "", *_OPTIONS],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user else None,
                cwd=self._folder,
                start_new_session=True,
            )

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_SECONDS)
            self._process = None

    def _said(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2000:]


@contextmanager
def cluster() -> Iterator[PostgresServer]:
    """A new cluster, running; all of it is gone afterwards."""
    is_root = os.geteuid() == 0
    # pytest's folders are closed to others, and a socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if is_root:
        account = pwd.getpwnam(_USER)
        os.chown(folder, account.pw_uid, account.pw_gid)
    server = PostgresServer(folder, is_root=is_root)
    try:
        subprocess.run(
            [_binary("initdb"), "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8",
             "--locale=C.UTF-8", "--no-sync", "--no-instructions"],
            check=True, capture_output=True, cwd=folder,
            user=_USER if is_root else None, group=_USER if is_root else None,
            extra_groups=[] if is_root else None,
        )  # fmt: skip
        (folder / "data" / "pg_hba.conf").write_text(_ACCESS)
        server.start()
        yield server
    finally:
        server.kill(signal.SIGQUIT)  # nobody will need what is in it
        shutil.rmtree(folder)


def _binary(name: str) -> Path:
    found = sorted(_BINARIES.glob(f"*/bin/{name}"))
    if not found:
        raise FileNotFoundError(f"{name} is not here: run `apt-get install postgresql`")
    return found[-1]
