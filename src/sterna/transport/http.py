"""Calls to a host over HTTP/1.1 or HTTP/2, by libcurl, with back-pressure: a slow reader slows the sender."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import NoReturn

import pycurl

from sterna.errors import FetchError, LineBroken, Refused, WireError
from sterna.transport.interface import PUBLIC, Call, Reply, read_whole
from sterna.web.clock import Clock
from sterna.web.curl import CurlConfig, Multi, connect_to, set_up
from sterna.web.dns import Resolver, allowed_addresses
from sterna.web.http import read_head, retry_after_seconds
from sterna.web.urls import Canonical, hostname_of, path_of, site_of
from sterna.wire.discovery import MEDIA_TYPE, WELL_KNOWN
from sterna.wire.problems import MAX_PROBLEM_BYTES, PROBLEM_TYPE, decode_problem, refusal_of

BUFFERED_BYTES = 256 * 1024  # unread, of one reply; beyond it the transfer is paused
MAX_HEAD_BYTES = 64 * 1024
MAX_ADDRESSES = 4  # tried for one name; more only cost time
SHOWN_CHARACTERS = 200
LOOKS = 4  # at the upload's progress, within one silence timeout

_SUPPRESS_CONNECT_HEADERS = 265  # CURLOPT_SUPPRESS_CONNECT_HEADERS, which pycurl does not define
_GATEWAY_STATUSES = frozenset({502, 503, 504})  # from a proxy in front of a host that is down
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=(\d{1,9})(?:$|[,\s;])", re.IGNORECASE)


class HttpConfig(CurlConfig, frozen=True, kw_only=True):
    """Settings of a transport, for all calls."""

    user_agent: str = "Sterna"
    sender: str = ""
    connections: int = 256  # a crawler at a host may need two: its stream, and acknowledgements meanwhile
    connect_seconds: float = 15.0
    silence_seconds: float = 45.0  # timeout without a byte in either direction
    discover_seconds: float = 10.0  # for the whole call: most sites have no host, and must not delay a crawl
    head_seconds: float = 60.0  # until the head of any other reply is complete; its stream may be long
    upload_bytes_per_second: float = 4096.0  # the slowest, by which a large order has more time


class HttpTransport:
    """Makes many calls at once over kept connections; must be created inside a running loop."""

    def __init__(self, config: HttpConfig, *, resolver: Resolver, clock: Clock) -> None:
        self._config = config
        self._resolver = resolver
        self._clock = clock
        self._multi = Multi(config.connections)
        self._private: set[str] = set()  # changed by let_private() alone
        # Headers included; added at the end of each call, failed ones too.
        self.bytes_sent = 0
        self.bytes_received = 0

    def let_private(self, hostname: str) -> None:
        """Allows calls to this name even if it resolves to a private network: the user named it."""
        self._private.add(hostname)

    @asynccontextmanager
    async def exchange(self, address: str, call: Call) -> AsyncIterator[Reply]:
        """Makes the call; discovery follows one redirect within the same origin."""
        url = url_of(address, call)
        stream = await self._open(url, call)
        try:
            moved = _moved_to(stream, url) if call.op == "discover" else ""
            if moved:
                self._close(stream)
                stream = await self._open(moved, call)
            if not 200 <= stream.status < 300:
                await self._refuse(stream)
            yield Reply(
                stream.chunks(), seconds=stream.seconds, max_age=_max_age(stream.header("cache-control"))
            )
        finally:
            self._close(stream)

    async def close(self) -> None:
        """Ends all calls; their readers get LineBroken."""
        await self._multi.close()

    async def _open(self, url: str, call: Call) -> "_Stream":
        """The reply of the first address that is reachable, read up to the end of its head."""
        addresses = await self._addresses(hostname_of(url))
        for address in addresses:
            stream = self._start(url, call, address)
            try:
                await stream.wait_for_head()
            except BaseException as error:
                may_try_next = isinstance(error, LineBroken) and stream.was_unreachable
                self._close(stream)
                if may_try_next and address != addresses[-1]:
                    continue
                raise
            self._resolver.prefer(hostname_of(url), address)
            return stream
        raise LineBroken(f"{hostname_of(url)} has no address")

    def _start(self, url: str, call: Call, address: str) -> "_Stream":
        config = self._config
        handle = pycurl.Curl()
        set_up(handle, config)
        set_option = handle.setopt
        set_option(pycurl.URL, url)
        set_option(pycurl.CONNECTTIMEOUT_MS, int(config.connect_seconds * 1000))
        set_option(pycurl.CONNECT_TO, connect_to(address))
        set_option(pycurl.PIPEWAIT, 1)  # with HTTP/2, wait for a connection that calls can share
        set_option(_SUPPRESS_CONNECT_HEADERS, 1)
        sender = (("From", config.sender),) if config.sender else ()
        kind = () if call.op in PUBLIC else (("Content-Type", MEDIA_TYPE),)
        fields = (("User-Agent", config.user_agent), *sender, ("Accept-Encoding", "identity"), *kind)
        headers = [f"{name}: {value}".encode("latin-1", "replace") for name, value in fields]
        set_option(pycurl.HTTPHEADER, [*headers, b"Expect:"])  # "100 Continue" would cost a round trip
        if call.op not in PUBLIC:
            set_option(pycurl.POST, 1)
            set_option(pycurl.POSTFIELDS, call.body)
        is_discovery = call.op == "discover"
        seconds = config.head_seconds + len(call.body) / config.upload_bytes_per_second
        return _Stream(
            self._multi,
            handle,
            silence_seconds=config.silence_seconds,
            head_seconds=config.discover_seconds if is_discovery else seconds,
            body_seconds=config.discover_seconds if is_discovery else inf,
        )

    def _close(self, stream: "_Stream") -> None:
        sent, received = stream.close()
        self.bytes_sent += sent
        self.bytes_received += received

    async def _addresses(self, hostname: str) -> tuple[str, ...]:
        may_be_private = hostname in self._private
        try:
            found = await allowed_addresses(
                self._resolver, hostname, may_be_private=may_be_private, config=self._config
            )
        except FetchError as error:
            raise LineBroken(str(error)) from error
        return found[:MAX_ADDRESSES]

    async def _refuse(self, stream: "_Stream") -> NoReturn:
        """Raises the error that a reply without success stands for: the host's own problem, or a proxy's."""
        if stream.header("content-type").partition(";")[0].strip().lower() == PROBLEM_TYPE:
            with suppress(WireError):  # not a host's problem document: the HTTP status says enough
                problem = decode_problem(await read_whole(stream.chunks(), most=MAX_PROBLEM_BYTES))
                raise refusal_of(problem)
        line = f"{stream.site} answered with HTTP status {stream.status}"
        if stream.status in _GATEWAY_STATUSES:
            raise LineBroken(line)
        retry_after = retry_after_seconds(stream.header("retry-after"), self._clock.now())
        raise Refused("http", line, retry_after=retry_after)


class _Stream:
    """One call under way: libcurl fills its buffer, and is paused while too much of it is unread."""

    def __init__(
        self,
        multi: Multi,
        handle: pycurl.Curl,
        *,
        silence_seconds: float,
        head_seconds: float,  # until the head is complete
        body_seconds: float,  # for the whole call
    ) -> None:
        self._multi = multi
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._silence_seconds = silence_seconds
        self._began = self._loop.time()
        self._body_seconds = body_seconds
        self._seconds = head_seconds  # since it began; changed when the head is complete
        # Changed by libcurl's callbacks and by the reader, all in the loop's thread.
        self._lines: list[bytes] = []  # of the head that is being received
        self._head_bytes = 0
        self._chunks: deque[bytes] = deque()
        self._size = 0  # of the chunks
        self._is_paused = False
        self._is_closed = False
        self._news = asyncio.Event()
        self.status = 0  # until the head is complete
        self.seconds = 0.0
        self._headers: tuple[tuple[str, str], ...] = ()
        handle.setopt(pycurl.HEADERFUNCTION, self._on_line)
        handle.setopt(pycurl.WRITEFUNCTION, self._on_data)
        self._done = multi.start(handle)
        self._done.add_done_callback(lambda _: self._news.set())

    @property
    def site(self) -> str:
        return site_of(self._handle.getinfo(pycurl.EFFECTIVE_URL))

    @property
    def was_unreachable(self) -> bool:
        """True if the call failed before anything was sent: another address may be tried."""
        return self._done.done() and not self._done.cancelled() and not self._sent_bytes()

    def header(self, name: str) -> str:
        return ", ".join(value for key, value in self._headers if key == name)

    async def wait_for_head(self) -> None:
        while not self.status:
            self._raise_if_broken()
            if self._done.done():
                raise LineBroken(f"{self.site} closed the connection without a response")
            await self._wait()
        self._seconds = self._body_seconds
        info = self._handle.getinfo
        self.seconds = max(info(pycurl.STARTTRANSFER_TIME) - info(pycurl.PRETRANSFER_TIME), 0.0)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            if self._chunks:
                # All of it at once: each piece costs its reader a hop to a thread, however small it is.
                chunk = b"".join(self._chunks)
                self._chunks.clear()
                self._size = 0
                if self._is_paused:
                    self._is_paused = False
                    self._multi.proceed(self._handle)
                yield chunk
                continue
            self._raise_if_broken()
            if self._done.done():
                return
            await self._wait()

    def close(self) -> tuple[int, int]:
        """Ends the call; returns the bytes sent and received, zeros if it was closed before."""
        if self._is_closed:
            return 0, 0
        self._is_closed = True
        self._multi.stop(self._handle)
        info = self._handle.getinfo
        received = info(pycurl.HEADER_SIZE) + info(pycurl.SIZE_DOWNLOAD_T)
        sent = self._sent_bytes()
        self._handle.close()
        self._chunks.clear()
        return sent, received

    def _sent_bytes(self) -> int:
        info = self._handle.getinfo
        size, uploaded = int(info(pycurl.REQUEST_SIZE)), int(info(pycurl.SIZE_UPLOAD_T))
        # In older versions of libcurl, REQUEST_SIZE is the size of the head alone.
        return size if size > uploaded else size + uploaded

    def _raise_if_broken(self) -> None:
        if self._is_closed or self._done.cancelled():
            raise LineBroken("the call was cancelled")
        if self._done.done() and self._done.result():
            detail = self._handle.errstr() or f"libcurl error {self._done.result()}"
            raise LineBroken(f"{self.site}: {detail[:SHOWN_CHARACTERS]}")

    async def _wait(self) -> None:
        """Waits for news; raises LineBroken after too long a silence, unless bytes are being sent."""
        self._news.clear()
        now, sent = self._loop.time(), self._sent_bytes()
        silent_since = now
        while True:
            late_at = self._began + self._seconds
            ends_at = min(silent_since + self._silence_seconds, late_at)
            if now >= late_at:
                raise LineBroken(f"{self.site} did not complete its reply within {self._seconds:.3g} seconds")
            if now >= ends_at:
                raise LineBroken(f"{self.site} did not respond within {now - silent_since:.3g} seconds")
            with suppress(TimeoutError):
                async with asyncio.timeout(min(ends_at - now, self._silence_seconds / LOOKS)):
                    await self._news.wait()
                return
            now = self._loop.time()
            if (moved := self._sent_bytes()) != sent:
                sent, silent_since = moved, now

    # -- called by libcurl -------------------------------------------------------------------------------

    def _on_line(self, line: bytes) -> int | None:
        if self.status:
            return None  # a trailer: not used
        if line.startswith(b"HTTP/"):
            self._lines.clear()
        self._lines.append(line)
        self._head_bytes += len(line)
        if self._head_bytes > MAX_HEAD_BYTES:
            return 0  # ends the transfer
        if not line.strip(b"\r\n"):  # the end of the head
            words = self._lines[0].split(None, 2)
            status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
            if status >= 200:  # others are interim responses
                self._headers = read_head(b"".join(self._lines))
                self.status = status
                self._news.set()
        return None

    def _on_data(self, data: bytes) -> int | None:
        if self._size >= BUFFERED_BYTES:
            self._is_paused = True
            return int(pycurl.WRITEFUNC_PAUSE)
        self._chunks.append(data)
        self._size += len(data)
        self._news.set()
        return None


def url_of(address: str, call: Call) -> str:
    """The URL of a call: for discovery the site's well-known path or a given URL, else below the endpoint."""
    if call.op == "discover":
        return address if path_of(address).strip("/") else site_of(address) + WELL_KNOWN
    return f"{address.rstrip('/')}/{call.op}"


def _moved_to(stream: _Stream, url: str) -> str:
    """The target of a redirect within the same origin, or ""."""
    if stream.status not in (301, 302, 303, 307, 308):
        return ""
    location = stream.header("location")
    target = Canonical(())(location, url) if location else None
    return target if target and site_of(target) == site_of(url) else ""


def _max_age(cache_control: str) -> float | None:
    if re.search(r"\bno-(?:store|cache)\b", cache_control, re.IGNORECASE):
        return 0.0
    found = _MAX_AGE.search(cache_control)
    return float(found[1]) if found else None
