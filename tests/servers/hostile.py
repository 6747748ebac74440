"""A server that does to a crawler whatever the web does, one route for each misdeed."""

import asyncio
import gzip
import hashlib
import random
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from html import escape

from tests.servers.bombs import brotli_bomb, gzip_bomb, wide_text, zstd_bomb
from tests.servers.plain import Listener, ListeningServer, Reply, Request, head, send

GREETING = "Grüße aus Köln, Привет из Москвы, 日本からこんにちは"
_LEAF = b"<title>Leaf</title><p>An ordinary page."
_MIB = bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class Hit:
    """A request as it arrived, `time` by the monotonic clock; `path` has its query."""

    time: float
    path: str
    headers: Mapping[str, str]
    address: str  # the server's own, which the client chose


class HostileServer(ListeningServer):
    """Serves the routes below on one loopback port; a test may set any attribute that has no underscore."""

    def __init__(self, *, addresses: Sequence[str] = ("127.0.0.1",), port: int = 0) -> None:
        self.robots: tuple[int, Mapping[str, str], bytes] = (404, {}, b"")  # status, headers, body
        self.links: list[str] = []  # of /index
        self.content = b"<title>First</title>"  # of /etag
        self.modified = 1_700_000_000.0  # of /etag
        self.refusals = 2  # of /429-then-ok
        self.drip_seconds = 1.0
        self.log: list[Hit] = []
        self.addresses = tuple(addresses)
        super().__init__(Listener(self._answer, addresses=addresses, port=port))
        self._random = random.Random(1)

    @property
    def url(self) -> str:
        return f"http://{self.addresses[0]}:{self.port}"

    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [hit.path for hit in self.log]

    def new_session(self) -> str:
        """A session id that was never given before."""
        return f"{self._random.getrandbits(128):032x}"

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        self.log.append(Hit(time.monotonic(), request.target, request.headers, request.address))
        name = request.path.split("/")[1]
        if name in STREAMS:
            await STREAMS[name](self, request, writer)
            return False
        page = PAGES.get(name)
        return await send(request, writer, page(self, request) if page else Reply(404, body=b"no such route"))


def _page(links: Iterable[str], *, title: str = "") -> Reply:
    anchors = "".join(f'<a href="{escape(link)}">{escape(link[:40])}</a>\n' for link in links)
    return Reply(body=f"<!doctype html><title>{title}</title>\n{anchors}".encode())


def _redirect(target: str) -> Reply:
    return Reply(302, {"Location": target})


# Pages: a whole reply, sent as it should be


def robots(server: HostileServer, request: Request) -> Reply:
    """/robots.txt: what `server.robots` says."""
    status, headers, body = server.robots
    return Reply(status, {"Content-Type": "text/plain"} | dict(headers), body)


def index(server: HostileServer, request: Request) -> Reply:
    """/ and /index: links to `server.links`."""
    return _page(server.links, title="Index")


def leaf(server: HostileServer, request: Request) -> Reply:
    """/leaf/ANYTHING: an ordinary page without links."""
    return Reply(body=_LEAF)


def redirect(server: HostileServer, request: Request) -> Reply:
    """/redirect?to=URL: a redirect to there."""
    return _redirect(request.query["to"])


def loop(server: HostileServer, request: Request) -> Reply:
    """/loop/a and /loop/b: redirects to each other."""
    return _redirect("/loop/b" if request.path.endswith("a") else "/loop/a")


def chain(server: HostileServer, request: Request) -> Reply:
    """/chain/N: a redirect to /chain/N+1."""
    return _redirect(f"/chain/{int(request.path.rpartition('/')[2]) + 1}")


def cut(server: HostileServer, request: Request) -> Reply:
    """/cut: fewer bytes than announced, then the end."""
    return Reply(headers={"Content-Length": "1000"}, body=b"<title>Cut</title>")


def nested_gzip(server: HostileServer, request: Request) -> Reply:
    """/nested-gzip: gzip within gzip, announced as such."""
    return Reply(headers={"Content-Encoding": "gzip, gzip"}, body=gzip.compress(gzip.compress(_LEAF)))


def wide(server: HostileServer, request: Request) -> Reply:
    """/wide?mb=N: plain text, an emoji and N million bytes of ASCII, as Brotli of a few kB."""
    headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "br"}
    return Reply(headers=headers, body=wide_text(int(request.query["mb"]) * 1_000_000))


def lie_gzip(server: HostileServer, request: Request) -> Reply:
    """/lie-gzip: says gzip, is not."""
    return Reply(headers={"Content-Encoding": "gzip"}, body=_LEAF)


