"""What a scenario is played on: sites, hosts that can be started again, a crawler with rules, a database."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from tests.crawl.hosting import free_port
from tests.servers.pages import Page, PageServer
from tests.servers.plain import Reply
from tests.servers.postgres import PostgresServer
from tests.servers.synthetic import SyntheticWeb, path

from sterna.wire.discovery import WELL_KNOWN

COMMAND = (sys.executable, "-m", "sterna")
FIRST, SECOND = "127.0.9.1", "127.0.9.2"
PAGES = 240  # of a site
PAGE_BYTES = 8_000
LATENCY_SECONDS = 0.03  # a crawl takes some seconds, in which much can happen
START_SECONDS = 60.0

# The counter shows whether a page was judged twice or not at all: it goes on from the state of each parcel.
RULES = """
(deftemplate count (slot pages))
(deftemplate icy (slot path) (slot words))
(deffacts start (count (pages 0)))

(defrule refuse (request (url ?url&:(like ?url "%/refused.html"))) => (refuse ?url))

(defrule tell (page (url ?url) (status ?status)) => (emit answer (url-path ?url) ?status (text-count "tern")))

(defrule note (page (url ?url) (status 200)) (test (text-has "ice"))
   => (assert (icy (path (url-path ?url)) (words (text-count "ice")))))

(defrule add (page (url ?url)) (not (added ?url)) ?count <- (count (pages ?n))
   => (assert (added ?url)) (modify ?count (pages (+ ?n 1))))
"""

TABLES = {
    "page_row": "url text, title text, size bigint",
    "link_row": "from_url text, to_url text, words text",
    "fact_row": "template text, data text",
}
STORAGE = """
[connections.main]
url = "{url}"

[commands.AddPage]
connection = "main"
sql = "INSERT INTO page_row (url, title, size) VALUES (:url, :title, :size)"

[commands.AddLink]
connection = "main"
sql = "INSERT INTO link_row SELECT :from_url, :to_url, :words"

[commands.AddFact]
connection = "main"
sql = "INSERT INTO fact_row (template, data) VALUES (:template, :data)"

