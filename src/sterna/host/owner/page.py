"""The status page of a host: for its own machine, read-only, without scripts, with everything escaped."""

import asyncio
import hashlib
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import msgspec

from sterna.host.owner.receipts import HomeTotal
from sterna.host.owner.status import Amount, HostStatus, amounts_of, host_amounts, seconds_text, size_text
from sterna.host.owner.verification import tail
from sterna.web.http_app import App, HttpRequest, HttpResponse
from sterna.web.http_server import make_server, serving

REFRESH_SECONDS = 5
HEAD_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 2 * REFRESH_SECONDS
GRACE_SECONDS = 2
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
_POLICY = f"style-src 'sha256-{_STYLE_HASH}'; form-action 'none'"


@asynccontextmanager
async def open_page(
    look: Callable[[], HostStatus],
    audit: Path,
    listener: socket.socket,
    *,
    spared: Callable[[], Sequence[HomeTotal]],
) -> AsyncIterator[None]:
    """Serves the page on the socket as long as the context lasts."""

    def body(status: HostStatus) -> bytes:
        return format_page(status, tail(audit, LAST_LINES), spared()).encode()

    async def answer(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(body=await asyncio.to_thread(body, look()))

    server = make_server(
        App({"/": answer}, policy=_POLICY, is_local=True),
        head_seconds=HEAD_SECONDS,
        connections=MAX_CONNECTIONS,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        grace_seconds=GRACE_SECONDS,
    )
    async with serving(server, listener):
        yield


def format_page(status: HostStatus, lines: Sequence[bytes], spared: Sequence[HomeTotal]) -> str:
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
        said.append(f'<p class="paused">All visits are paused: {_text(status.paused)}</p>')
    if status.load:
        said.append(f"<p>Load: {_text(status.load)}</p>")
    return "\n".join(said)


def _visits(status: HostStatus) -> str:
    if not status.visits:
        return "<p>None.</p>"
    labels = [each.label for each in amounts_of(status.visits[0], now=status.now)]
    rows = []
    for visit in status.visits[:MAX_VISITS]:
        paused = f' <span class="paused">paused: {_text(visit.paused)}</span>' if visit.paused else ""
        names = [_text(visit.visit), _text(visit.name), _text(visit.crawler), _text(visit.state) + paused]
        rows.append([*names, *map(_amount, amounts_of(visit, now=status.now))])
    more = len(status.visits) - len(rows)
    note = f"<p>And {more:,} more.</p>" if more else ""
    return _table(("visit", "home", "crawler", "state", *labels), rows) + note


def _spared(spared: Sequence[HomeTotal]) -> str:
    if not spared:
        return "<p>No receipts yet.</p>"
    heads = ("home", "visits", "signed by both", "requests spared", "bytes spared", "CPU")
    rows = []
    for home in spared[:MAX_HOMES]:
        total = home.total
        counts = (f"{count:,}" for count in (total.visits, total.countersigned, total.spared_requests))
        rows.append(
            [_text(home.home), *counts, size_text(total.spared_bytes), seconds_text(total.cpu_seconds)]
        )
    return _table(heads, rows)


def _entry(line: bytes) -> list[str]:
    fields = msgspec.json.decode(line, type=dict[str, object])
    when, event = fields.pop("time", ""), fields.pop("event", "")
    text = " ".join(f"{name}={value}" for name, value in fields.items() if name not in ("n", "before"))
    return [f"<time>{_text(when)}</time>", _text(event), f"<code>{_text(text)}</code>"]


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
