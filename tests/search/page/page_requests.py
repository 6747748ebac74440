"""Asking the page's app: directly, or by a server of its own."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from tests.search.page.trees import Tree, read
from tests.web import asgi

from sterna.search.page.api import Bounds
from sterna.search.page.service import make_app, page_server
from sterna.search.results import Searches
from sterna.web.http_app import App


class PageReply(asgi.Reply):
    """What came back, read."""

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


async def ask(app: App, target: str, **options: Any) -> PageReply:
    """One request, without a server between; options are those of `tests.web.asgi.ask`."""
    reply = await asgi.ask(app, target, **options)
    return PageReply(reply.status, reply.headers, reply.body)


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
