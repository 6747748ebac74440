"""The ASGI face on a real server and real connections: any client may misbehave, the host goes on."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.host.knocking import SITE, GatedSite, Home, Stream, limits_of, open_home, send, until

from sterna.host import asgi
from sterna.host.asgi import asgi_app, serve
from sterna.host.calls import Reply, op_of
from sterna.transport.interface import Call
from sterna.wire.discovery import WELL_KNOWN, decode_offer
from sterna.wire.orders import Look, open_report, seal_order
from sterna.wire.problems import Problem, decode_problem
from sterna.wire.stream import ParcelCame

ENDPOINT = f"{SITE}/crawlers/sterna"


@dataclass
class Server:
    """A host that listens, and the home that knows it."""

    home: Home
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> "Answered":
        """A whole exchange."""
        reader, writer = await self.connect()
        writer.write(request(method, path, body, **headers))
        raw = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return Answered.of(raw)


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def of(cls, raw: bytes) -> "Answered":
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body = _unchunked(body)
        return cls(int(first.split()[1]), headers, body)

    @property
    def problem(self) -> Problem:
        assert self.headers["content-type"] == "application/problem+json"
        return decode_problem(self.body)


def _unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole, body = whole + body[:length], body[length + 2 :]
    return whole


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    fields = {"Host": "site.test", "Connection": "close"}
    fields |= {"Content-Length": str(len(body))} if method == "POST" else {}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def serving(folder: Path, **fields: Any) -> AsyncIterator[Server]:
    async with open_home(folder, endpoint=ENDPOINT, **fields) as home:
        listener = socket.create_server(("127.0.0.1", 0))
        task = asyncio.create_task(serve(home.service, listener=listener))
        try:
            yield Server(home, listener.getsockname()[1])
        finally:
            if not task.done():
                os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(task, 30)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path) as running:
        yield running


# -- which call it is --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [WELL_KNOWN, f"/crawlers/sterna{WELL_KNOWN}", "/crawlers/sterna", "/crawlers/sterna/", "/"]
)
async def test_discovery_is_found_whatever_a_proxy_strips(server: Server, path: str) -> None:
    answered = await server.ask("GET", path)
    assert answered.status == 200
    assert answered.headers["cache-control"] == "max-age=3600"
    assert decode_offer(answered.body, SITE).endpoint == ENDPOINT


@pytest.mark.parametrize("prefix", ["", "/crawlers/sterna"])
async def test_whole_visit_goes_over_a_connection(server: Server, prefix: str) -> None:
    greeting = server.home.greeting()
    answered = await server.ask("POST", f"{prefix}/hello", greeting.body)
    assert (answered.status, answered.headers["content-type"]) == (200, "application/vnd.sterna")
    session = greeting.finish(answered.body, server.home.host.public)
    body = seal_order(session.keys, session.ticket, send())
    streamed = await server.ask("POST", f"{prefix}/order", body)
    assert streamed.headers["x-accel-buffering"] == "no"

    async def once() -> AsyncIterator[bytes]:
        yield streamed.body

    stream = Stream(Reply(200, "", (), once()), session)
    await stream.read()
    assert len(stream.pages) == 13
    assert stream.ending.ended == "finished"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/hello", 405),
        ("POST", WELL_KNOWN, 405),
        ("DELETE", "/order", 405),
        ("GET", "/etc/passwd", 404),
        ("POST", "/crawlers/sternahello", 404),
        ("POST", "/hello/", 404),
    ],
)
async def test_what_is_no_call_gets_a_problem(server: Server, method: str, path: str, status: int) -> None:
    answered = await server.ask(method, path)
    assert answered.status == status
    assert answered.headers["content-type"] == "application/problem+json"
    assert b"about:blank" in answered.body


def test_endpoint_without_a_path_has_the_calls_at_its_root() -> None:
    assert op_of("POST", "/hello", endpoint="https://host.test") == "hello"
    assert op_of("GET", "", endpoint="https://host.test") == "discover"


# -- clients that misbehave --------------------------------------------------------------------------------


async def test_announced_size_is_refused_before_the_body_comes(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(request("POST", "/order", Content_Length=str(10**9)))
    raw = await asyncio.wait_for(reader.readuntil(b"}"), 10)
    assert Answered.of(raw).problem.name == "too-large"
    writer.close()


async def test_chunked_body_is_bounded_too(server: Server) -> None:
    reader, writer = await server.connect()
    head = "POST /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode() + b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
    raw = await asyncio.wait_for(reader.readuntil(b"}"), 10)
    assert Answered.of(raw).problem.name == "too-large"
    writer.close()


async def test_slow_body_is_given_up(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=limits_of(body_seconds=0.2)) as server:
        reader, writer = await server.connect()
        writer.write(request("POST", "/hello", Content_Length="100") + b"x")
        raw = await asyncio.wait_for(reader.readuntil(b"}"), 10)
        assert "timeout" in Answered.of(raw).problem.detail
        writer.close()


async def test_head_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "HEAD_SECONDS", 0.3)
    async with serving(tmp_path) as server:
        reader, writer = await server.connect()
        writer.write(b"POST /hello HTTP/1.1\r\nHo")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_client_that_leaves_in_its_body_is_forgotten(server: Server) -> None:
    for _ in range(20):
        _, writer = await server.connect()
        writer.write(request("POST", "/hello", Content_Length="100") + b"x")
        await writer.drain()
        writer.transport.abort()
    assert (await server.ask("GET", WELL_KNOWN)).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00" * 100,
        b"POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_http_does_not_disturb(server: Server, raw: bytes) -> None:
    reader, writer = await server.connect()
    writer.write(raw)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    assert b" 200 " not in answer[:20]
    writer.close()
    assert (await server.ask("GET", WELL_KNOWN)).status == 200


async def order_over(server: Server, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await server.connect()
    writer.write(request("POST", "/order", body))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_client_that_leaves_its_stream_leaves_the_visit_behind(tmp_path: Path) -> None:
    site = GatedSite()
    async with serving(tmp_path, site=site) as server:
        home = server.home
        session = await home.greet()
        _, writer = await order_over(server, seal_order(session.keys, session.ticket, send()))
        writer.transport.abort()
        site.let(12)
        report = await home.report(Look("v1"))
        while report.state != "finished":
            await asyncio.sleep(0.02)
            report = await home.report(Look("v1"))
        assert report.kept_bytes > 0


async def test_client_that_never_reads_holds_nothing_but_its_own_visit(tmp_path: Path) -> None:
    site = GatedSite(pages=400)
    site.let(10**6)
    async with serving(tmp_path, site=site) as server:
        home = server.home
        for name in ("a", "b", "c", "d"):  # as many as may work at once
            session = await home.greet()
            await order_over(server, seal_order(session.keys, session.ticket, send(visit=name)))
        stream = await home.visit(send())
        assert stream.ending.ended == "finished"
        assert (await server.ask("GET", WELL_KNOWN)).status == 200


# -- the callable itself -----------------------------------------------------------------------------------


class Peer:
    """The two ends that an ASGI server gives to an application."""

    def __init__(self, body: bytes, *, take: Callable[[], Awaitable[None]]) -> None:
        self._body: bytes | None = body
        self._take = take
        self.left = asyncio.Event()
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            await self._take()
        self.sent.append(message)


def scope() -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": "/order", "headers": []}


async def test_stream_waits_for_its_client_and_ends_when_it_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "STALL_SECONDS", 0.2)
    async with open_home(tmp_path) as home:
        session = await home.greet()
        body = seal_order(session.keys, session.ticket, send())

        async def never() -> None:
            await asyncio.Event().wait()

        peer = Peer(body, take=never)
        async with asyncio.timeout(10):
            await asgi_app(home.service)(scope(), peer.receive, peer.send)
        assert [message["type"] for message in peer.sent] == ["http.response.start"]


async def test_stream_ends_when_its_client_leaves(tmp_path: Path) -> None:
    site = GatedSite()
    async with open_home(tmp_path, site=site) as home:
        session = await home.greet()

        async def take() -> None:
            peer.left.set()

        peer = Peer(seal_order(session.keys, session.ticket, send()), take=take)
        async with asyncio.timeout(10):
            await asgi_app(home.service)(scope(), peer.receive, peer.send)
        assert (await home.report(Look("v1"))).state in ("queued", "running")


async def test_stop_ends_streams_after_a_last_checkpoint(tmp_path: Path) -> None:
    site = GatedSite()
    async with serving(tmp_path, site=site) as server:
        session = await server.home.greet()
        reader, _ = await order_over(server, seal_order(session.keys, session.ticket, send()))
        await until(lambda: len(site.asked) > 2)
        os.kill(os.getpid(), signal.SIGTERM)
        site.let(12)
        body = _unchunked(await asyncio.wait_for(reader.read(), 20))

        async def once() -> AsyncIterator[bytes]:
            yield body

        stream = Stream(Reply(200, "", (), once()), session)
        await stream.read()
        assert isinstance(stream.came[-1], ParcelCame)
        assert stream.parcels[-1].ended is None  # it goes on after a restart


async def test_report_comes_whole(server: Server) -> None:
    await server.home.visit(send())
    session = await server.home.greet()
    answered = await server.ask("POST", "/order", seal_order(session.keys, session.ticket, Look("v1")))
    assert answered.headers["content-length"] == str(len(answered.body))
    assert open_report(session.keys, answered.body).state == "finished"


async def test_answer_to_an_acknowledgement_is_empty(server: Server) -> None:
    stream = await server.home.visit(send())
    reply = await server.home.acknowledge(stream.session, "v1", 1)
    assert (reply.status, reply.body) == (200, b"")
    assert (await server.home.service.answer(Call("acknowledge", b"x" * 40))).status == 410
