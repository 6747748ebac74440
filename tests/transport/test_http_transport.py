"""HTTP passes the suite of transports, and so does the one in memory; what is HTTP's own is below."""

import asyncio
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.servers.nginx import NginxServer, free_ports, make_certificate, serve
from tests.servers.plain import Listener
from tests.servers.plain import Request as Asked
from tests.servers.proxy import ForwardProxy
from tests.transport.serving import Answerer, HttpFace, MemoryTransport, Said, Saying
from tests.transport.suite import SILENCE_SECONDS, SOON_SECONDS, Endless, Join, TransportSuite, always, whole

from sterna.errors import FetchError, LineBroken, Refused
from sterna.transport import http
from sterna.transport.http import HttpConfig, HttpTransport, url_of
from sterna.transport.interface import Call, Transport
from sterna.web.clock import SystemClock
from sterna.web.http import read_head
from sterna.wire.discovery import WELL_KNOWN

LOCAL = "127.0.0.1"
HELLO = Call("hello", b"x")
DISCOVER = Call("discover")
MIB = 1 << 20


class Addresses:
    """A resolver with a table; names that are not in it have no address."""

    def __init__(self, names: Mapping[str, tuple[str, ...]]) -> None:
        self._names = {LOCAL: (LOCAL,), **names}
        self.preferred: list[tuple[str, str]] = []

    async def resolve(self, hostname: str) -> tuple[str, ...]:
        if hostname not in self._names:
            raise FetchError("dns", f"no address found for {hostname}")
        return self._names[hostname]

    def prefer(self, hostname: str, address: str) -> None:
        self.preferred.append((hostname, address))


@asynccontextmanager
async def transporting(
    names: Mapping[str, tuple[str, ...]] | None = None, **fields: object
) -> AsyncIterator[HttpTransport]:
    config = HttpConfig(**{"silence_seconds": SILENCE_SECONDS, **fields})  # type: ignore[arg-type]
    transport = HttpTransport(config, resolver=Addresses(names or {}), clock=SystemClock())
    for name in (LOCAL, *(names or {})):
        transport.let_private(name)
    try:
        yield transport
    finally:
        await transport.close()


class TestHttpTransport(TransportSuite):
    @pytest.fixture
    def join(self) -> Join:
        @asynccontextmanager
        async def join(answerer: Answerer) -> AsyncIterator[tuple[Transport, str]]:
            async with HttpFace(answerer) as face, transporting() as transport:
                yield transport, face.url

        return join

    @pytest.fixture
    def nowhere(self) -> str:
        return f"http://{LOCAL}:9"


class TestMemoryTransport(TransportSuite):
    @pytest.fixture
    def join(self) -> Join:
        @asynccontextmanager
        async def join(answerer: Answerer) -> AsyncIterator[tuple[Transport, str]]:
            yield MemoryTransport({"memory:": answerer}, silence_seconds=SILENCE_SECONDS), "memory:"

        return join

    @pytest.fixture
    def nowhere(self) -> str:
        return "memory:nobody"


# HTTP/2, behind a reverse proxy


@dataclass(frozen=True, slots=True)
class Proxied:
    nginx: NginxServer
    port: int  # of the server behind it


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    (port,) = free_ports(1)
    passed = f"proxy_pass http://{LOCAL}:{port}; proxy_http_version 1.1; proxy_buffering off;"
    extra = f"client_max_body_size 64m; location /sterna/ {{ {passed} }} location {WELL_KNOWN} {{ {passed} }}"
    root = tmp_path_factory.mktemp("root")
    with serve(root, folder=tmp_path_factory.mktemp("nginx"), extra=extra, http2_tls=True) as nginx:
        yield Proxied(nginx, port)


