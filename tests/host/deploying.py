"""A host set up by the files of `deploy/` behind the real servers, and a home that sends a crawler there."""

import itertools
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.crawl.running import call
from tests.servers import apache, nginx
from tests.servers.nginx import free_ports
from tests.transport.calling import line_to_hosts, whole

from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.model import Budget, Crawler, Program, Source, Target
from sterna.transport.http import HttpTransport
from sterna.transport.interface import Call
from sterna.web.clock import SystemClock
from sterna.wire.discovery import Offer, decode_offer
from sterna.wire.handshake import Greeting, Session
from sterna.wire.keys import Identity
from sterna.wire.orders import Agent, Send, seal_order
from sterna.wire.stream import Came, Ending, LineCame, ParcelCame, StreamReader

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
STERNA = [sys.executable, "-m", "sterna"]
PAGES = 12


@dataclass(frozen=True, slots=True)
class Deployed:
    """A site with a host behind its web server, and the folder of everything."""

    site: str
    folder: Path
    server_pid: int
    log_path: Path
    page_port: int = 0  # of the owner's status page; 0: there is none
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
        assert old in text, f"{name} does not have {old}"
        text = text.replace(old, new)
    return text


def command_in_unit(name: str, deployed: Deployed, **changes: str) -> list[str]:
    """What a unit starts, at this site and with these places instead of its own."""
    places = {
        "https://www.example.org": deployed.site,
        "/var/www/html": str(deployed.folder / "site"),
        "/etc/sterna": str(deployed.folder),
        "/var/lib/sterna": str(deployed.folder),
    }
    text = snippet(name, **(places | changes)).replace("\\\n", " ")
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    program, *arguments = shlex.split(command)
    assert program == "/opt/sterna/bin/sterna"
    return [*STERNA, *arguments]


def make_site(folder: Path, *, delay_seconds: float = 0.0) -> None:
    (folder / "site").mkdir(parents=True)
    links = "".join(f'<a href="/{number}.html">x</a>' for number in range(PAGES - 1))
    (folder / "site" / "index.html").write_text(f"<title>Front</title>{links}")
    for number in range(PAGES - 1):
        (folder / "site" / f"{number}.html").write_text(f"<title>{number}</title><p>{'tern ' * 100}")
    # Whatever else runs on the machine of the tests.
    rules = f"delay_seconds = {delay_seconds}\nconnections = 1\n[load]\nmachine = 0\n"
    (folder / "policy.toml").write_text(rules)


# -- servers -----------------------------------------------------------------------------------------------


@contextmanager
def behind(kind: str, folder: Path, *, delay_seconds: float = 0.0) -> Iterator[Deployed]:
    """A host behind nginx, behind Apache, or as a CGI program of Apache."""
    make_site(folder, delay_seconds=delay_seconds)
    with as_cgi(folder) if kind == "cgi" else behind_a_proxy(kind, folder) as deployed:
        yield deployed


@contextmanager
def behind_a_proxy(kind: str, folder: Path) -> Iterator[Deployed]:
    """A host that runs, as little allowed as its unit says, and a server before it."""
    port, page_port = free_ports(2)
    address = {"127.0.0.1:8470": f"127.0.0.1:{port}"}
    log = folder / "combined.log"
    if kind == "nginx":
        (folder / "sterna.conf").write_text(snippet("nginx.conf", **address))
        # Servers close hidden names like this; the snippet must come through it.
        hidden = "location ~ /\\. { deny all; }"
        extra = f"access_log {log} combined; {hidden} include {folder}/sterna.conf;"
        with nginx.serve(folder / "site", folder=folder / "server", extra=extra) as server:
            deployed = Deployed(server.url, folder, server.pid, log, page_port)
            with running_host(deployed, port):
                yield deployed
    else:
        extra = snippet("apache-proxy.conf", **address) + _apache_log(log)
        front = apache.serve(folder / "site", folder=folder / "server", extra=extra, is_ours=True)
        with front as apache_server:
            deployed = Deployed(apache_server.url, folder, apache_server.pid, log, page_port)
            with running_host(deployed, port):
                yield deployed


def _apache_log(path: Path) -> str:
    """Apache's format `combined`, as Debian's configuration names it."""
    fields = '%h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"'
    return f'\nLogFormat "{fields}" combined\nCustomLog {path} combined\n'


@contextmanager
def running_host(deployed: Deployed, port: int) -> Iterator[None]:
    ports = {"127.0.0.1:8470": f"127.0.0.1:{port}", "127.0.0.1:8471": f"127.0.0.1:{deployed.page_port}"}
    with started([*WALLS, *command_in_unit("sterna-host.service", deployed, **ports)]):
        deployed.let_home_in()
        yield


@contextmanager
def started(command: list[str]) -> Iterator[None]:
    """A host that runs, from when it listens until the block ends."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                if line.startswith("listens"):
                    break
            assert process.poll() is None
            yield
        finally:
            process.terminate()
            process.communicate(timeout=30)


# What the unit has that can be had without systemd: no new privileges, no memory that can be written and run.
WALLS = [
    sys.executable,
    "-c",
    "import os, sys\n"
    "from sterna.runtime.cell import kernel\n"
    "kernel.prctl(38, 1)\n"  # PR_SET_NO_NEW_PRIVS
    "kernel.prctl(65, 1)\n"  # PR_SET_MDWE
    "os.execv(sys.argv[1], sys.argv[1:])\n",
]


@contextmanager
def as_cgi(folder: Path) -> Iterator[Deployed]:
    """A host that Apache starts for each request."""
    programs, log = folder / "programs", folder / "combined.log"
    programs.mkdir()
    extra = snippet("apache-cgi.conf", **{"/usr/lib/cgi-bin": str(programs)}) + _apache_log(log)
    front = apache.serve(folder / "site", folder=folder / "server", extra=extra, is_ours=True)
    with front as server:
        deployed = Deployed(server.url, folder, server.pid, log)
        written = call(["host", "cgi", str(programs / "sterna"), *deployed.arguments()])
        assert written.returncode == 0, written.stderr
        deployed.let_home_in()
        yield deployed


# -- a home ------------------------------------------------------------------------------------------------


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


_numbers = itertools.count(1)  # of visits: several may be sent to one host


async def travel(
    deployed: Deployed, *, known: bytes = b"", rules: str = "", watch: Callable[[], None] | None = None
) -> Trip:
    """Discovery, greeting, order, and the stream to its end; `watch` is called when the first parcel came."""
    async with line_to_hosts() as line:
        offer = await offer_of(line, deployed)
        session = await greet(line, deployed, offer)
        order = Send(
            visit=f"v{next(_numbers)}",
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
