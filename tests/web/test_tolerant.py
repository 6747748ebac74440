"""The tolerant client: what it makes of malformed answers, and its bounds; `tests/odd` has more."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.servers.nginx import NginxServer, serve

from sterna.errors import FetchError
from sterna.web.bodies import SMALL_BYTES, BodyRoom
from sterna.web.http import Request
from sterna.web.tolerant import fetch_tolerantly

OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def saying(answer: bytes, *, then_hang: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """The URL of a server that sends these bytes and hangs up, or waits; and what it was asked."""
    asked: list[bytes] = []
    is_over = asyncio.Event()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if then_hang:
            await is_over.wait()
        writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1")
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/page?x=1", asked
    finally:
        is_over.set()
        server.close()


async def failure(answer: bytes, *, then_hang: bool = False, **fields: object) -> str:
    async with saying(answer, then_hang=then_hang) as (url, _):
        with pytest.raises(FetchError) as error:
            await fetch_tolerantly(Request(url=url, address="127.0.0.1", **fields))  # type: ignore[arg-type]
    return error.value.kind


@pytest.mark.parametrize(
    ("answer", "body", "is_cut"),
    [
        (OK + b"Powered by terns\r\n\r\nok", b"ok", False),
        (b"\r\nab" + OK + b"Content-Length: 2\r\n\r\nok and more", b"ok", False),
        (b"HTTP/1.1 103 Hints\r\n\r\n" + OK + b"\r\nok", b"ok", False),
        (OK + b"Content-Length: 5\r\n\r\nok", b"ok", True),
        (OK + b"Content-Length: two\r\n\r\nok", b"ok", False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0x2 ;a\r\nok\r\n0\r\nTrailer\r\n\r\n", b"ok", False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\nok\nzz\r\n", b"ok", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nok", b"ok", True),
    ],
)
async def test_what_browsers_read_of_a_malformed_answer_is_read(
    answer: bytes, body: bytes, is_cut: bool
) -> None:
    async with saying(answer) as (url, _):
        response = await fetch_tolerantly(Request(url=url, address="127.0.0.1"))
    assert (response.status, response.body, response.is_cut) == (200, body, is_cut)
    assert response.head.startswith(OK) or b"ab" in response.head


async def test_blank_lines_and_digits_without_an_end_are_refused_or_cut() -> None:
    assert await failure(b"\r\n" * 1_000, then_hang=True, timeout_seconds=20.0) == "protocol"
    async with saying(OK + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\nok") as (url, _):
        response = await fetch_tolerantly(Request(url=url, address="127.0.0.1"))
    assert (response.body, response.is_cut) == (b"ok", True)


async def test_the_request_has_its_headers_and_those_that_are_private() -> None:
    async with saying(OK + b"\r\nok") as (url, asked):
        request = Request(url=url, headers=(("User-Agent", "tern"),), private=(("Cookie", "a=b"),))
        await fetch_tolerantly(request)
    (head,) = asked
    assert head.startswith(b"GET /page?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nUser-Agent: tern\r\nCookie: a=b\r\n" in head


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", "empty"),
        (b"<html>no head</html>", "protocol"),
        (OK + b"Content-Ty", "truncated"),
        (OK + b"Content-Length: 5\r\n\r\n", "truncated"),
        (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", "protocol"),
        (OK + b"X: a\0b\r\n\r\nok", "protocol"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nno chunk", "protocol"),
        (OK + b"X: " + b"x" * 300_000, "too_large"),
        (OK + b"X: 1\r\n" * 100_000, "too_large"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100, "protocol"),
    ],
)
async def test_what_is_no_answer_is_refused_by_kind(answer: bytes, kind: str) -> None:
    assert await failure(answer) == kind


async def test_a_body_is_bounded() -> None:
    assert await failure(OK + b"\r\n" + b"x" * 101, max_bytes=100) == "too_large"
    async with saying(OK + b"\r\n" + b"x" * 101) as (url, _):
        response = await fetch_tolerantly(Request(url=url, max_bytes=100, may_cut=True))
    assert len(response.body) == 100


async def test_a_body_in_tiny_pieces_is_refused() -> None:
    splinters = OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"2\r\naa\r\n" * 200_000
    assert await failure(splinters) == "protocol"


async def test_an_answer_that_never_ends_is_given_up() -> None:
    assert await failure(OK, then_hang=True, timeout_seconds=0.2) == "timeout"
    with pytest.raises(FetchError, match="connect"):
        await fetch_tolerantly(Request(url="http://127.0.0.1:9/"))


async def test_a_large_body_claims_its_room_and_gives_back_the_rest() -> None:
    room = BodyRoom(4 * SMALL_BYTES)
    body = b"x" * (2 * SMALL_BYTES)
    async with saying(OK + b"\r\n" + body) as (url, _):
        with room.claim() as claim:
            request = Request(url=url, max_bytes=3 * SMALL_BYTES, claim=claim)
            assert len((await fetch_tolerantly(request)).body) == len(body)
            assert room.left_bytes == 2 * SMALL_BYTES
    assert room.left_bytes == 4 * SMALL_BYTES


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxServer]:
    root = tmp_path_factory.mktemp("root")
    (root / "index.html").write_text("<title>Index</title>")
    with serve(root, folder=tmp_path_factory.mktemp("nginx"), http2_tls=True) as server:
        yield server


@pytest.mark.servers
async def test_certificates_are_verified(nginx: NginxServer, tmp_path: Path) -> None:
    request = Request(url=nginx.tls_url, address="127.0.0.1")
    assert b"Index" in (await fetch_tolerantly(request, ca_file=str(nginx.ca_path))).body
    with pytest.raises(FetchError) as error:
        await fetch_tolerantly(request)
    assert error.value.kind == "tls"
