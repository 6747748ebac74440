"""`sterna host dry-run`: the crawlers it takes, what it writes, and that it speaks to nobody but the site."""

import json
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_host_commands import without_extra
from tests.crawl.running import COMMAND, sterna
from tests.host.knocking import SITE, config_of, write_site

from sterna.api.crawlers import read_crawler
from sterna.api.dry_run import order_of
from sterna.api.dry_run import terms_of as terms_for
from sterna.crawler.pack import PackedCrawler, SavedProgress, encode
from sterna.errors import UsageError
from sterna.host.policy.policy import Policy, read_policy
from sterna.host.policy.terms import terms_of
from sterna.model import Target
from sterna.web.urls import fingerprint
from sterna.wire.known import unpack_known

SPEC = """
name = "titles"
[keep]
fields = ["title"]
"""
POLICY = """
closed = ["/3.html"]
[load]
machine = 0
[homes.ada]
budget = { pages = 4 }
[homes.eve]
never = true
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write_site(tmp_path / "site")
    (tmp_path / "titles.toml").write_text(SPEC)
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def dry_run(folder: Path, *words: str, command: Any = sterna) -> "subprocess.CompletedProcess[str]":
    given = ("--site", SITE, "--root", str(folder / "site"), "--check", "never")
    files = ("--out", str(folder / "out.jsonl"), "--keys", str(folder / "keys"))
    result: subprocess.CompletedProcess[str] = command("host", "dry-run", *words, *given, *files)
    return result


def lines_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("crawler", [f"{SITE}/", "titles.toml", "titles.crawler"])
def test_crawler_is_given_as_url_spec_or_file(site: Path, crawler: str) -> None:
    if crawler.endswith(".crawler"):
        assert sterna("pack", site / "titles.toml", "--into", site / crawler).returncode == 0
    result = dry_run(site, crawler if "://" in crawler else str(site / crawler))
    assert result.returncode == 0, result.stderr
    pages = lines_of(site, "page")
    assert len(pages) == 13
    assert all("title" in page for page in pages)
    assert all(("text" in page) is (crawler == f"{SITE}/") for page in pages)
    assert "13 pages" in result.stdout
    assert "nothing was sent" in result.stdout
    assert "a home could send it again" not in result.stdout
    assert sorted(path.name for path in site.iterdir() if path.suffix == ".new") == []


def test_files_of_other_kinds_stay_unless_they_are_added(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (site / "site" / "index.html").write_text("<a href=data.json>x</a><a href=id_rsa>x</a>")
    for name in ("data.json", "id_rsa"):
        (site / "site" / name).write_text("{}")

    without = dry_run(site, f"{SITE}/")
    statuses = {page["url"]: page["status"] for page in lines_of(site, "page")}
    with_json = dry_run(site, f"{SITE}/", "--kind", "json")

    assert statuses == {f"{SITE}/": 200, f"{SITE}/data.json": 404, f"{SITE}/id_rsa": 404}
    assert "files: only those of kinds that sites publish; --kind EXT adds others" in without.stdout
    assert "/data.json is withheld: 'json' is not a kind of file that sites publish" in caplog.text
    assert "files: only those of kinds that sites publish and json; --kind EXT" in with_json.stdout
    assert {page["url"]: page["status"] for page in lines_of(site, "page")}[f"{SITE}/data.json"] == 200


def test_terms_of_a_home_hold(site: Path) -> None:
    words = (f"{SITE}/", "--policy", str(site / "policy.toml"))
    anybody = json.loads(dry_run(site, *words, "--json").stdout)
    assert (anybody["pages"], anybody["ended"]) == (12, "finished")
    assert not any(page["url"].endswith("/3.html") and page.get("text") for page in lines_of(site, "page"))
    ada = dry_run(site, *words, "--home", "ada").stdout
    assert "4 pages" in ada
    assert "ended: budget" in ada
    assert "a home could send it again for the rest" in ada
    config = config_of(site, policy=read_policy(site / "policy.toml"))
    with pytest.raises(UsageError, match="the policy never admits eve"):
        terms_for(config, "eve")
    with pytest.raises(UsageError, match="no home 'bob' is allowed"):
        terms_for(config, "bob")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://other.test/"], "the crawler has no start URL on"),
        (["nowhere.toml"], "nowhere.toml"),
        (["a.toml", "b.toml"], "one crawler at a time"),
        (["not a url"], "is not a web address"),
    ],
)
def test_wrong_crawlers_are_told(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        order_of(words, SITE, terms=terms_of(Policy(), "any"), max_pages=0)


def test_refusal_is_one_line_and_leaves_no_file(site: Path) -> None:
    result = dry_run(site, "http://other.test/")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert not list(site.glob("out*"))


def test_packed_crawler_goes_on_where_it_ended(site: Path) -> None:
    """What it has seen it does not fetch again, and it begins with what it has still to fetch."""
    crawler = read_crawler(site / "titles.toml").crawler
    seen = sorted(fingerprint(f"{SITE}/{n}.html") for n in range(10))
    frontier = (Target(f"{SITE}/10.html", depth=1), Target("http://other.test/", depth=1))
    progress = SavedProgress(frontier=frontier, seen=array("q", seen).tobytes())
    (site / "c.crawler").write_bytes(encode(PackedCrawler(crawler=crawler, progress=progress)))
    order = order_of([str(site / "c.crawler")], SITE, terms=terms_of(Policy(), "any"), max_pages=7)
    assert order.starts == frontier[:1]
    assert order.budget.pages == 7
    assert len(unpack_known(order.known).fingerprints) == 80


def test_file_that_cannot_be_written_is_told(site: Path) -> None:
    (site / "out.jsonl").symlink_to("/dev/full")
    result = dry_run(site, f"{SITE}/")
    assert result.returncode == 6
    assert "the disk is full" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_base_install_does_without_sql(site: Path) -> None:
    """What the extra brings is only needed where a crawler's description holds SQL."""

    def command(*words: str) -> "subprocess.CompletedProcess[str]":
        return without_extra(site, *words)

    plain = dry_run(site, str(site / "titles.toml"), command=command)
    assert plain.returncode == 0, plain.stderr
    (site / "sql.toml").write_text(f"{SPEC}[select]\nwhere = \"title LIKE '%3%'\"\n")
    result = dry_run(site, str(site / "sql.toml"), command=command)
    assert result.returncode == 2
    assert result.stderr == "sterna: this command needs the extra 'home': scripts/install home\n"


