"""The status page: what it shows, to whom, and that nothing that strangers wrote does anything in it."""

import asyncio
import base64
import hashlib
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.clocks import StillClock

from sterna.host.owner.audit import AUDIT, Audit
from sterna.host.owner.page import REFRESH_SECONDS, format_page, open_page
from sterna.host.owner.receipts import HomeTotal, Total
from sterna.host.owner.status import HostStatus, VisitStatus
from sterna.model import Budget

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[2J&amp;'
SPARED = HomeTotal(
    EVIL, "key", Total(visits=3, countersigned=2, spared_requests=1234, spared_bytes=5678, cpu_seconds=9.0)
)


def status_of(**fields: object) -> HostStatus:
    visit = VisitStatus(
        visit="v1",
        home="ed25519:x",
        name=EVIL,
        crawler=EVIL,
        state="running",
        since=900.0,
        pages=50,
        cpu_seconds=1.0,
        limits=Budget(pages=200, seconds=600.0, cpu_seconds=4.0, memory_bytes=1000),
        paused=EVIL,
    )
    given = {"site": "http://site.test", "version": "1", "began": 0.0, "now": 1000.0, "pid": 1}
    return HostStatus(**(given | {"visits": (visit,), "load": EVIL, "doors": EVIL, "paused": EVIL} | fields))  # type: ignore[arg-type]


class Elements(HTMLParser):
    """Which elements with which attributes a page has, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@asynccontextmanager
async def page_at(audit: Path) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with open_page(status_of, audit, listener, spared=lambda: [SPARED]):
            yield listener.getsockname()[1]


async def request(port: int, head: str) -> tuple[str, dict[str, str], str]:
    """Status line, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.replace("\n\n", "\nConnection: close\n\n").replace("\n", "\r\n").encode())
    raw = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    top, _, body = raw.decode().partition("\r\n\r\n")
    first, *fields = top.split("\r\n")
    return first, {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}, body


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    log = Audit(tmp_path / AUDIT, clock=StillClock())
    log.note("visit-taken", home=EVIL, crawler=EVIL)
    return log.path


async def test_page_shows_visits_limits_log_and_receipts(audit: Path) -> None:
    async with page_at(audit) as port:
        first, _, body = await request(port, f"GET / HTTP/1.1\nHost: 127.0.0.1:{port}\n\n")
    assert first == "HTTP/1.1 200 OK"
    for shown in (
        "Host of http://site.test",
        "50 of 200",
        "1.0 s of 4.0 s",
        "visit-taken",
        "1,234",
        "5.7 kB",
    ):
        assert shown in body


async def test_nothing_that_strangers_wrote_becomes_markup(audit: Path) -> None:
    async with page_at(audit) as port:
        _, _, body = await request(port, f"GET / HTTP/1.1\nHost: localhost:{port}\n\n")
    seen = Elements()
    seen.feed(body)
    assert not seen.tags & {"script", "img", "link", "iframe", "form", "a", "object", "svg"}
    own = {"lang", "charset", "http-equiv", "name", "content", "class", "value", "aria-hidden"}
    assert seen.attributes <= own
    assert "<script>alert(1)</script>" in seen.text
    assert "\x1b" not in body
    assert "\u202e" not in body
    assert r"\u202e" in body


async def test_headers_forbid_everything_but_the_pages_own_style(audit: Path) -> None:
    async with page_at(audit) as port:
        _, headers, body = await request(port, "GET / HTTP/1.1\nHost: [::1]\n\n")
    style = re.search("<style>(.*?)</style>", body)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert f"style-src 'sha256-{digest}'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert f'http-equiv="refresh" content="{REFRESH_SECONDS}"' in body


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1\nHost: evil.example\n\n", 403),
        ("GET / HTTP/1.1\nHost: 127.0.0.1.evil.example:80\n\n", 403),
        ("GET / HTTP/1.1\nHost: 192.0.2.1\n\n", 403),
        ("GET / HTTP/1.0\n\n", 403),
        ("GET / HTTP/1.1\n\n", 400),
        ("GET / HTTP/1.1\nHost: localhost\nHost: evil.example\n\n", 400),
        ("POST / HTTP/1.1\nHost: localhost\n\n", 405),
        ("GET /../etc/passwd HTTP/1.1\nHost: localhost\n\n", 404),
        ("GET http://evil.example/ HTTP/1.1\nHost: localhost\n\n", 404),
        ("?\n\n", 400),
    ],
)
async def test_others_are_shown_nothing(audit: Path, head: str, status: int) -> None:
    async with page_at(audit) as port:
        first, _, body = await request(port, head)
    assert first.startswith(f"HTTP/1.1 {status} ")
    assert "site.test" not in body


async def test_head_has_no_body(audit: Path) -> None:
    async with page_at(audit) as port:
        first, headers, body = await request(port, "HEAD / HTTP/1.1\nHost: 127.0.0.2\n\n")
    assert first.endswith("200 OK")
    assert int(headers["content-length"]) > 500
    assert body == ""


async def test_endless_head_is_hung_up_on(audit: Path) -> None:
    async with page_at(audit) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000)
        assert (await asyncio.wait_for(reader.read(), 10))[:12] in (b"", b"HTTP/1.1 400")
        writer.close()


def test_page_of_an_idle_host() -> None:
    page = format_page(status_of(visits=(), load="", doors="", paused=""), [], ())
    assert "<p>None.</p>" in page
    assert "No receipts yet" in page
    assert "closed" not in page.partition("</style>")[2]


def test_very_many_visits_make_no_endless_page() -> None:
    visits = status_of().visits * 5_000
    page = format_page(status_of(visits=visits), [], ())
    assert "And 4,800 more." in page
    assert len(page) < 1_000_000


def test_line_of_a_log_that_somebody_changed_breaks_nothing() -> None:
    line = b'{"n":1,"time":"t","event":"e","before":"","x":{"y":["<b>"]}}'
    assert "&lt;b&gt;" in format_page(status_of(), [line], ())
