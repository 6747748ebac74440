"""The page on a real socket: HEAD, and connections that never become a request."""

import http.client
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.search.page.fakes import FakeSearcher, many_pages
from tests.search.page.page_requests import served

from sterna.search.page import service


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(service, "HEAD_SECONDS", 0.3)
    with served(FakeSearcher(many_pages(25))) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)


def test_head_is_get_without_its_body(address: tuple[str, int]) -> None:
    answers = []
    for method in ("GET", "HEAD"):
        connection = http.client.HTTPConnection(*address, timeout=20)
        connection.request(method, "/?q=select")
        answer = connection.getresponse()
        headers = {name: value for name, value in answer.getheaders() if name != "date"}
        answers.append((answer.status, headers, answer.read()))
        connection.close()
    (status, headers, body), (head_status, head_headers, head_body) = answers
    assert (status, len(body), head_body) == (200, int(headers["content-length"]), b"")
    assert head_status == status
    # The time that a search took is part of the page.
    assert set(head_headers) == set(headers)
    assert "server" not in headers


def test_connection_on_which_no_request_comes_is_closed(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        began = time.monotonic()
        assert client.recv(100) == b""
        assert 0.1 < time.monotonic() - began < 10


def test_slow_heads_of_one_address_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CONNECTIONS", 64)
    with ExitStack() as stack:
        url = stack.enter_context(served(FakeSearcher(many_pages(25))))
        host, _, port = url.removeprefix("http://").partition(":")
        for _ in range(2 * 64):
            slow = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            slow.sendall(b"GET /?q=se")
        for _ in range(3):
            with urllib.request.urlopen(f"{url}/?q=select", timeout=10) as answer:
                assert answer.status == 200


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\x02\x00", b"GET /\r\n\r\n\r\n", b"GET /?q=" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n"],
)
def test_garbage_ends_its_own_connection_only(address: tuple[str, int], sent: bytes) -> None:
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(sent + b"\r\n\r\n")
        assert client.recv(4096)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.0 400")
    with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/healthz", timeout=20) as answer:
        assert answer.status == 200
