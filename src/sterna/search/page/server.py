"""Running the page by uvicorn, until it is asked to end."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 256
KEEP_ALIVE_SECONDS = 15
HEAD_SECONDS = 15.0  # in which a request's head must be whole
GRACE_SECONDS = 6  # for requests under way; longer than a search may take


class _Protocol(H11Protocol):
    """Closes a connection on which a request does not begin in time: uvicorn would wait for ever."""

    _head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # garbage behind a request whose answer is on its way
            self.transport.close()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._unwatch()
        elif self._head_due is None:  # however often a letter comes
            self._head_due = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _unwatch(self) -> None:
        if self._head_due:
            self._head_due.cancel()
            self._head_due = None

    def _give_up(self) -> None:
        self._head_due = None
        if self.conn.their_state is h11.IDLE:
            self.transport.close()


class Server(uvicorn.Server):
    """Leaves the signals to us: it ends by `should_exit`, with the exit code that we choose."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(app: ASGIApp) -> Server:
    """The server; `serve(sockets=[...])` runs it."""
    return Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="error",  # below that strangers could fill the log with what they garble
            access_log=False,  # what people search for is theirs
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )


async def serve(
    make_app: Callable[[], ASGIApp], *, listener: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Answers on the socket until SIGTERM or SIGINT; what is under way is answered first.

    `on_ready` is called as soon as a signal would be heard; who calls from then on is answered.
    """
    server = make_server(make_app())

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