@pytest.mark.servers
class TestHttp2Transport(TransportSuite):
    @pytest.fixture
    def join(self, proxied: Proxied) -> Join:
        @asynccontextmanager
        async def join(answerer: Answerer) -> AsyncIterator[tuple[Transport, str]]:
            async with (
                HttpFace(answerer, port=proxied.port),
                transporting(ca_file=str(proxied.nginx.ca_path)) as transport,
            ):
                yield transport, f"{proxied.nginx.tls_url}/sterna"

        return join

    @pytest.fixture
    def nowhere(self) -> str:
        return f"https://{LOCAL}:9/sterna"

    async def test_calls_go_by_http_2(self, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
        heads: list[bytes] = []

        def noting(head: bytes) -> tuple[tuple[str, str], ...]:
            heads.append(head)
            return read_head(head)

        monkeypatch.setattr(http, "read_head", noting)
        async with join(always(Saying(b"ok"))) as (transport, address):
            for _ in range(3):
                await whole(transport, address, HELLO)
        assert {head.split(b" ")[0] for head in heads} == {b"HTTP/2"}


@pytest.mark.servers
async def test_certificate_that_nobody_vouches_for_is_a_broken_line(proxied: Proxied) -> None:
    async with HttpFace(always(Saying(b"ok")), port=proxied.port), transporting() as transport:
        with pytest.raises(LineBroken, match=r"(?i)certificate"):
            await whole(transport, f"{proxied.nginx.tls_url}/sterna", HELLO)


# Requests


async def test_request_says_who_asks_and_nothing_that_was_not_asked_for() -> None:
    said = Saying(b"ok", headers=(("Set-Cookie", "a=b; Path=/"),))
    async with (
        HttpFace(always(said)) as face,
        transporting(user_agent="Sterna/1 (+me)", sender="me@home.example") as transport,
    ):
        await whole(transport, face.url, HELLO)
        await whole(transport, face.url, DISCOVER)
    posted, got = face.arrived
    assert (posted.method, posted.target, got.method, got.target) == ("POST", "/hello", "GET", WELL_KNOWN)
    for arrived in (posted, got):
        assert arrived.headers["user-agent"] == "Sterna/1 (+me)"
        assert arrived.headers["from"] == "me@home.example"
        assert arrived.headers["accept-encoding"] == "identity"
        assert not arrived.headers.keys() & {"cookie", "expect", "referer"}
    assert posted.headers["content-type"] == "application/vnd.sterna"
    assert face.connections == 1


async def test_large_body_does_not_wait_to_be_asked_for() -> None:
    async with HttpFace(always(Saying(b"ok"))) as face, transporting() as transport:
        await whole(transport, face.url, Call("order", bytes(3 * MIB)))
    assert "expect" not in face.arrived[0].headers


def test_address_with_a_path_is_where_a_document_lies() -> None:
    discover, order = Call("discover"), Call("order")
    assert url_of("https://a.example", discover) == "https://a.example/.well-known/sterna"
    assert url_of("https://a.example/", discover) == "https://a.example/.well-known/sterna"
    assert url_of("https://a.example/x/y", discover) == "https://a.example/x/y"
    assert url_of("https://a.example/sterna/", order) == "https://a.example/sterna/order"


async def test_bytes_are_counted_with_their_heads_both_ways() -> None:
    async with HttpFace(always(Saying(bytes(100_000)))) as face, transporting() as transport:
        await whole(transport, face.url, Call("order", bytes(5_000_000)))
        await whole(transport, face.url, DISCOVER)
    assert transport.bytes_sent == sum(arrived.size for arrived in face.arrived)
    assert transport.bytes_received == face.sent_bytes


# Answers


async def test_content_is_never_decompressed() -> None:
    said = Saying(b"\x1f\x8b not really", headers=(("Content-Encoding", "gzip"),))
    async with HttpFace(always(said)) as face, transporting() as transport:
        assert await whole(transport, face.url, HELLO) == b"\x1f\x8b not really"


async def test_retry_after_counts_without_a_problem_too() -> None:
    said = Saying(b"slow down", 429, "text/plain", (("Retry-After", "9"),))
    async with HttpFace(always(said)) as face, transporting() as transport:
        with pytest.raises(Refused) as error:
            await whole(transport, face.url, HELLO)
    assert (error.value.problem, error.value.retry_after) == ("http", 9.0)


@pytest.mark.parametrize(
    ("control", "seconds"),
    [("", None), ("public, max-age=60", 60.0), ("no-store", 0.0), ("max-age=x", None), ("s-max-age=5", None)],
)
async def test_max_age_is_what_cache_control_says(control: str, seconds: float | None) -> None:
    said = Saying(b"{}", headers=(("Cache-Control", control),))
    async with (
        HttpFace(always(said)) as face,
        transporting() as transport,
        transport.exchange(face.url, DISCOVER) as answer,
    ):
        assert answer.max_age == seconds


@asynccontextmanager
async def saying(*replies: bytes) -> AsyncIterator[str]:
    """The URL of a server that answers with these very bytes, and then hangs up."""

    async def answer(request: Asked, writer: asyncio.StreamWriter) -> bool:
        for reply in replies:
            writer.write(reply)
            await writer.drain()
            await asyncio.sleep(0.01)
        return False

    async with Listener(answer) as listener:
        yield f"http://{LOCAL}:{listener.port}"


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00" * 2000,
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nless",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nless",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nless",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 60_000 + b"\r\n",
    ],
)
async def test_what_is_no_whole_answer_is_a_broken_line(reply: bytes) -> None:
    async with saying(reply) as url, transporting() as transport:
        with pytest.raises(LineBroken):
            await whole(transport, url, HELLO)


