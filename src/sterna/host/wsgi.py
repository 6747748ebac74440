"""The host as a WSGI application (PEP 3333), for servers that have no ASGI: gunicorn, uWSGI, mod_wsgi.

Its service runs in a loop of its own, in a thread that starts with the first request: a server that forks its
workers does so before.
"""

import asyncio
import atexit
import logging
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, aclosing, closing
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sterna.errors import ConfigError, SternaError
from sterna.host.calls import HostRequest, Reply, refusal
from sterna.host.config import HostConfig, read_host_file
from sterna.host.files import lock
from sterna.host.keyring import Keyring
from sterna.host.owner.control import open_control
from sterna.host.service import Service
from sterna.web.clock import SystemClock
from sterna.wire.problems import problem

CHUNK_BYTES = 64 * 1024
STALL_SECONDS = 120.0  # in which a stream must have sent something
CLOSE_SECONDS = 15.0  # for visits to end with the process

T = TypeVar("T")
StartResponse = Callable[[str, list[tuple[str, str]]], object]

_log = logging.getLogger(__name__)


class Input(Protocol):
    """The body of a request, as WSGI has it."""

    def read(self, size: int, /) -> bytes: ...


class Application:
    """Answers requests of a server's threads."""

    def __init__(self, settings: str | Path, *, keeps_visits: bool = False) -> None:
        """The host that a host.toml describes; ConfigError if it is invalid.

        Each process of a server has its own service. So visits are not kept: each ends with its stream, as at
        a CGI program. With `keeps_visits` they outlive it; the server must have one process then, with
        threads.
        """
        self._config = read_host_file(Path(settings))
        self._keeps_visits = keeps_visits
        self._starting = threading.Lock()
        self._engine: _Engine | None = None  # changed by _started() alone; that of this process

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        reply, engine = self._reply(environ)
        phrase = HTTPStatus(reply.status).phrase
        start_response(f"{reply.status} {phrase}", reply.fields())
        if isinstance(reply.body, bytes):
            return [reply.body]
        assert engine
        return _Stream(engine, reply.body)

    def close(self) -> None:
        """Ends visits and the thread; a later request starts another."""
        with self._starting:
            if self._engine and self._engine.pid == os.getpid():
                self._engine.close()
            self._engine = None

    def _reply(self, environ: dict[str, Any]) -> "tuple[Reply, _Engine | None]":
        try:
            engine = self._started()
        except SternaError as error:
            _log.error("the host cannot start: %s", error)
            return refusal(problem("internal")), None
        written = environ.get("CONTENT_LENGTH") or ""
        is_length = written.isascii() and written.isdigit() and len(written) < 12
        body = _Body(environ["wsgi.input"], int(written) if is_length else 0)
        request = HostRequest(
            environ["REQUEST_METHOD"],
            environ.get("PATH_INFO", ""),
            body.chunks(),
            announced=body.left,
            if_none_match=environ.get("HTTP_IF_NONE_MATCH", ""),
            host=environ.get("HTTP_HOST", ""),
        )
        answering = engine.begin(engine.service.respond(request))
        answering.add_done_callback(lambda _: body.wanted.put(None))
        body.serve()
        return answering.result(), engine

    def _started(self) -> "_Engine":
        with self._starting:
            # Or the server forked after a request, which left the thread behind.
            if self._engine is None or self._engine.pid != os.getpid():
                self._engine = _Engine(self._config, keeps_visits=self._keeps_visits)
                atexit.register(self.close)
            return self._engine


class _Engine:
    """The service of one process, and the thread in which its loop runs."""

    def __init__(self, config: HostConfig, *, keeps_visits: bool) -> None:
        self._lock = lock(config.state / "lock") if keeps_visits else None
        if keeps_visits and self._lock is None:
            raise ConfigError(
                f"another process serves the host in {config.state}: give the server one process with"
                " threads, or do not keep visits"
            )
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sterna-host", daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        try:
            self.service = self.begin(self._open(config, keeps_visits=keeps_visits)).result()
        except BaseException:
            self.close()
            raise

    async def _open(self, config: HostConfig, *, keeps_visits: bool) -> Service:
        keyring = Keyring(config.keys)
        service = Service(
            config,
            identity=keyring.read("host"),
            successions=keyring.successions("host"),
            clock=SystemClock(),
            is_live_only=not keeps_visits,
        )
        self._stack.push_async_callback(service.close)
        if keeps_visits:
            await service.restore()
            await self._stack.enter_async_context(open_control(service, config.state))
            self._stack.callback(service.stop)
        self._watching = asyncio.create_task(service.watch())
        self._stack.callback(self._watching.cancel)
        return service

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """What the work in the loop will give, for a thread of the server."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        try:
            self.begin(self._stack.aclose()).result(CLOSE_SECONDS)
        except TimeoutError:
            _log.error("visits did not end within %g s", CLOSE_SECONDS)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)
        if self._lock is not None:
            os.close(self._lock)


class _Body:
    """The body of a request: read by the server's thread when the loop wants some of it."""

    def __init__(self, source: Input, length: int) -> None:
        self._source = source
        self.left = length
        self.wanted: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Future[bytes]] | None] = (
            queue.SimpleQueue()
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        while self.left > 0:
            promise: asyncio.Future[bytes] = loop.create_future()
            self.wanted.put((loop, promise))
            chunk = await promise
            if not chunk:
                return
            self.left -= len(chunk)
            yield chunk

    def serve(self) -> None:
        """Reads what is wanted, until the request is answered."""
        while wanted := self.wanted.get():
            loop, promise = wanted
            try:
                chunk = self._source.read(min(self.left, CHUNK_BYTES))
            except OSError:  # the client went away
                chunk = b""
            loop.call_soon_threadsafe(_keep, promise, chunk)


def _keep(promise: asyncio.Future[bytes], chunk: bytes) -> None:
    if not promise.done():  # nobody waits for it any more
        promise.set_result(chunk)


class _Stream:
    """A reply that comes bit by bit; ends with an error if it stalls, and its visit with it if it is left."""

    def __init__(self, engine: _Engine, body: AsyncIterator[bytes]) -> None:
        self._engine = engine
        self._chunks: queue.Queue[bytes | Exception | None] = queue.Queue()  # of one, as _room has it
        self._room = asyncio.Semaphore(1)  # of the loop: no more is asked for than the client has read
        self._pump = engine.begin(self._send(body))

    async def _send(self, body: AsyncIterator[bytes]) -> None:
        try:
            async with aclosing(body) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    await self._room.acquire()
                    self._chunks.put_nowait(chunk)
        except Exception as error:
            _log.error("a stream failed: %s", error)
            self._chunks.put_nowait(error)
        else:
            self._chunks.put_nowait(None)

    def __iter__(self) -> Iterator[bytes]:
        with closing(self):
            while (chunk := self._chunks.get(timeout=STALL_SECONDS)) is not None:
                if isinstance(chunk, Exception):
                    raise ConnectionError("the stream broke off") from chunk
                yield chunk
                self._engine.call(self._room.release)

    def close(self) -> None:
        """Called by the server when the client has left, too."""
        self._pump.cancel()
