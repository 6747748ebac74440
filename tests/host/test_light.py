"""A host is light, because strangers install it: what it loads, and what it takes while nobody comes."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.knocking import NAME, SITE, Home, open_home, send, until, write_site
from tests.killing import children_of

from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.model import Crawler, Program, Source
from sterna.wire.keys import Identity
from sterna.wire.orders import seal_order

HEAVY = ("duckdb", "pyarrow", "tantivy", "sqlalchemy", "sqlglot", "fastwarc", "sterna.archive")
IDLE_BYTES = 60 * 1024 * 1024
HANDSHAKE_CPU_SECONDS = 0.005


def loaded_by(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import sterna.host.service, sterna.host.visiting.reception, sterna.host.asgi, sterna.host.cgi",
        "from sterna.cli.app import make_app; make_app(); import sterna.cli.host_run",
        "from sterna.cli.app import make_app; make_app(); import sterna.cli.keys",
    ],
)
def test_host_loads_nothing_heavy(code: str) -> None:
    loaded = loaded_by(code)
    assert "sterna.host.keyring" in loaded
    assert [name for name in HEAVY if name in loaded] == []
    # The flags of all commands are described beside the settings of a crawl, which import nothing.
    assert [name for name in loaded if name.startswith("sterna.home.")] in ([], ["sterna.home.settings"])


def test_greeting_does_without_the_runtime() -> None:
    loaded = loaded_by("import sterna.host.cgi")
    assert [
        name for name in ("pycurl", "selectolax", "sterna.runtime", "uvicorn", "typer") if name in loaded
    ] == []


# -- an idle host ------------------------------------------------------------------------------------------


class Running:
    """`sterna host run` as a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_site(folder / "site", pages=100)
        self.identity = Identity.new()
        allow(folder / "keys" / ALLOWED, self.identity.public, NAME)
        (folder / "policy.toml").write_text("[limits]\nidle_seconds = 0.5\n[load]\nmachine = 0\n")
        folders = ["--root", "site", "--keys", "keys", "--state", "state", "--policy", "policy.toml"]
        command = [sys.executable, "-m", "sterna", "host", "run", "--site", SITE, "--check", "never"]
        self.process = subprocess.Popen(
            [*command, *folders, "--listen", "127.0.0.1:0"], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        self.lines: list[str] = []
        while not (line := self.process.stdout.readline()).startswith("listens"):
            assert line, "it ended"
            self.lines.append(line)
        self.port = int(line.rpartition(":")[2])

    def pss_bytes(self) -> int:
        """The memory of the process and of all below it, what they share counted once."""
        return sum(map(pss_of, [self.process.pid, *children_of(self.process.pid)]))

    async def post(self, op: str, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST /{op} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        raw = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        assert raw.startswith(b"HTTP/1.1 200"), raw[:500]
        return raw.partition(b"\r\n\r\n")[2]

    async def visit(self, name: str) -> int:
        """Sends a crawler with rules, and gives the size of what comes back."""
        host = Keyring(self.folder / "keys").read("host")
        greeting = Home.greeting(Home(None, host, self.identity))  # type: ignore[arg-type]
        session = greeting.finish(await self.post("hello", greeting.body), host.public)
        rules = (Source("a.clp", "(defrule a (page) => (keep))"),)
        order = send(visit=name, crawler=Crawler(program=Program(rules=rules)))
        return len(await self.post("order", seal_order(session.keys, session.ticket, order)))


def pss_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    host = Running(tmp_path)
    yield host
    host.process.terminate()
    assert host.process.wait(30) == 0


async def test_idle_host_is_small_before_and_after_visits(running: Running) -> None:
    assert running.pss_bytes() < IDLE_BYTES
    for number in range(3):
        assert await running.visit(f"v{number}") > 2000
    assert children_of(running.process.pid)
    await until(lambda: not children_of(running.process.pid))
    assert running.pss_bytes() < IDLE_BYTES
    running.process.terminate()
    said, _ = running.process.communicate(timeout=30)
    assert f"visit v0 of {NAME}: crawler 'default' begins\n" in said
    assert f"visit v0 of {NAME} is over (finished): 101 pages, " in said


async def test_handshake_costs_both_sides_little(tmp_path: Path) -> None:
    """The CPU time of greeting and reply, with the files of the session, the best of a few."""
    async with open_home(tmp_path) as home:
        took = []
        for _ in range(20):
            began = time.process_time()
            await home.greet()
            took.append(time.process_time() - began)
    assert min(took) < HANDSHAKE_CPU_SECONDS