def lie_type(server: HostileServer, request: Request) -> Reply:
    """/lie-type: a picture as text/html."""
    return Reply(body=b"\x89PNG\r\n\x1a\n" + random.Random(2).randbytes(5_000))


def badheaders(server: HostileServer, request: Request) -> Reply:
    """/badheaders: a megabyte of headers."""
    return Reply(headers={f"X-Filler-{i}": "x" * 8_192 for i in range(128)}, body=_LEAF)


def calendar(server: HostileServer, request: Request) -> Reply:
    """/calendar/YYYY/MM: links to the next and the previous month, for ever."""
    _, _, year, month = request.path.split("/")
    months = int(year) * 12 + int(month) - 1
    near = (f"/calendar/{n // 12:04}/{n % 12 + 1:02}" for n in (months - 1, months + 1))
    return _page(near, title=f"{year}-{month}")


def longlinks(server: HostileServer, request: Request) -> Reply:
    """/longlinks: three links of 100 kB and one to /leaf/short."""
    return _page([*(f"/leaf/{letter * 100_000}" for letter in "abc"), "/leaf/short"])


def manylinks(server: HostileServer, request: Request) -> Reply:
    """/manylinks?n=N: links to /leaf/0 ... /leaf/N-1, 10,000 if nothing is said."""
    return _page(f"/leaf/{i}" for i in range(int(request.query.get("n", "10000"))))


def deep(server: HostileServer, request: Request) -> Reply:
    """/deep: 100,000 elements within each other, around a link to /leaf/deep."""
    return Reply(body=b"<div>" * 100_000 + b'<a href="/leaf/deep">deep</a>')


def session(server: HostileServer, request: Request) -> Reply:
    """/session?sid=ANYTHING: links to itself under two new session ids."""
    return _page(f"/session?sid={server.new_session()}" for _ in range(2))


def trap(server: HostileServer, request: Request) -> Reply:
    """/trap/a/a/a...: links to one folder deeper."""
    return _page([f"{request.path.rstrip('/')}/a"])


def status(server: HostileServer, request: Request) -> Reply:
    """/status/N: that status."""
    return Reply(int(request.path.rpartition("/")[2]), body=b"<title>Status</title>")


def too_many(server: HostileServer, request: Request) -> Reply:
    """/429?after=TEXT: status 429, with that Retry-After if one is given."""
    query = request.query
    return Reply(429, {"Retry-After": query["after"]} if "after" in query else {})


def too_many_then_ok(server: HostileServer, request: Request) -> Reply:
    """/429-then-ok/ANYTHING: each path first refuses `server.refusals` times with Retry-After: 1."""
    hits = server.paths().count(request.target)
    return Reply(429, {"Retry-After": "1"}) if hits <= server.refusals else Reply(body=_LEAF)


def unavailable(server: HostileServer, request: Request) -> Reply:
    """/503-date?seconds=N: status 503, with the date in N seconds (2 if nothing is said) as Retry-After."""
    date = time.time() + float(request.query.get("seconds", "2"))
    return Reply(503, {"Retry-After": formatdate(date, usegmt=True)})


def etag(server: HostileServer, request: Request) -> Reply:
    """/etag: `server.content` with its validators; 304 to who has it."""
    tag = f'"{hashlib.sha256(server.content).hexdigest()[:16]}"'
    date = formatdate(server.modified, usegmt=True)
    headers = {"ETag": tag, "Last-Modified": date}
    asked = request.headers
    # RFC 9110 13.1.3: a date counts only where no tag was sent.
    is_known = asked.get("if-none-match", tag if asked.get("if-modified-since") == date else "") == tag
    return Reply(304, headers) if is_known else Reply(200, headers, server.content)


def charset(server: HostileServer, request: Request) -> Reply:
    """/charset/NAME: GREETING in that encoding, with character references for what it lacks."""
    name = request.path.rpartition("/")[2]
    body = f"<title>{GREETING}</title>".encode(name, "xmlcharrefreplace")
    return Reply(headers={"Content-Type": f"text/html; charset={name}"}, body=body)


def cookie_set(server: HostileServer, request: Request) -> Reply:
    """/cookie-set: sets a cookie, and shows the one that came."""
    body = f"<title>{escape(request.headers.get('cookie', 'none'))}</title>".encode()
    return Reply(headers={"Set-Cookie": "crumb=1; Path=/"}, body=body)


