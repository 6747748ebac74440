"""Fetching from real servers: a well-behaved one, a hostile one, one that says what a test wrote down."""

import asyncio
import contextlib
import gzip
import resource
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import brotli
import pytest
import uvloop
import zstandard
from tests.servers.hostile import HostileServer
from tests.servers.nginx import NginxServer, serve
from tests.servers.plain import Listener, in_thread
from tests.servers.plain import Request as Arrived
from tests.servers.proxy import ForwardProxy

from sterna.errors import FetchError
from sterna.web import curl
from sterna.web.bodies import SMALL_BYTES, BodyRoom
from sterna.web.curl import CurlConfig, CurlFetcher
from sterna.web.http import Request, Response

pytestmark = pytest.mark.servers

LOCAL = "127.0.0.1"
LOOPS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MIB = 1 << 20

Loop = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
async def fetcher() -> AsyncIterator[CurlFetcher]:
    async with fetching() as fetcher:
        yield fetcher


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxServer]:
    root = tmp_path_factory.mktemp("root")
    (root / "index.html").write_text("<title>Index</title>" + "<p>A page. " * 1000)
    extra = "add_header X-Connection $connection; add_header X-Host $http_host;"
    with serve(root, folder=tmp_path_factory.mktemp("nginx"), extra=extra, http2_tls=True) as server:
        yield server


@pytest.fixture(scope="module")
def hostile() -> Iterator[HostileServer]:
    with HostileServer(addresses=(LOCAL, "127.0.0.2")).run_in_thread() as server:
        yield server


@asynccontextmanager
async def fetching(**fields: Any) -> AsyncIterator[CurlFetcher]:
    fetcher = CurlFetcher(CurlConfig(**fields))
    try:
        yield fetcher
    finally:
        await fetcher.close()


async def get(fetcher: CurlFetcher, url: str, *, address: str = LOCAL, **fields: Any) -> Response:
    return await fetcher.fetch(Request(url=url, address=address, **fields))


async def failure(fetcher: CurlFetcher, url: str, **fields: Any) -> str:
    """The kind of error that the request ends with, soon."""
    with pytest.raises(FetchError) as error:
        await asyncio.wait_for(get(fetcher, url, **fields), 20)
    return error.value.kind


@contextmanager
def saying(replies: Mapping[str, bytes]) -> Iterator[str]:
    """The URL of a server that answers each path with these very bytes, and then hangs up."""

    async def answer(request: Arrived, writer: asyncio.StreamWriter) -> bool:
        writer.write(replies[request.path])
        await writer.drain()
        return False

    with in_thread(Listener(answer)) as listener:
        yield f"http://{LOCAL}:{listener.port}"


# Connections


async def test_one_connection_serves_many_requests(nginx: NginxServer, fetcher: CurlFetcher) -> None:
    replies = [await get(fetcher, f"{nginx.url}/?{n}") for n in range(20)]
    assert {reply.status for reply in replies} == {200}
    assert len({reply.header("x-connection") for reply in replies}) == 1


async def test_fresh_request_has_a_connection_of_its_own(nginx: NginxServer, fetcher: CurlFetcher) -> None:
    kept = await get(fetcher, nginx.url)
    fresh = [await get(fetcher, nginx.url, is_fresh=True) for _ in range(2)]
    again = await get(fetcher, nginx.url)
    assert again.header("x-connection") == kept.header("x-connection")
    assert len({reply.header("x-connection") for reply in (kept, *fresh)}) == 3


async def test_http2_over_tls_shares_one_connection(nginx: NginxServer) -> None:
    async with fetching(ca_file=str(nginx.ca_path)) as fetcher:
        first = await get(fetcher, nginx.tls_url)
        rest = await asyncio.gather(*(get(fetcher, f"{nginx.tls_url}/?{n}") for n in range(50)))
    assert first.is_http2
    assert first.head.startswith(b"HTTP/2 200")
    assert {(reply.status, reply.is_http2) for reply in rest} == {(200, True)}
    assert {reply.header("x-connection") for reply in rest} == {first.header("x-connection")}


