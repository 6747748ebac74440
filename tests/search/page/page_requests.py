"""Asking the page's app: directly, or by a server of its own."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from tests.search.page.trees import Tree, read

from sterna.search.page.api import Bounds
from sterna.search.page.service import make_app, page_server
from sterna.search.results import Searches
from sterna.web.http_app import App, Message


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def html(self) -> Tree:
        """The page; fails if it is none."""
        assert self.headers["content-type"] == "text/html; charset=utf-8"
        return read(self.body.decode())

    @property
    def json(self) -> Any:
        """The object; fails if it is none."""
        assert self.headers["content-type"] in ("application/json", "application/problem+json")
        return msgspec.json.decode(self.body)


def app_of(
    searcher: Searches, *, bounds: Bounds | None = None, is_local: bool = True, name: str = "Terns"
) -> App:
    """The app, as a test wants it."""
    return make_app(searcher, name=name, is_local=is_local, bounds=bounds)


async def ask(
    app: App,
    target: str,
    *,
    method: str = "GET",
    hosts: tuple[str, ...] = ("localhost:8600",),
    more: Mapping[str, str] | None = None,
) -> Answer:
    """One request, without a server between."""
    path, _, query = target.partition("?")
    fields = [*(("host", host) for host in hosts), *(more or {}).items()]
    headers = [(name.encode(), value.encode("latin-1")) for name, value in fields]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode("latin-1"), "root_path": "",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8600),
    }  # fmt: skip
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    names = [name.decode() for name, _ in start["headers"]]
    assert len(names) == len(set(names)), f"a header comes twice: {names}"
    received = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], received, b"".join(message.get("body", b"") for message in sent[1:]))


@contextmanager
def served(searcher: Searches, *, bounds: Bounds | None = None) -> Iterator[str]:
    """The URL of a real server for this searcher, in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    running: list[Any] = []
    ready = threading.Event()

    async def run() -> None:
        server = page_server(app_of(searcher, bounds=bounds))
        running.append(server)
        ready.set()
        await server.serve(sockets=[listener])

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield f"http://127.0.0.1:{port}"
    finally:
        running[0].should_exit = True
        thread.join(20)
        listener.close()
    assert not thread.is_alive()