# -- the network -------------------------------------------------------------------------------------------

# In a network of its own, with nothing but a loopback, the kernel counts what is asked of it: whoever tried
# to reach any other machine, or a name server, would be counted under OutNoRoutes.
WATCHED = """
import fcntl, http.server, os, socket, struct, subprocess, sys, threading
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
    fcntl.ioctl(device, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))  # up and running
class Site(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    accepted = 0
    def setup(self):
        Site.accepted += 1
        super().setup()
    def log_message(self, *words): pass
os.chdir("site")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 80), Site)
threading.Thread(target=server.serve_forever, daemon=True).start()
trap = socket.create_server(("127.0.0.1", 8470))  # where a host would listen, or a home
trap.setblocking(False)
def counts():
    found = {}
    lines = [line.split() for line in open("/proc/net/snmp")]
    for names, values in zip(lines[::2], lines[1::2]):
        found |= {names[0] + name: int(value) for name, value in zip(names[1:], values[1:])}
    return found
before = counts()
code = subprocess.call(sys.argv[1:])
after = counts()
try:
    trap.accept()
    print("somebody came to the trap")
except BlockingIOError:
    pass
news = {name: after[name] - before[name] for name in before}
opens = news["Tcp:ActiveOpens"]
print("RESULT", code, opens - Site.accepted, Site.accepted, news["Udp:OutDatagrams"], news["Ip:OutNoRoutes"])
"""


def watched(folder: Path, *command: str) -> list[int]:
    """Exit code, TCP connections to others than the site, to the site, datagrams, calls for elsewhere."""
    (folder / "watched.py").write_text(WATCHED)
    result = subprocess.run(
        ["unshare", "--net", sys.executable, "watched.py", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if "Operation not permitted" in result.stderr:
        pytest.skip("no network of one's own can be had here")
    assert "RESULT" in result.stdout, result.stderr
    return [int(word) for word in result.stdout.split("RESULT")[1].split()]


def test_nobody_but_the_site_is_asked_for_anything(site: Path) -> None:
    given = ["--site", SITE, "--upstream", "http://127.0.0.1", "--out", str(site / "out.jsonl")]
    command = [*COMMAND, "host", "dry-run", f"{SITE}/", *given, "--keys", str(site / "keys")]
    code, others, of_site, datagrams, elsewhere = watched(site, *command)
    assert (code, others, datagrams, elsewhere) == (0, 0, 0, 0)
    assert of_site > 0
    assert len(lines_of(site, "page")) == 13


def test_without_a_web_server_nothing_is_asked_at_all(site: Path) -> None:
    """But whether there is one after all: its rules would not hold."""
    given = ["--site", "http://site.test:8080", "--root", str(site / "site"), "--check", "never"]
    command = [
        *COMMAND,
        "host",
        "dry-run",
        "http://site.test:8080/",
        *given,
        "--out",
        str(site / "out.jsonl"),
    ]
    code, others, of_site, datagrams, elsewhere = watched(site, *command, "--keys", str(site / "keys"))
    assert (code, of_site, datagrams, elsewhere) == (0, 0, 0, 0)
    assert others <= 1
    assert len(lines_of(site, "page")) == 13


def test_the_watch_sees_who_does_ask(site: Path) -> None:
    """What the two tests above rest on."""
    asks = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError: pass"
    asks_name = "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\ns.sendto(b'x', ('127.0.0.53', 53))"
    asks_trap = "import socket\nsocket.create_connection(('127.0.0.1', 8470), 2)"
    assert watched(site, sys.executable, "-c", asks)[4] > 0
    assert watched(site, sys.executable, "-c", asks_name)[3] == 1
    assert watched(site, sys.executable, "-c", asks_trap)[1] == 1