[rules.everything]
[[rules.everything.store]]
query = "SELECT url, title, size FROM page"
commands = ["AddPage"]
[[rules.everything.store]]
query = "SELECT from_url, to_url, text AS words FROM link"
commands = ["AddLink"]
[[rules.everything.store]]
query = "SELECT template, data::VARCHAR AS data FROM fact WHERE kind = 'row'"
commands = ["AddFact"]
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Which sites are crawled, and which of them have a host."""

    name: str
    sites: tuple[str, ...]
    hosted: tuple[str, ...] = ()


SCENARIOS = (
    Scenario("here", (FIRST,)),
    Scenario("at a host", (SECOND,), (SECOND,)),
    Scenario("both", (FIRST, SECOND), (SECOND,)),
)


@contextmanager
def serving() -> Iterator[PageServer]:
    """Both sites, until the block ends."""
    sites = {address: make_site(seed) for seed, address in enumerate((FIRST, SECOND))}
    with PageServer(sites, latency_seconds=LATENCY_SECONDS).run_in_thread() as server:
        yield server


def make_site(seed: int) -> dict[str, Page]:
    """A tree of pages with links across, a redirect, a dead link, and one that robots.txt closes."""
    web = SyntheticWeb(sites=1, pages_per_site=PAGES, mean_degree=6, bytes_per_page=PAGE_BYTES, seed=seed)
    pages: dict[str, Page] = {
        path(number): Reply(body=web.page(0, number, port=0)) for number in range(PAGES)
    }
    odd = "".join(f'<a href="{to}">{to}</a>' for to in ("/moved", "/closed/x.html", "/gone", "/refused.html"))
    pages["/"] = Reply(body=web.page(0, 0, port=0) + odd.encode())
    pages["/moved"] = Reply(301, {"Location": "/target.html"})
    pages["/target.html"] = "<!doctype html><title>Target</title><p>tern on ice"
    pages["/refused.html"] = "<!doctype html><title>Refused by a rule"
    pages["/robots.txt"] = Reply(
        headers={"Content-Type": "text/plain"}, body=b"User-agent: *\nDisallow: /closed/\n"
    )
    return pages


@dataclass(slots=True)
class Host:
    """`sterna host run` beside a site: started again with the same port and folders."""

    server: PageServer
    address: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None  # changed by start()

    def start(self) -> None:
        """Starts it, and does not wait until it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        policy = self.folder / "policy.toml"
        policy.write_text("[load]\nmachine = 0\n")  # the bench itself keeps the machine busy
        site = self.server.url(self.address, "")
        with (self.folder / "host.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(*COMMAND, "host", "run", "--allow-self", "--site", site, "--upstream", site),
                    *("--endpoint", f"http://{self.address}:{self.port}/sterna"),
                    *("--listen", f"{self.address}:{self.port}", "--policy", str(policy)),
                    *("--keys", str(self.folder / "keys"), "--state", str(self.folder / "state")),
                ],
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )

    def announce(self) -> None:
        """Waits until it answers, and has the site name it."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                url = f"http://{self.address}:{self.port}{WELL_KNOWN}"
                with urllib.request.urlopen(url, timeout=5) as answer:
                    offer = answer.read().decode()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        pages = self.server.sites[self.address]
        assert isinstance(pages, dict)
        pages[WELL_KNOWN] = offer


@dataclass(slots=True)
class Stage:
    """One crawl: its folder, its database, its command."""

    folder: Path
    scenario: Scenario
    server: PageServer
    postgres: PostgresServer
    database: str = ""  # set by prepare(), as are the hosts
    hosts: list[Host] = field(default_factory=list)

    @property
    def collection(self) -> Path:
        return self.folder / "c"

    def prepare(self) -> None:
        """Writes the crawler and its storage rules, makes the tables, starts the hosts."""
        self.collection.mkdir(parents=True)
        seeds = ", ".join(f'"{self.server.url(address)}"' for address in self.scenario.sites)
        (self.folder / "chaos.clp").write_text(RULES)
        (self.folder / "chaos.toml").write_text(
            f'name = "chaos"\nseeds = [{seeds}]\nrules = ["chaos.clp"]\n[politeness]\ndelay = 0\n'
        )
        self.database = self.postgres.new_database()
        (self.collection / "storage.toml").write_text(STORAGE.format(url=self.postgres.url(self.database)))
        tables = (f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items())
        self.postgres.run(self.database, *tables)
        for address in self.scenario.sites:  # of an earlier round
            pages = self.server.sites[address]
            assert isinstance(pages, dict)
            pages.pop(WELL_KNOWN, None)
        for address in self.scenario.hosted:
            host = Host(self.server, address, self.folder / "host", free_port(address))
            host.start()
            self.hosts.append(host)
            host.announce()

    def has_database(self) -> bool:
        """False while PostgreSQL recovers from a kill."""
        try:
            self.postgres.connect(self.database).close()
        except psycopg.OperationalError:
            return False
        return True

    def crawl(self, *flags: str) -> list[str]:
        """The command, the same each time."""
        keys = self.folder / "host" / "keys"
        given = (str(self.folder / "chaos.toml"), "--into", str(self.collection), "--keys", str(keys))
        return [*COMMAND, "crawl", *given, "--warc", "--index", "--json", "--concurrency", "8", *flags]

    def afterwards(self) -> list[list[str]]:
        """The commands that do what a killed follower left."""
        return [
            [*COMMAND, "index", str(self.collection)],
            [*COMMAND, "storage", "run", str(self.collection)],
        ]


def environment() -> Mapping[str, str]:
    """Of every command: no colours, and the same code as this process."""
    return {**os.environ, "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
