"""Running the page by uvicorn, until it is asked to end."""

import asyncio
import signal
import socket
from collections.abc import Callable

from starlette.types import ASGIApp

from sterna.web.http_server import Server, make_server

MAX_CONNECTIONS = 256
KEEP_ALIVE_SECONDS = 15
HEAD_SECONDS = 15.0  # in which a request's head must be whole
GRACE_SECONDS = 6  # for requests under way; longer than a search may take


def page_server(app: ASGIApp) -> Server:
    """The server of the page; `serve(sockets=[...])` runs it."""
    return make_server(
        app,
        head_seconds=HEAD_SECONDS,
        connections=MAX_CONNECTIONS,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        grace_seconds=GRACE_SECONDS,
    )


async def serve(
    make_app: Callable[[], ASGIApp], *, listener: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Answers on the socket until SIGTERM or SIGINT; what is under way is answered first.

    `on_ready` is called as soon as a signal would be heard; who calls from then on is answered.
    """
    server = page_server(make_app())

    def stop() -> None:
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    on_ready()
    try:
        await server.serve(sockets=[listener])
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
