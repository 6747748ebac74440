"""Serves an ASGI application by uvicorn; a client that sends nothing, or too little, is disconnected."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_network
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

SHARE = 8  # one client address may have this part of all connections without a complete request
_INCOMPLETE = (h11.IDLE, h11.SEND_BODY)  # no request yet, or one whose body is still to come


class _Protocol(H11Protocol):
    """Closes a connection whose request head is not complete in time: uvicorn would wait for ever.

    If one address has too many connections without a complete request, the oldest of them are closed. If all
    places are taken, so is one of those of all addresses: uvicorn would refuse everybody. The time for a body
    is the application's to bound.
    """

    # Set for all connections of a server by make_server().
    head_seconds: float
    most: int  # connections
    most_waiting: int
    # By address, the oldest first; changed by _watch() and _unwatch().
    waiting: "dict[str, dict[_Protocol, None]]"
    # Of each connection; changed by the methods here alone.
    _head_due: asyncio.TimerHandle | None = None
    _address = ""
    _since = 0.0  # when it began to wait for its next request
    _received_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = _address_of(self.client[0] if self.client else "")
        self._make_room()
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # garbage after a request whose response is being sent
            self.transport.close()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()  # nobody reads the rest of the request
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def _watch(self) -> None:
        state = self.conn.their_state
        if state not in _INCOMPLETE or self.transport.is_closing():
            self._unwatch()
            return
        if state is not h11.IDLE:
            self._stop_timer()
        elif self._head_due is None:  # one byte now and then does not extend the time
            self._head_due = self.loop.call_later(self.head_seconds, self._give_up)
        others = self.waiting.setdefault(self._address, {})
        if self not in others:
            others[self] = None
            self._since = self.loop.time()
        if len(others) > self.most_waiting:
            next(iter(others))._give_up()

    def _unwatch(self) -> None:
        self._stop_timer()
        others = self.waiting.get(self._address, {})
        others.pop(self, None)
        if not others:
            self.waiting.pop(self._address, None)

    def _make_room(self) -> None:
        """Closes a connection without a complete request, if this one takes the last place."""
        if len(self.connections) < self.most:
            return
        waiting = [(each, len(others)) for others in self.waiting.values() for each in others]
        if waiting:
            victim, _ = min(waiting, key=_standing)
            victim._give_up()
            self.connections.discard(victim)  # now: more may come before its transport is closed

    def _stop_timer(self) -> None:
        if self._head_due:
            self._head_due.cancel()
            self._head_due = None

    def _give_up(self) -> None:
        self._unwatch()
        if self.conn.their_state in _INCOMPLETE:
            self.transport.close()


def _standing(waiting: tuple[_Protocol, int]) -> tuple[bool, int, float]:
    """Who is closed first: an incomplete head before a body, of the address that has most of them.

    Of heads the oldest, so that a slow line has time for its own; of bodies the one of which least has come.
    """
    each, of_its_address = waiting
    has_head = each.conn.their_state is not h11.IDLE
    return has_head, -of_its_address, each._received_bytes if has_head else each._since


def _address_of(host: str) -> str:
    """The client's address, of IPv6 its network: one client may have all of it."""
    return str(ip_network((host, 64), strict=False)) if ":" in host and "%" not in host else host


class Server(uvicorn.Server):
    """Handles no signals itself; `should_exit` ends it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(
    app: Any, *, head_seconds: float, connections: int, keep_alive_seconds: int, grace_seconds: int
) -> Server:
    """A server; `head_seconds` is the time for a request's head, `grace_seconds` for requests at its end."""
    shared = {
        "head_seconds": head_seconds,
        "most": connections,
        "most_waiting": max(connections // SHARE, 1),
        "waiting": {},
    }
    protocol = type("Protocol", (_Protocol,), shared)
    return Server(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="error",  # at lower levels malformed requests could fill the log
            access_log=False,  # what people ask for is private
            server_header=False,
            proxy_headers=False,
            limit_concurrency=connections,
            timeout_keep_alive=keep_alive_seconds,
            timeout_graceful_shutdown=grace_seconds,
        )
    )


async def serve_until_signalled(
    server: Server,
    listener: socket.socket,
    *,
    on_ready: Callable[[], None],
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serves until SIGTERM or SIGINT; calls `on_ready` once requests are queued, `on_stop` at the signal."""

    def stop() -> None:
        on_stop()
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


@asynccontextmanager
async def serving(server: Server, listener: socket.socket) -> AsyncIterator[None]:
    """Serves beside other work until the block ends."""
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
