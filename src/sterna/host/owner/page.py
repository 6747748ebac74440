"""The status page of a host: for its own machine, read-only, without scripts, and nothing in it unescaped."""

import asyncio
import hashlib
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from html import escape
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

import msgspec

from sterna.host.owner.receipts import HomeTotal
from sterna.host.owner.status import (
    Amount,
    HostStatus,
    VisitStatus,
    amounts_of,
    host_amounts,
    seconds_text,
    size_text,
)
from sterna.host.owner.verification import tail

REFRESH_SECONDS = 5
HEAD_SECONDS = 10.0
MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 16
LAST_LINES = 30  # of the audit log
MAX_VISITS = 200
MAX_HOMES = 50

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em}"
    "h1{font-size:1.3em}h2{font-size:1.1em;margin-top:2em}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.25em .8em .25em 0;border-bottom:1px solid #8884;vertical-align:top}"
    "meter{display:block;width:6em;height:.5em}.closed,.paused{color:light-dark(#a00,#f88)}"
    "code{font-size:.9em;overflow-wrap:anywhere}time{white-space:nowrap}.wide{overflow-x:auto}"
)
_STYLE_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
    ("Connection", "close"),
)


class Watched(Protocol):
    """What the page shows of a host: `Service`."""

    def status(self) -> HostStatus: ...


SumReceipts = Callable[[], Sequence[HomeTotal]]


def _none() -> Sequence[HomeTotal]:
    return ()


@asynccontextmanager
async def open_page(
    service: Watched, audit: Path, listener: socket.socket, *, spared: SumReceipts = _none
) -> AsyncIterator[None]:
    """Shows the page on the socket as long as the context lasts."""
    page = _Page(service, audit, spared)
    server = await asyncio.start_server(page.answer, sock=listener, limit=MAX_HEAD_BYTES)
    try:
        yield
    finally:
        server.close()


class _Page:
    def __init__(self, service: Watched, audit: Path, spared: SumReceipts) -> None:
        self._service = service
        self._audit = audit
        self._spared = spared
        self._open = asyncio.Semaphore(MAX_CONNECTIONS)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on one connection."""
        if self._open.locked():
            writer.close()
            return
        async with self._open:
            try:
                async with asyncio.timeout(HEAD_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._reply(head))
                    await writer.drain()
            except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return
            finally:
                writer.close()

    async def _reply(self, head: bytes) -> bytes:
        method, path, host = _request(head)
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, "this page can only be read")
        # A name that somebody else lets point here (DNS rebinding) must not show it to a page of his.
        if not _is_here(host):
            return _response(HTTPStatus.FORBIDDEN, "this page is shown by the machine's own name only")
        if path != "/":
            return _response(HTTPStatus.NOT_FOUND, "there is one page here: /")
        status = self._service.status()
        body = await asyncio.to_thread(self._body, status)
        return _response(HTTPStatus.OK, body, is_head=method == "HEAD")

    def _body(self, status: HostStatus) -> str:
        return format_page(status, tail(self._audit, LAST_LINES), self._spared())


def _request(head: bytes) -> tuple[str, str, str]:
    """Method, path and host of a request; empty where they are not there, or the host is there twice."""
    first, *fields = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    hosts = [
        value.strip().lower()
        for name, _, value in (field.partition(":") for field in fields)
        if name.lower() == "host"
    ]
    return method, rest.partition(" ")[0], hosts[0] if len(hosts) == 1 else ""


def _is_here(host: str) -> bool:
    """Whether a Host header names this machine by itself."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _response(status: HTTPStatus, body: str, *, is_head: bool = False) -> bytes:
    content = (body if body.startswith("<") else f"<!doctype html><title>Sterna</title><p>{body}").encode()
    headers = (*_HEADERS, ("Content-Length", str(len(content))))
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + (b"" if is_head else content)


# -- what is shown -----------------------------------------------------------------------------------------


def format_page(status: HostStatus, lines: Sequence[bytes], spared: Sequence[HomeTotal]) -> str:
    """The page as HTML."""
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>Host of {_text(status.site)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}"><style>{_STYLE}</style></head><body><main>',
        f"<h1>Host of {_text(status.site)}</h1>",
        f"<p>Sterna {_text(status.version)}, since {_moment(status.began)}, as of {_moment(status.now)}.</p>",
        _doors(status),
        _table((), [[f"{_text(each.label)} {_amount(each)}" for each in host_amounts(status)]]),
        "<h2>Crawlers here</h2>",
        _visits(status),
        "<h2>What visits spared</h2>",
        _spared(spared),
        "<h2>Last lines of the audit log</h2>",
        _table(("time", "event", "what"), [_entry(line) for line in reversed(lines)]),
        "</main></body></html>",
    ]
    return "\n".join(part for part in parts if part)


def _doors(status: HostStatus) -> str:
    said = []
    if status.doors:
        said.append(f'<p class="closed">The doors are closed: {_text(status.doors)}</p>')
    if status.paused:
        said.append(f'<p class="paused">All visits rest: {_text(status.paused)}</p>')
    if status.load:
        said.append(f"<p>Load: {_text(status.load)}</p>")
    return "\n".join(said)


def _visits(status: HostStatus) -> str:
    if not status.visits:
        return "<p>None.</p>"
    labels = [each.label for each in amounts_of(status.visits[0], now=status.now)]
    rows = [_visit(each, status.now) for each in status.visits[:MAX_VISITS]]
    more = len(status.visits) - len(rows)
    note = f"<p>And {more:,} more.</p>" if more else ""
    return _table(("visit", "home", "crawler", "state", *labels), rows) + note


def _visit(visit: VisitStatus, now: float) -> list[str]:
    paused = f' <span class="paused">rests: {_text(visit.paused)}</span>' if visit.paused else ""
    names = [_text(visit.visit), _text(visit.name), _text(visit.crawler), _text(visit.state) + paused]
    return [*names, *(_amount(each) for each in amounts_of(visit, now=now))]


def _spared(spared: Sequence[HomeTotal]) -> str:
    if not spared:
        return "<p>No receipts yet.</p>"
    heads = ("home", "visits", "signed by both", "requests spared", "bytes spared", "CPU")
    return _table(heads, [_spared_by(each) for each in spared[:MAX_HOMES]])


def _spared_by(home: HomeTotal) -> list[str]:
    total = home.total
    counts = (f"{count:,}" for count in (total.visits, total.countersigned, total.spared_requests))
    return [_text(home.home), *counts, size_text(total.spared_bytes), seconds_text(total.cpu_seconds)]


def _entry(line: bytes) -> list[str]:
    fields = msgspec.json.decode(line, type=dict[str, object])
    when, event = fields.pop("time", ""), fields.pop("event", "")
    told = " ".join(f"{name}={value}" for name, value in fields.items() if name not in ("n", "before"))
    return [f"<time>{_text(when)}</time>", _text(event), f"<code>{_text(told)}</code>"]


def _amount(amount: Amount) -> str:
    meter = f'<meter aria-hidden="true" value="{amount.share:.3f}"></meter>' if amount.most > 0 else ""
    return f"{_text(amount.text)}{meter}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{_text(head)}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table>{f"<tr>{top}</tr>" if top else ""}{body}</table></div>'


def _text(value: object) -> str:
    """Escaped, with marks that turn or hide text shown as what they are."""
    shown = (char if char.isprintable() else f"\\u{ord(char):04x}" for char in str(value))
    return escape("".join(shown))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