async def test_interim_answers_are_no_answers() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with saying(interim, final) as url, transporting() as transport:
        assert await whole(transport, url, HELLO) == b"ok"


async def test_stream_in_chunks_of_one_byte_is_read_in_large_pieces() -> None:
    """Each piece costs home a hop to a thread: a host must not make one of every byte."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    count = 100_000
    async with (
        saying(head + b"1\r\na\r\n" * count + b"0\r\n\r\n") as url,
        transporting() as transport,
        transport.exchange(url, HELLO) as reply,
    ):
        pieces = [len(piece) async for piece in reply.chunks]
    assert sum(pieces) == count
    assert len(pieces) < count // 100


async def test_unread_stream_takes_little_memory() -> None:
    stream = Endless()
    async with (
        HttpFace(always(Saying(stream()))) as face,
        transporting() as transport,
        transport.exchange(face.url, Call("order", b"x")) as answer,
    ):
        await anext(answer.chunks)
        tracemalloc.start()
        try:
            await asyncio.sleep(0.5)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert stream.made_bytes > MIB
    assert peak < 2 * MIB


# Redirects


async def redirected(location: str, *, call: Call = DISCOVER, times: int = 1) -> bytes:
    left = times

    async def answer(call: Call) -> Said:
        nonlocal left
        left -= 1
        if left >= 0:
            return Saying(b"", 301, "text/html", (("Location", location),))
        return Saying(b"the document")

    async with HttpFace(answer) as face, transporting() as transport:
        return await whole(transport, face.url, call)


async def test_discovery_follows_one_redirect_within_its_origin() -> None:
    assert await redirected("/elsewhere") == b"the document"


@pytest.mark.parametrize("location", ["http://localhost:9/", "https://127.0.0.1/", "file:///etc/passwd", ""])
async def test_discovery_follows_no_redirect_to_another_origin(location: str) -> None:
    with pytest.raises(Refused, match="301"):
        await redirected(location)


async def test_discovery_follows_no_second_redirect() -> None:
    with pytest.raises(Refused, match="301"):
        await redirected("/elsewhere", times=2)


async def test_other_calls_follow_none() -> None:
    with pytest.raises(Refused, match="301"):
        await redirected("/sterna/hello", call=HELLO)


# Addresses


async def test_private_address_is_refused_unless_it_was_named() -> None:
    async with HttpFace(always(Saying(b"ok"))) as face:
        transport = HttpTransport(
            HttpConfig(), resolver=Addresses({"a.example": (LOCAL,)}), clock=SystemClock()
        )
        url = f"http://a.example:{face.port}"
        with pytest.raises(LineBroken, match="private network"):
            await whole(transport, url, HELLO)
        transport.let_private("a.example")
        assert await whole(transport, url, HELLO) == b"ok"
        await transport.close()
    assert face.connections == 1


async def test_next_address_is_tried_where_one_cannot_be_reached() -> None:
    async with (
        HttpFace(always(Saying(b"ok"))) as face,
        transporting({"a.example": ("127.0.0.7", LOCAL)}) as transport,
    ):
        assert await whole(transport, f"http://a.example:{face.port}", HELLO) == b"ok"
    assert face.arrived[0].headers["host"] == f"a.example:{face.port}"


async def test_call_that_was_sent_is_not_sent_to_another_address() -> None:
    async with saying(b"") as url, transporting({"a.example": (LOCAL, "127.0.0.2")}) as transport:
        port = url.rpartition(":")[2]
        with pytest.raises(LineBroken, match=r"(?i)empty reply"):
            await whole(transport, f"http://a.example:{port}", HELLO)


async def test_name_without_an_address_is_a_broken_line() -> None:
    async with transporting() as transport:
        with pytest.raises(LineBroken, match="no address"):
            await whole(transport, "http://nowhere.example", HELLO)


async def test_proxy_is_not_asked_for_a_host_on_a_private_network() -> None:
    names = {
        "inside.test": ("10.0.0.1",),
        "localhost": ("127.0.0.1",),
        "169.254.169.254": ("169.254.169.254",),
    }
    config = HttpConfig(proxy="http://127.0.0.1:9")
    transport = HttpTransport(config, resolver=Addresses(names), clock=SystemClock())
    try:
        for name in names:
            with pytest.raises(LineBroken, match="private network"):
                await whole(transport, f"http://{name}", HELLO)
    finally:
        await transport.close()


async def test_proxy_finds_the_address_itself() -> None:
    async with (
        HttpFace(always(Saying(b"ok"))) as face,
        ForwardProxy() as proxy,
        transporting({"localhost": ()}, proxy=proxy.url) as transport,
    ):
        assert await whole(transport, f"http://localhost:{face.port}", HELLO) == b"ok"
    assert proxy.requests == [f"POST http://localhost:{face.port}/hello"]


@pytest.mark.servers
async def test_head_of_a_proxy_is_not_taken_for_the_answer(proxied: Proxied) -> None:
    async with (
        HttpFace(always(Saying(b"no", 404, "text/html")), port=proxied.port),
        ForwardProxy() as proxy,
        transporting(proxy=proxy.url, ca_file=str(proxied.nginx.ca_path)) as transport,
    ):
        with pytest.raises(Refused, match="404"):
            await whole(transport, f"{proxied.nginx.tls_url}/sterna", HELLO)
    assert proxy.requests[0].startswith("CONNECT ")


# Time


async def test_discovery_as_a_whole_has_its_time() -> None:
    stream = Endless(b".", pause_seconds=0.05)
    async with (
        HttpFace(always(Saying(stream()))) as face,
        transporting(discover_seconds=0.3) as transport,
    ):
        began = asyncio.get_running_loop().time()
        with pytest.raises(LineBroken):
            await whole(transport, face.url, DISCOVER)
    assert asyncio.get_running_loop().time() - began < 5


async def test_head_that_comes_byte_by_byte_is_given_up() -> None:
    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\nX: ")
            while True:
                writer.write(b".")
                await writer.drain()
                await asyncio.sleep(0.05)

    server = await asyncio.start_server(drip, LOCAL, 0)
    async with server, transporting(head_seconds=0.3) as transport:
        port = server.sockets[0].getsockname()[1]
        for call in (HELLO, Call("order", b"o")):
            with pytest.raises(LineBroken, match=r"did not complete its reply within 0\.3 seconds"):
                await whole(transport, f"http://{LOCAL}:{port}", call)


async def test_long_upload_is_no_silence() -> None:
    async def serve_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(64):
            await reader.readexactly(MIB // 4)
            await asyncio.sleep(0.04)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    listening = socket.create_server((LOCAL, 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)  # little is on the way at once
    server = await asyncio.start_server(serve_slowly, sock=listening, limit=MIB // 4)
    async with server, transporting(silence_seconds=1.5) as transport:
        port = server.sockets[0].getsockname()[1]
        assert await whole(transport, f"http://{LOCAL}:{port}", Call("order", bytes(16 * MIB))) == b"ok"


@pytest.mark.parametrize(
    "last",
    [b"", b"\x17\x03\x03\x00\x40" + bytes(64), b"\x15\x03\x03\x00\x02\x02\x50", b"\x17\x03\x03\x40\x00half"],
    ids=["end without a notice", "record that does not verify", "plain alert", "half a record"],
)
async def test_tls_that_breaks_half_way_through_an_answer_is_a_broken_line(
    tmp_path: Path, last: bytes
) -> None:
    """Between home and host somebody forwards bytes, and then sends these instead and hangs up."""
    make_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    was_read, is_over = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await is_over.wait()
        writer.transport.abort()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            writer.write(data)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection(LOCAL, server.sockets[0].getsockname()[1])
        pumps = [asyncio.create_task(pump(reader, inner[1])), asyncio.create_task(pump(inner[0], writer))]
        await was_read.wait()
        for each in pumps:
            each.cancel()
        writer.write(last)
        writer.close()
        inner[1].close()

    server = await asyncio.start_server(answer, LOCAL, 0, ssl=tls)
    between = await asyncio.start_server(forward, LOCAL, 0)
    async with (
        server,
        between,
        transporting(ca_file=str(tmp_path / "ca.pem"), silence_seconds=600.0) as transport,
        asyncio.timeout(SOON_SECONDS),
        transport.exchange(f"https://{LOCAL}:{between.sockets[0].getsockname()[1]}", HELLO) as reply,
    ):
        assert await anext(reply.chunks) == b"half"
        was_read.set()
        with pytest.raises(LineBroken):
            await anext(reply.chunks)
        is_over.set()


async def test_address_that_does_not_answer_is_given_up() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, LOCAL, 0)
    async with (
        server,
        transporting(connect_seconds=0.3, ca_file=ssl.get_default_verify_paths().cafile) as transport,
    ):
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(LineBroken):  # it never shakes hands
            await whole(transport, f"https://{LOCAL}:{port}", HELLO)