PAGES: dict[str, Callable[[HostileServer, Request], Reply]] = {
    "": index,
    "robots.txt": robots,
    "index": index,
    "leaf": leaf,
    "redirect": redirect,
    "loop": loop,
    "chain": chain,
    "cut": cut,
    "nested-gzip": nested_gzip,
    "wide": wide,
    "lie-gzip": lie_gzip,
    "lie-type": lie_type,
    "badheaders": badheaders,
    "calendar": calendar,
    "longlinks": longlinks,
    "manylinks": manylinks,
    "deep": deep,
    "session": session,
    "trap": trap,
    "status": status,
    "429": too_many,
    "429-then-ok": too_many_then_ok,
    "503-date": unavailable,
    "etag": etag,
    "charset": charset,
    "cookie-set": cookie_set,
}


# Streams: bytes that no page is made of; the connection ends with them


async def slow(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/slow?seconds=N: nothing at all for N seconds (5 if nothing is said), then a page."""
    await asyncio.sleep(float(request.query.get("seconds", "5")))
    await send(request, writer, Reply(headers={"Connection": "close"}, body=_LEAF))


async def _pour(writer: asyncio.StreamWriter, chunk: bytes, *, pause_seconds: float) -> None:
    writer.write(head(200, {"Content-Type": "text/html", "Transfer-Encoding": "chunked"}))
    while True:
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
        await asyncio.sleep(pause_seconds)


async def drip(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/drip: a byte each `server.drip_seconds`, for ever."""
    await _pour(writer, b"x", pause_seconds=server.drip_seconds)


async def endless(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/endless: as many bytes as the client takes, for ever."""
    await _pour(writer, b"<p>more and more</p>\n" * 3_000, pause_seconds=0)


async def big(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/big?mb=N: N times 1,048,576 bytes, 100 if nothing is said."""
    count = int(request.query.get("mb", "100"))
    writer.write(head(200, {"Content-Type": "text/html", "Content-Length": str(count * len(_MIB))}))
    for _ in range(count):
        writer.write(_MIB)
        await writer.drain()


async def text(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/text?mb=N and /text.html?mb=N: N million bytes of words."""
    count, kind = int(request.query["mb"]), "html" if request.path.endswith("html") else "plain"
    writer.write(head(200, {"Content-Type": f"text/{kind}", "Content-Length": str(count * 1_000_000)}))
    for _ in range(count):
        writer.write(b"tern " * 200_000)
        await writer.drain()


async def stall(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/stall/ANYTHING?mb=N: all but the last of N times 1,048,576 bytes, then nothing more."""
    count = int(request.query["mb"])
    writer.write(head(200, {"Content-Type": "text/html", "Content-Length": str(count * len(_MIB))}))
    for _ in range(count - 1):
        writer.write(_MIB)
        await writer.drain()
    writer.write(_MIB[1:])
    await writer.drain()
    await asyncio.sleep(3600)


async def splinters(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/splinters?mb=N: N times 1,048,576 bytes in chunks of two."""
    writer.write(head(200, {"Content-Type": "text/html", "Transfer-Encoding": "chunked"}))
    chunks = b"2\r\naa\r\n" * 8_192
    for _ in range(64 * int(request.query["mb"])):
        writer.write(chunks)
        await writer.drain()
    writer.write(b"0\r\n\r\n")


Stream = Callable[[HostileServer, Request, asyncio.StreamWriter], Awaitable[None]]


def _bomb(encoding: str, payload: Callable[[], bytes]) -> Stream:
    async def explode(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
        """/bomb.gz, /bomb.br, /bomb.zst: a quarter of a gigabyte of zeros as a Content-Encoding."""
        body = await asyncio.to_thread(payload)
        await send(request, writer, Reply(headers={"Content-Encoding": encoding}, body=body))

    return explode


async def garbage(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/garbage: something that is not HTTP."""
    writer.write(b"\x16\x03\x01\x02 220 mail.example.org ESMTP ready\r\n\r\n" * 20)
    await writer.drain()


async def reset(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/reset: a connection reset instead of an answer."""
    # Closing a socket that lingers for no time sends RST instead of FIN.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def empty(server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """/empty: the connection closes without a byte."""


STREAMS: dict[str, Stream] = {
    "slow": slow,
    "drip": drip,
    "endless": endless,
    "big": big,
    "text": text,
    "text.html": text,
    "stall": stall,
    "splinters": splinters,
    "bomb.gz": _bomb("gzip", gzip_bomb),
    "bomb.br": _bomb("br", brotli_bomb),
    "bomb.zst": _bomb("zstd", zstd_bomb),
    "garbage": garbage,
    "reset": reset,
    "empty": empty,
}
