"""Serving HTTP by uvicorn, so that nobody can hold a connection by saying nothing, or nearly nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


class _Protocol(H11Protocol):
    """Closes a connection on which a request does not begin in time: uvicorn would wait for ever."""

    head_seconds = 20.0  # in which a request's head must be whole
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
            self._head_due = self.loop.call_later(self.head_seconds, self._give_up)

    def _unwatch(self) -> None:
        if self._head_due:
            self._head_due.cancel()
            self._head_due = None

    def _give_up(self) -> None:
        self._head_due = None
        if self.conn.their_state is h11.IDLE:
            self.transport.close()


class Server(uvicorn.Server):
    """Leaves the signals to whoever made it: it ends by `should_exit`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(
    app: Any, *, head_seconds: float, connections: int, keep_alive_seconds: int, grace_seconds: int
) -> Server:
    """The server of an ASGI application; `serve(sockets=[...])` runs it."""
    protocol = type("Protocol", (_Protocol,), {"head_seconds": head_seconds})
    return Server(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="error",  # below that strangers could fill the log with what they garble
            access_log=False,  # what people ask for is theirs
            server_header=False,
            proxy_headers=False,
            limit_concurrency=connections,
            timeout_keep_alive=keep_alive_seconds,
            timeout_graceful_shutdown=grace_seconds,
        )
    )
