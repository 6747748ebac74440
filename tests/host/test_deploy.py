"""What `deploy/` holds works with the real servers: a crawler goes through them to a real host and back."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.servers import apache, nginx
from tests.servers.nginx import free_ports

from sterna.errors import WireError
from sterna.host.config import Policy
from sterna.host.keyring import Keyring
from sterna.host.policy import ALLOWED, allow, read_policy
from sterna.model import Budget, Crawler, Known, Program, Source, Target
from sterna.transport.http import HttpConfig, HttpTransport
from sterna.transport.interface import Call
from sterna.web.clock import SystemClock
from sterna.web.dns import DnsResolver
from sterna.wire.discovery import Offer, decode_offer
from sterna.wire.handshake import Greeting, Session
from sterna.wire.keys import Identity
from sterna.wire.known import pack_known
from sterna.wire.orders import Agent, Send, seal_order
from sterna.wire.stream import Came, Ending, LineCame, ParcelCame, StreamReader

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
STERNA = [sys.executable, "-m", "sterna.cli"]
PAGES = 12
RULE = '(defrule note (page (url ?url) (status 200)) => (log-line (str-cat "seen " ?url)) (keep))'


@dataclass(frozen=True, slots=True)
class Deployed:
    """A site with a host behind its web server, and the folder of everything."""

    site: str
    folder: Path
    server_pid: int
    home: Identity = field(default_factory=Identity.new)

    @property
    def keyring(self) -> Keyring:
        return Keyring(self.folder / "keys")

    def arguments(self) -> list[str]:
        return [
            f"--site={self.site}",
            f"--root={self.folder / 'site'}",
            f"--keys={self.folder / 'keys'}",
            f"--state={self.folder / 'state'}",
            f"--policy={self.folder / 'policy.toml'}",
            f"--endpoint={self.site}/sterna",
        ]

    def let_home_in(self) -> None:
        allow(self.folder / "keys" / ALLOWED, self.home.public, "ada")


def snippet(name: str, **changes: str) -> str:
    """A file of deploy/ with other places than its own; each must be in it."""
    text = (DEPLOY / name).read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def make_site(folder: Path) -> None:
    (folder / "site").mkdir(parents=True)
    links = "".join(f'<a href="/{number}.html">x</a>' for number in range(PAGES - 1))
    (folder / "site" / "index.html").write_text(f"<title>Front</title>{links}")
    for number in range(PAGES - 1):
        (folder / "site" / f"{number}.html").write_text(f"<title>{number}</title><p>{'tern ' * 100}")
    # So slow that a stream can be watched.
    (folder / "policy.toml").write_text("delay_seconds = 0.25\nconnections = 1\n")


@contextmanager
def behind_a_proxy(kind: str, folder: Path) -> Iterator[Deployed]:
    """A host that runs, as little allowed as its unit says, and a server before it."""
    make_site(folder)
    (port,) = free_ports(1)
    address = {"127.0.0.1:8470": f"127.0.0.1:{port}"}
    if kind == "nginx":
        (folder / "sterna.conf").write_text(snippet("nginx.conf", **address))
        # Servers close hidden names like this; the snippet must come through it.
        extra = f"location ~ /\\. {{ deny all; }} include {folder}/sterna.conf;"
        opened = nginx.serve(folder / "site", folder=folder / "server", extra=extra)
        with opened as server, running_host(Deployed(server.url, folder, server.pid), port) as deployed:
            yield deployed
    else:
        extra = snippet("apache-proxy.conf", **address)
        front = apache.serve(folder / "site", folder=folder / "server", extra=extra, is_ours=True)
        with front as apache_server:
            deployed = Deployed(apache_server.url, folder, apache_server.pid)
            with running_host(deployed, port):
                yield deployed


@contextmanager
def running_host(deployed: Deployed, port: int) -> Iterator[Deployed]:
    command = [*STERNA, "host", "run", *deployed.arguments(), f"--listen=127.0.0.1:{port}"]
    with subprocess.Popen([*WALLS, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                if line.startswith("listens"):
                    break
            assert process.poll() is None
            deployed.let_home_in()
            yield deployed
        finally:
            process.terminate()
            process.communicate(timeout=30)


# What the unit has that can be had without systemd: no new privileges, no memory that can be written and run.
WALLS = [
    sys.executable,
    "-c",
    "import os, sys\n"
    "from sterna.runtime import kernel\n"
    "kernel.prctl(38, 1)\n"  # PR_SET_NO_NEW_PRIVS
    "kernel.prctl(65, 1)\n"  # PR_SET_MDWE
    "os.execv(sys.argv[1], sys.argv[1:])\n",
]


@contextmanager
def as_cgi(folder: Path) -> Iterator[Deployed]:
    """A host that Apache starts for each request."""
    make_site(folder)
    programs = folder / "programs"
    programs.mkdir()
    extra = snippet("apache-cgi.conf", **{"/usr/lib/cgi-bin": str(programs)})
    front = apache.serve(folder / "site", folder=folder / "server", extra=extra, is_ours=True)
    with front as server:
        deployed = Deployed(server.url, folder, server.pid)
        command = [*STERNA, "host", "cgi", str(programs / "sterna"), *deployed.arguments()]
        subprocess.run(command, check=True, capture_output=True)
        deployed.let_home_in()
        yield deployed


@asynccontextmanager
async def transport() -> AsyncIterator[HttpTransport]:
    clock = SystemClock()
    resolver = DnsResolver(clock)
    opened = HttpTransport(HttpConfig(), resolver=resolver, clock=clock)
    opened.let_private("127.0.0.1")
    try:
        yield opened
    finally:
        await opened.close()
        await resolver.close()


async def whole(line: HttpTransport, address: str, call: Call) -> bytes:
    async with line.exchange(address, call) as answer:
        return b"".join([chunk async for chunk in answer.chunks])


async def offer_of(line: HttpTransport, deployed: Deployed) -> Offer:
    return decode_offer(await whole(line, deployed.site, Call("discover")), deployed.site)


async def greet(line: HttpTransport, deployed: Deployed, offer: Offer) -> Session:
    now = SystemClock().now()
    greeting = Greeting.begin(deployed.home, home="ada", audience=deployed.site, wants=Budget(), now=now)
    body = await whole(line, offer.endpoint, Call("hello", greeting.body))
    return greeting.finish(body, deployed.keyring.read("host").public)


@dataclass
class Trip:
    """What came back from a crawler, and when."""

    reader: StreamReader
    came: list[tuple[float, Came]] = field(default_factory=list)
    is_live_only: bool = False

    def times(self, kind: type[Came]) -> list[float]:
        return [seconds for seconds, each in self.came if isinstance(each, kind)]

    @property
    def lines(self) -> list[str]:
        return [each.text for _, each in self.came if isinstance(each, LineCame)]

    @property
    def ending(self) -> Ending:
        self.reader.finish()
        last = self.came[-1][1]
        assert isinstance(last, Ending), last
        return last


async def travel(
    deployed: Deployed, *, known: bytes = b"", rules: str = "", watch: Callable[[], None] | None = None
) -> Trip:
    """Discovery, greeting, order, and the stream to its end; `watch` is called when the first parcel came."""
    async with transport() as line:
        offer = await offer_of(line, deployed)
        session = await greet(line, deployed, offer)
        order = Send(
            visit="v1",
            part="/",
            epoch=1,
            agent=Agent("Tern/1", "Tern"),
            starts=(Target(f"{deployed.site}/"),),
            crawler=Crawler(program=Program(rules=(Source("note.clp", rules),) if rules else ())),
            known=known,
        )
        trip = Trip(StreamReader(session.keys.stream, max_bytes=1 << 30), is_live_only=offer.is_live_only)
        body = seal_order(session.keys, session.ticket, order)
        began = time.monotonic()
        async with line.exchange(offer.endpoint, Call("order", body)) as answer:
            async for chunk in answer.chunks:
                new = [(time.monotonic() - began, each) for each in trip.reader.feed(chunk)]
                trip.came += new
                if watch and any(isinstance(each, ParcelCame) for _, each in new):
                    watch()
                    watch = None
    return trip


@pytest.fixture(params=["nginx", "apache", "cgi"])
def deployed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployed]:
    opened = as_cgi(tmp_path) if request.param == "cgi" else behind_a_proxy(request.param, tmp_path)
    with opened as made:
        yield made


def test_crawler_goes_through_the_server_and_its_pages_come_as_they_are_found(deployed: Deployed) -> None:
    trip = asyncio.run(travel(deployed, rules=RULE))

    assert (trip.ending.pages, trip.ending.ended) == (PAGES, "finished")
    assert len(trip.lines) == PAGES  # its rules ran in a jailed cell
    assert trip.times(ParcelCame)[0] < trip.times(Ending)[0] - 1.0
    assert trip.is_live_only == (deployed.folder / "programs").exists()


def test_order_of_some_megabytes_comes_through(deployed: Deployed) -> None:
    fingerprints = sorted(int.from_bytes(os.urandom(8), signed=True) for _ in range(400_000))
    packed = pack_known(
        Known(b"".join(each.to_bytes(8, sys.byteorder, signed=True) for each in fingerprints))
    )
    assert len(packed) > 2_000_000  # twice what nginx takes without a word

    assert asyncio.run(travel(deployed, known=packed)).ending.pages == PAGES


def test_killed_cgi_program_is_seen_as_cut_off_though_the_answer_ends_cleanly(tmp_path: Path) -> None:
    with as_cgi(tmp_path) as deployed:
        trip = asyncio.run(travel(deployed, watch=lambda: kill_programs(deployed)))

    assert trip.times(ParcelCame)
    with pytest.raises(WireError, match="cut off"):
        trip.reader.finish()


def kill_programs(deployed: Deployed) -> None:
    """Kills the CGI programs that this Apache started."""
    program = str(deployed.folder / "programs" / "sterna")
    killed = [pid for pid in descendants(deployed.server_pid) if program in command_of(pid)]
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def test_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    unit = tmp_path / "sterna-host.service"
    unit.write_text(snippet("sterna-host.service", **{"/opt/sterna/bin/sterna": sys.executable}))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )

    ours = [line for line in done.stderr.splitlines() if "sterna" in line]
    assert (ours, done.returncode) == ([], 0)


def test_unit_leaves_little_open(tmp_path: Path) -> None:
    unit = tmp_path / "sterna-host.service"
    unit.write_text(snippet("sterna-host.service"))

    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=15", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-400:]


def test_policy_is_one_that_a_host_reads() -> None:
    policy = read_policy(DEPLOY / "policy.toml")

    assert policy == Policy(closed=("/internal/", "/intranet/"))


def test_readme_names_every_file() -> None:
    text = (DEPLOY / "README.md").read_text()

    assert {path.name for path in DEPLOY.iterdir() if f"`{path.name}`" not in text} == {"README.md"}