@asynccontextmanager
async def breaking(server: NginxServer, *, after_bytes: int, way: str) -> AsyncIterator[str]:
    """A line to the server over TLS that breaks in this way after so many bytes of its answers."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = server.tls_url.removeprefix("https://").split(":")
        theirs, ours = await asyncio.open_connection(host, int(port))
        sending = asyncio.create_task(pump(reader, ours))
        with contextlib.suppress(ConnectionError):
            writer.write(await read_up_to(theirs, after_bytes))
            if way == "garbage":
                writer.write(b"\x17\x03\x03\x00\x40" + bytes(64))
            elif way == "silence":
                await asyncio.wait_for(sending, 20)  # until the client leaves
            await writer.drain()
        sending.cancel()
        for each in (writer, ours):
            each.close()

    listener = await asyncio.start_server(carry, LOCAL, 0)
    async with listener:
        yield f"https://{LOCAL}:{listener.sockets[0].getsockname()[1]}"


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)


async def read_up_to(reader: asyncio.StreamReader, count: int) -> bytes:
    with contextlib.suppress(asyncio.IncompleteReadError):
        return await reader.readexactly(count)
    raise AssertionError("the server said less")


@pytest.mark.parametrize("way", ["hangs up", "garbage", "silence"])
@pytest.mark.parametrize("after_bytes", [0, 5, 300, 1_000])
async def test_tls_that_fails_half_way_is_an_error_of_that_request(
    nginx: NginxServer, after_bytes: int, way: str
) -> None:
    """Before, within and after the handshake, whose answers have 900 bytes or so."""
    async with (
        breaking(nginx, after_bytes=after_bytes, way=way) as broken,
        fetching(ca_file=str(nginx.ca_path)) as fetcher,
    ):
        kind = await failure(fetcher, f"{broken}/", timeout_seconds=1)
        after = await get(fetcher, nginx.tls_url)
    assert kind in ({"timeout", "connect"} if way == "silence" else {"tls", "connect"})
    assert after.status == 200


async def test_plain_http_is_http_1(nginx: NginxServer, fetcher: CurlFetcher) -> None:
    assert not (await get(fetcher, nginx.url)).is_http2


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("run", LOOPS)
def test_thousand_requests_at_once_are_all_answered(hostile: HostileServer, run: Loop) -> None:
    async def ask() -> None:
        async with fetching(connections=1000) as fetcher:
            for path in ("slow?seconds=1&", "leaf/"):
                replies = await asyncio.gather(
                    *(get(fetcher, f"{hostile.url}/{path}{n}") for n in range(1000))
                )
                assert [reply.status for reply in replies] == [200] * 1000

    run(ask())


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for both ends of a thousand connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_idle_connections_give_way_to_other_servers() -> None:
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(HostileServer().run_in_thread()).url for _ in range(4)]
        async with fetching(connections=2) as fetcher:
            replies = [await get(fetcher, f"{url}/leaf/a", timeout_seconds=5) for url in urls * 3]
    assert [reply.status for reply in replies] == [200] * 12


# Whom it talks to


async def test_address_is_obeyed_and_the_host_header_kept(
    hostile: HostileServer, fetcher: CurlFetcher
) -> None:
    url = f"http://named.test:{hostile.port}/leaf/pinned"
    for address in (LOCAL, "127.0.0.2", LOCAL):
        assert (await get(fetcher, url, address=address)).status == 200
    hits = [hit for hit in hostile.log if hit.path == "/leaf/pinned"]
    assert [hit.address for hit in hits] == [LOCAL, "127.0.0.2", LOCAL]
    assert {hit.headers["host"] for hit in hits} == {f"named.test:{hostile.port}"}


async def test_address_may_be_of_ipv6(fetcher: CurlFetcher) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with HostileServer(addresses=("::1",)).run_in_thread() as server:
        for host in ("named.test", "[::1]"):
            url = f"http://{host}:{server.port}/leaf/six"
            assert (await get(fetcher, url, address="::1")).status == 200
    assert [hit.address for hit in server.log] == ["::1", "::1"]
    assert server.log[0].headers["host"] == f"named.test:{server.port}"


async def test_nobody_is_believed_whom_no_authority_vouches_for(
    nginx: NginxServer, fetcher: CurlFetcher, tmp_path: Path
) -> None:
    assert await failure(fetcher, nginx.tls_url) == "tls"
    async with fetching(ca_file=str(nginx.ca_path)) as trusting:
        port = nginx.tls_url.rpartition(":")[2]
        assert await failure(trusting, f"https://other.test:{port}/") == "tls"
        assert (await get(trusting, nginx.tls_url)).status == 200
    async with fetching(ca_file=str(tmp_path / "none.pem")) as misled:
        assert await failure(misled, nginx.tls_url) == "tls"


async def test_configured_proxy_is_used_for_http_and_https(
    nginx: NginxServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")
    with in_thread(ForwardProxy()) as proxy:
        async with fetching(proxy=proxy.url, ca_file=str(nginx.ca_path)) as fetcher:
            plain = await get(fetcher, f"{nginx.url}/", address="")
            secure = await get(fetcher, f"{nginx.tls_url}/", address="")
    assert proxy.requests == [f"GET {nginx.url}/", f"CONNECT {nginx.tls_url.removeprefix('https://')}"]
    assert (plain.status, secure.status) == (200, 200)
    assert secure.is_http2
    assert not secure.header("x-proxy")


async def test_proxy_of_the_environment_is_not_used(
    hostile: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(ForwardProxy()) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with fetching() as fetcher:
            reply = await get(fetcher, f"{hostile.url}/leaf/a")
    assert reply.status == 200
    assert proxy.requests == []


async def test_proxy_that_is_not_there_is_an_error() -> None:
    async with fetching(proxy="http://127.0.0.1:1") as fetcher:
        assert await failure(fetcher, "http://site.test/", address="") in {"connect", "proxy"}


async def test_redirects_cookies_and_paths_are_left_as_they_are(
    hostile: HostileServer, fetcher: CurlFetcher
) -> None:
    moved = await get(fetcher, f"{hostile.url}/redirect?to=/leaf/x")
    assert (moved.status, moved.header("location")) == (302, "/leaf/x")
    for _ in range(2):
        assert b"none" in (await get(fetcher, f"{hostile.url}/cookie-set")).body
    await get(fetcher, f"{hostile.url}/leaf/../leaf/./y")
    assert hostile.paths()[-1] == "/leaf/../leaf/./y"


async def test_headers_go_out_as_given_even_beyond_ascii(
    hostile: HostileServer, fetcher: CurlFetcher
) -> None:
    headers = (("User-Agent", "Sterna/1"), ("If-None-Match", '"é"'))
    await get(fetcher, f"{hostile.url}/leaf/headers", headers=headers)
    sent = hostile.log[-1].headers
    assert (sent["user-agent"], sent["if-none-match"]) == ("Sterna/1", '"é"')


# What comes back


async def test_body_arrives_as_it_was_compressed(nginx: NginxServer, fetcher: CurlFetcher) -> None:
    headers = (("Accept-Encoding", "gzip, br, zstd"),)
    reply = await get(fetcher, nginx.url, headers=headers)
    assert reply.header("content-encoding") == "gzip"
    assert gzip.decompress(reply.body).startswith(b"<title>Index</title>")
    bodies = {"br": brotli.compress(b"page"), "zstd": zstandard.compress(b"page")}
    replies = {
        f"/{name}": b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b"
        % (name.encode(), len(body), body)
        for name, body in bodies.items()
    }
    with saying(replies) as url:
        assert {name: (await get(fetcher, f"{url}/{name}")).body for name in bodies} == bodies


async def test_response_tells_its_head_its_size_and_its_time(
    hostile: HostileServer, fetcher: CurlFetcher
) -> None:
    reply = await get(fetcher, f"{hostile.url}/slow?seconds=0.2")
    assert reply.head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert reply.head.endswith(b"\r\n\r\n")
    assert reply.wire_bytes == len(reply.head) + len(reply.body)
    assert 0.2 <= reply.seconds < 2.0


@pytest.mark.parametrize(
    "interim",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nContent-Encoding: gzip\r\nLocation: /lost\r\n\r\n" * 3,
    ],
)
async def test_interim_head_is_not_the_response(fetcher: CurlFetcher, interim: bytes) -> None:
    with saying({"/": interim + OK}) as url:
        reply = await get(fetcher, f"{url}/")
    assert (reply.status, reply.body) == (200, b"ok")
    assert reply.head == OK.removesuffix(b"ok")
    assert reply.headers == (("content-length", "2"),)


async def test_trailers_are_ignored(fetcher: CurlFetcher) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Location\r\n\r\n"
    with saying({"/": head + b"2\r\nok\r\n0\r\nLocation: /elsewhere\r\n\r\n"}) as url:
        reply = await get(fetcher, f"{url}/")
    assert (reply.head, reply.body) == (head, b"ok")
    assert reply.header("location") == ""


async def test_lines_of_a_head_may_end_with_a_bare_line_feed(fetcher: CurlFetcher) -> None:
    head = b"HTTP/1.1 200 OK\nContent-Type: text/plain\nTransfer-Encoding: chunked\n\n"
    with saying({"/": head + b"2\r\nok\r\n0\r\nContent-Type: text/html\r\n\r\n"}) as url:
        reply = await get(fetcher, f"{url}/")
    assert (reply.header("content-type"), reply.body) == ("text/plain", b"ok")


# How much of it


@pytest.mark.parametrize("path", ["/big?mb=100", "/endless"])
async def test_body_beyond_the_limit_is_refused_and_memory_stays_bounded(
    hostile: HostileServer, fetcher: CurlFetcher, path: str
) -> None:
    tracemalloc.start()
    try:
        assert await failure(fetcher, hostile.url + path, max_bytes=8 * MIB) == "too_large"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * MIB


SPLINTERS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"2\r\naa\r\n" * 500_000 + b"0\r\n\r\n"


@pytest.mark.parametrize("may_cut", [False, True])
async def test_body_in_tiny_pieces_is_refused_before_it_fills_the_memory(
    fetcher: CurlFetcher, may_cut: bool
) -> None:
    with saying({"/": SPLINTERS}) as url:
        tracemalloc.start()
        try:
            with pytest.raises(FetchError, match="tiny pieces") as error:
                await get(fetcher, f"{url}/", may_cut=may_cut, max_bytes=16 * MIB)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert error.value.kind == "protocol"
    assert peak < 4 * MIB


async def test_length_that_no_number_holds_is_too_large(fetcher: CurlFetcher) -> None:
    with saying({"/": b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\nok" % (b"9" * 40)}) as url:
        assert await failure(fetcher, f"{url}/") == "too_large"


@pytest.mark.parametrize("path", ["/big?mb=100", "/endless"])
async def test_body_that_may_be_cut_is_cut_at_the_limit(
    hostile: HostileServer, fetcher: CurlFetcher, path: str
) -> None:
    reply = await get(fetcher, hostile.url + path, max_bytes=100_000, may_cut=True)
    assert (reply.status, len(reply.body)) == (200, 100_000)


@pytest.mark.parametrize(("max_bytes", "is_cut"), [(MIB, False), (MIB - 1, True)])
async def test_body_of_just_the_limit_is_whole(
    hostile: HostileServer, fetcher: CurlFetcher, max_bytes: int, is_cut: bool
) -> None:
    reply = await get(fetcher, f"{hostile.url}/big?mb=1", max_bytes=max_bytes, may_cut=True)
    assert len(reply.body) == max_bytes
    if not is_cut:
        assert (await get(fetcher, f"{hostile.url}/big?mb=1", max_bytes=max_bytes)).body == reply.body


# When


async def test_server_that_never_answers_is_left_at_the_timeout(
    hostile: HostileServer, fetcher: CurlFetcher
) -> None:
    began = time.monotonic()
    assert await failure(fetcher, f"{hostile.url}/slow?seconds=30", timeout_seconds=0.3) == "timeout"
    assert 0.3 <= time.monotonic() - began < 5


async def test_body_that_drips_is_left_long_before_the_timeout(
    hostile: HostileServer, fetcher: CurlFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curl, "SLOW_SECONDS", 1)
    monkeypatch.setattr(hostile, "drip_seconds", 0.05)
    assert await failure(fetcher, f"{hostile.url}/drip", timeout_seconds=60) == "timeout"


async def test_address_that_swallows_the_connection_is_one_that_does_not_connect(
    fetcher: CurlFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curl, "CONNECT_SECONDS", 1)
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server((LOCAL, 0), backlog=0))
        for _ in range(4):  # whoever comes after these is not heard
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        assert await failure(fetcher, f"http://{LOCAL}:{full.getsockname()[1]}/") == "connect"


# What is none


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/cut", "truncated"),
        ("/reset", "network"),
        ("/empty", "empty"),
        ("/garbage", "protocol"),
        ("/badheaders", "network"),
    ],
)
async def test_misdeed_is_an_error_and_the_next_request_is_answered(
    hostile: HostileServer, fetcher: CurlFetcher, path: str, kind: str
) -> None:
    assert await failure(fetcher, hostile.url + path) == kind
    assert (await get(fetcher, f"{hostile.url}/leaf/a")).status == 200


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok", "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nok", "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "truncated"),
        (b"HTTP/1.1 200 OK\r\nContent-Ty", "truncated"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok", "network"),
        (b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!", "protocol"),
        (b"HTTP/1.1 200 OK\r\nX: %b\r\n\r\nok" % (b"x" * MIB), "too_large"),
        (b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 10_000 + OK, "too_large"),
        (b"HTTP/1.1 000 OK\r\n\r\nok", "protocol"),
        (b"HTTP/3 200 OK\r\n\r\nok", "protocol"),
        (b"<title>What came before HTTP/1.0</title>", "protocol"),
    ],
)
async def test_nonsense_is_an_error_of_its_kind(fetcher: CurlFetcher, said: bytes, kind: str) -> None:
    with saying({"/": said}) as url:
        assert await failure(fetcher, f"{url}/", timeout_seconds=10) == kind


async def test_nobody_there_and_no_web_are_errors(fetcher: CurlFetcher) -> None:
    assert await failure(fetcher, "http://127.0.0.1:1/") == "connect"
    assert await failure(fetcher, "ftp://127.0.0.1/") == "protocol"
    assert await failure(fetcher, "file:///etc/passwd") == "protocol"


# How it ends


@pytest.mark.parametrize("run", LOOPS)
def test_cancelled_fetch_hangs_up_and_leaves_a_fetcher_that_works(hostile: HostileServer, run: Loop) -> None:
    async def cancel() -> None:
        arrived, left = asyncio.Event(), asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set()
            await reader.read()  # to the end of the connection
            left.set()
            writer.close()

        silent = await asyncio.start_server(listen, LOCAL, 0)
        url = f"http://{LOCAL}:{silent.sockets[0].getsockname()[1]}/"
        async with silent, fetching(connections=1) as fetcher:
            for _ in range(3):
                waiting = asyncio.create_task(get(fetcher, url))
                await asyncio.wait_for(arrived.wait(), 5)
                waiting.cancel()
                await asyncio.wait_for(left.wait(), 5)
                assert waiting.cancelled()
                arrived.clear()
                left.clear()
            assert (await get(fetcher, f"{hostile.url}/leaf/a")).status == 200

    run(cancel())


@pytest.mark.parametrize("run", LOOPS)
def test_close_cancels_who_waits_and_leaves_no_descriptors(run: Loop) -> None:
    counts: list[int] = []

    async def fetch_and_close() -> None:
        with HostileServer().run_in_thread() as server:
            fetcher = CurlFetcher(CurlConfig())
            await asyncio.gather(*(get(fetcher, f"{server.url}/leaf/{n}") for n in range(20)))
            waiting = asyncio.create_task(get(fetcher, f"{server.url}/slow?seconds=30"))
            await get(fetcher, f"{server.url}/slow?seconds=0.1")
            await fetcher.close()
            assert waiting.cancelled()

    for _ in range(3):  # the first round also opens what the process keeps
        run(fetch_and_close())
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[0] >= counts[1] == counts[2]


# Room for bodies

LARGE = 4 * SMALL_BYTES


def with_length(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def in_chunks(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n"  # chunks win
    return head + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"


async def test_sum_of_large_bodies_is_bounded_and_those_beyond_it_wait(fetcher: CurlFetcher) -> None:
    """Bodies that are received, or wait to be read, take no more than there is room for; none is lost."""
    room, received, may_end = BodyRoom(2 * LARGE), asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def fetch(url: str) -> Response:
        with room.claim() as claim:
            response = await get(fetcher, url, claim=claim, max_bytes=LARGE)
            received.release()
            await may_end.acquire()
            return response

    bodies = {f"/{n}": bytes([65 + n]) * LARGE for n in range(8)}
    how = {path: (in_chunks if n % 2 else with_length) for n, path in enumerate(bodies)}
    replies = {path: how[path](body) for path, body in bodies.items()}
    with saying(replies | {"/small": with_length(bytes(SMALL_BYTES))}) as url:
        tasks = {path: asyncio.create_task(fetch(url + path)) for path in bodies}
        async with asyncio.timeout(20):
            for _ in range(2):
                await received.acquire()
            with room.claim() as claim:
                small = await get(fetcher, f"{url}/small", claim=claim)  # it need not wait
            assert (len(small.body), room.left_bytes, received.locked()) == (SMALL_BYTES, 0, True)
            for _ in range(6):
                may_end.release()
                await received.acquire()
                assert room.left_bytes >= 0
            for _ in range(2):
                may_end.release()
            assert {path: (await task).body for path, task in tasks.items()} == bodies
    assert room.left_bytes == 2 * LARGE


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 1\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\r\n Content-Length: 1\r\n\r\n",
    ],
)
async def test_length_that_libcurl_does_not_enforce_makes_no_room(fetcher: CurlFetcher, head: bytes) -> None:
    room = BodyRoom(4 * LARGE)
    with saying({"/": head + bytes(LARGE)}) as url, room.claim() as claim:
        response = await get(fetcher, f"{url}/", claim=claim, max_bytes=2 * LARGE)
        assert len(response.body) == LARGE
        assert room.left_bytes <= 3 * LARGE


async def test_time_that_a_body_waits_for_room_is_not_the_servers(fetcher: CurlFetcher) -> None:
    room = BodyRoom(LARGE)
    with saying({"/": with_length(bytes(LARGE))}) as url, room.claim() as first, room.claim() as second:
        await first.wait(LARGE)
        waiting = asyncio.create_task(get(fetcher, f"{url}/", claim=second, timeout_seconds=0.3))
        done, _ = await asyncio.wait({waiting}, timeout=0.8)
        assert not done
        first.__exit__(None, None, None)
        assert len((await asyncio.wait_for(waiting, 20)).body) == LARGE
        assert (await failure(fetcher, f"{url}/", timeout_seconds=0.001)) in ("timeout", "connect")


async def test_body_that_is_given_up_while_it_waits_leaves_nothing_behind(fetcher: CurlFetcher) -> None:
    room = BodyRoom(LARGE)
    with saying({"/": with_length(bytes(LARGE)), "/small": with_length(b"x")}) as url:
        with room.claim() as first, pytest.raises(TimeoutError), room.claim() as second:
            await first.wait(LARGE)
            async with asyncio.timeout(0.3):
                await get(fetcher, f"{url}/", claim=second)
        assert (room.left_bytes, len(room.waiting)) == (LARGE, 0)
        assert (await get(fetcher, f"{url}/small")).body == b"x"
