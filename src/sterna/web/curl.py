"""Fetching by libcurl's multi interface on the running event loop."""

import asyncio
from collections.abc import Callable

import certifi
import pycurl

from sterna.errors import FetchError
from sterna.model import Record
from sterna.web.bodies import SMALL_BYTES, is_splintered
from sterna.web.http import Request, Response, read_head
from sterna.web.tolerant import fetch_tolerantly

CONNECT_SECONDS = 15
SLOWEST_BYTES_PER_SECOND = 64
SLOW_SECONDS = 20
MAX_HANDLES = 1024
BUFFER_BYTES = 128 * 1024

_KINDS = {
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_RESOLVE_PROXY: "proxy",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_PARTIAL_FILE: "truncated",
    pycurl.E_FILESIZE_EXCEEDED: "too_large",
    pycurl.E_GOT_NOTHING: "empty",
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls",
    pycurl.E_SSL_CACERT: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "tls",
    pycurl.E_SSL_CERTPROBLEM: "tls",
    pycurl.E_SSL_CIPHER: "tls",
    pycurl.E_UNSUPPORTED_PROTOCOL: "protocol",
    8: "protocol",  # CURLE_WEIRD_SERVER_REPLY, which pycurl does not name
    pycurl.E_HTTP2: "protocol",
    92: "protocol",  # CURLE_HTTP2_STREAM
    97: "proxy",  # CURLE_PROXY
    100: "too_large",  # CURLE_TOO_LARGE, a line of the head
}


class CurlConfig(Record, frozen=True, kw_only=True):
    """What holds for every request of a fetcher."""

    connections: int = 100
    proxy: str = ""
    proxy_resolves: bool = False  # names without an address here are left to the proxy
    ca_file: str = ""


class Multi:
    """A libcurl multi handle on the running loop: each transfer has a future for its end."""

    def __init__(self, connections: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)
        # All of these are changed in the loop's thread alone.
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._watched: dict[int, int] = {}
        self._waiting: dict[pycurl.Curl, asyncio.Future[int]] = {}
        self._is_closed = False

    def start(self, handle: pycurl.Curl) -> asyncio.Future[int]:
        """Begins a transfer; the future gives libcurl's code at its end, or is cancelled by close()."""
        done: asyncio.Future[int] = self._loop.create_future()
        self._waiting[handle] = done
        self._multi.add_handle(handle)
        return done

    def stop(self, handle: pycurl.Curl) -> None:
        """Takes the handle back, whether its transfer is over or not."""
        if self._waiting.pop(handle, None) and not self._is_closed:
            self._multi.remove_handle(handle)

    def proceed(self, handle: pycurl.Curl) -> None:
        """Resumes a transfer that its writer paused; never call it from a libcurl callback."""
        if self._is_closed:
            return
        handle.pause(pycurl.PAUSE_CONT)
        self._act(pycurl.SOCKET_TIMEOUT, 0)

    async def close(self) -> None:
        """Ends all transfers; their awaiters are cancelled."""
        for done in list(self._waiting.values()):
            done.cancel()
        await asyncio.sleep(0)
        if self._timer:
            self._timer.cancel()
        for handle in list(self._waiting):
            self.stop(handle)
        self._is_closed = True
        self._multi.close()
        for fd in list(self._watched):
            self._unwatch(fd)

    def _on_socket(self, what: int, fd: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            self._unwatch(fd)
            return
        before = self._watched.get(fd, 0)
        self._watched[fd] = what
        begun, ended = what & ~before, before & ~what
        if begun & pycurl.POLL_IN:
            self._loop.add_reader(fd, self._act, fd, pycurl.CSELECT_IN)
        elif ended & pycurl.POLL_IN:
            self._loop.remove_reader(fd)
        if begun & pycurl.POLL_OUT:
            self._loop.add_writer(fd, self._act, fd, pycurl.CSELECT_OUT)
        elif ended & pycurl.POLL_OUT:
            self._loop.remove_writer(fd)

    def _unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)

    def _on_timer(self, milliseconds: int) -> None:
        """libcurl moves its timer with every transfer; a look too early costs less than a new timer."""
        if milliseconds < 0:
            return
        due = self._loop.time() + milliseconds / 1000.0
        if self._timer:
            if self._due <= due:
                return
            self._timer.cancel()
        # Never called straight away: libcurl must not be entered from its own callback.
        self._timer, self._due = self._loop.call_at(due, self._look), due

    def _look(self) -> None:
        self._timer = None
        self._act(pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, fd: int, events: int) -> None:
        if self._is_closed:
            return  # who was about to be told of a socket, or reads what is left, may come later
        self._multi.socket_action(fd, events)
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for handle in good:
                self._resolve(handle, 0)
            for handle, code, _message in bad:
                self._resolve(handle, code)

    def _resolve(self, handle: pycurl.Curl, code: int) -> None:
        done = self._waiting.get(handle)
        if done is not None and not done.done():
            done.set_result(code)


class CurlFetcher:
    """Many requests at once, HTTP/1.1 and HTTP/2, connections kept; made inside a running loop."""

    def __init__(self, config: CurlConfig) -> None:
        self._config = config
        self._multi = Multi(config.connections)
        self._idle: list[_Transfer] = []  # changed in the loop's thread alone

    async def fetch(self, request: Request) -> Response:
        if request.is_tolerant and not self._config.proxy:  # a proxy tolerates what it does
            return await fetch_tolerantly(request, ca_file=self._config.ca_file)
        transfer = self._idle.pop() if self._idle else _Transfer(self._config, self._multi.proceed)
        transfer.prepare(request)
        try:
            response = transfer.response(await self._multi.start(transfer.handle))
            if request.claim:
                request.claim.shrink(len(response.body))
            return response
        finally:
            self._multi.stop(transfer.handle)
            transfer.clear()
            if len(self._idle) < MAX_HANDLES:
                self._idle.append(transfer)
            else:
                transfer.handle.close()

    async def close(self) -> None:
        await self._multi.close()
        for transfer in self._idle:
            transfer.handle.close()


class _Transfer:
    """A handle with the head and the body that it receives; what stays the same is set only once."""

    def __init__(self, config: CurlConfig, proceed: Callable[[pycurl.Curl], None]) -> None:
        self._config = config
        self._proceed = proceed
        self.handle = pycurl.Curl()
        # Filled by libcurl during a transfer.
        self._lines: list[bytes] = []
        self._first = b""  # of the body, which seldom comes in several pieces
        self._rest = bytearray()
        self._pieces = 0
        self._size = 0  # of the body so far
        self._waits_since = 0.0  # for room for its body; 0 if it never did
        self._room = 0  # left for the body, where it may be cut
        self._is_cut = False
        self._last: Request | None = None  # whose options the handle has
        self._set_up()

    def prepare(self, request: Request) -> None:
        set_option, last = self.handle.setopt, self._last
        self._last = request
        set_option(pycurl.URL, request.url)
        if last is None or (request.headers, request.private) != (last.headers, last.private):
            # A validator goes back as it came, and servers do not keep to ASCII.
            sent = (*request.headers, *request.private)
            fields = [f"{name}: {value}".encode("latin-1", "replace") for name, value in sent]
            set_option(pycurl.HTTPHEADER, fields)
        if last is None or request.timeout_seconds != last.timeout_seconds:
            self._set_timeout(request.timeout_seconds)
        if request.address != (last.address if last else ""):
            set_option(pycurl.CONNECT_TO, connect_to(request.address))
        if request.is_fresh:
            set_option(pycurl.FRESH_CONNECT, 1)
            set_option(pycurl.FORBID_REUSE, 1)
        if request.may_cut:
            self._room = request.max_bytes
            set_option(pycurl.WRITEFUNCTION, self._write_or_cut)
        elif last is None or request.max_bytes != last.max_bytes:
            set_option(pycurl.MAXFILESIZE_LARGE, request.max_bytes)

    def clear(self) -> None:
        last = self._last
        if last and (last.is_fresh or last.may_cut or self._waits_since):
            self.handle.reset()
            self._set_up()
        self._lines.clear()
        self._first, self._rest = b"", bytearray()
        self._pieces, self._size, self._waits_since = 0, 0, 0.0

    def response(self, code: int) -> Response:
        handle = self.handle
        body = self._first + self._rest if self._rest else self._first
        if code and not (code == pycurl.E_WRITE_ERROR and self._is_cut):
            received = sum(map(len, self._lines)) + len(body)
            if is_splintered(self._pieces, self._size):
                raise FetchError("protocol", f"a body in {self._pieces:,} tiny pieces", wire_bytes=received)
            raise FetchError(_kind(handle, code), handle.errstr(), wire_bytes=received)
        head = _last_head(self._lines)
        if not head:  # libcurl takes it for a whole answer without a body
            raise FetchError("truncated", "the connection ended within the head")
        return Response(
            status=handle.getinfo(pycurl.RESPONSE_CODE),
            head=head,
            body=body,
            headers=read_head(head),
            seconds=handle.getinfo(pycurl.STARTTRANSFER_TIME),
            wire_bytes=len(head) + len(body),
            is_http2=head.startswith(b"HTTP/2"),
        )

    def _set_up(self) -> None:
        self._last = None
        self._is_cut = False
        set_option = self.handle.setopt
        set_up(self.handle, self._config)
        set_option(pycurl.LOW_SPEED_LIMIT, SLOWEST_BYTES_PER_SECOND)
        set_option(pycurl.LOW_SPEED_TIME, SLOW_SECONDS)
        # A method of a list: libcurl calls it for every line without any Python in between.
        set_option(pycurl.HEADERFUNCTION, self._lines.append)
        set_option(pycurl.WRITEFUNCTION, self._write)

    def _write(self, data: bytes) -> int | None:
        size = self._size + len(data)
        if size > SMALL_BYTES and not self._may_grow():
            return int(pycurl.WRITEFUNC_PAUSE)
        return self._take(data)

    def _take(self, data: bytes) -> int | None:
        self._size += len(data)
        self._pieces += 1
        if self._pieces == 1:
            self._first = data
            return None
        self._rest += data
        return 0 if is_splintered(self._pieces, self._size) else None

    def _may_grow(self) -> bool:
        """Whether there is room for the whole body; otherwise it is resumed when there is."""
        request = self._last
        if request is None or request.claim is None:
            return True
        if request.claim.take(_announced(self._lines, most=request.max_bytes), self._resume):
            return True
        loop = asyncio.get_running_loop()
        self._waits_since = loop.time()
        loop.call_soon(self._wait)  # libcurl takes no options in its callbacks
        return False

    def _wait(self) -> None:
        if self._waits_since:
            self._set_timeout(0.0)  # none: the waiting is not the server's

    def _resume(self) -> None:
        if self._last and self._waits_since:
            waited = asyncio.get_running_loop().time() - self._waits_since
            self._set_timeout(self._last.timeout_seconds + waited)
            self._proceed(self.handle)

    def _set_timeout(self, seconds: float) -> None:
        self.handle.setopt(pycurl.TIMEOUT_MS, int(seconds * 1000))

    def _write_or_cut(self, data: bytes) -> int | None:
        self._is_cut = len(data) > self._room
        taken = self._take(data[: self._room])
        self._room -= len(data)
        return 0 if self._is_cut else taken


def set_up(handle: pycurl.Curl, config: CurlConfig) -> None:
    set_option = handle.setopt
    set_option(pycurl.PATH_AS_IS, 1)
    set_option(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
    set_option(pycurl.NOSIGNAL, 1)
    set_option(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
    set_option(pycurl.HTTP_CONTENT_DECODING, 0)
    set_option(pycurl.CONNECTTIMEOUT, CONNECT_SECONDS)
    set_option(pycurl.BUFFERSIZE, BUFFER_BYTES)
    if not config.proxy:
        set_option(pycurl.DNS_CACHE_TIMEOUT, 0)  # addresses are given, and libcurl would look through all
    # Empty values also keep libcurl from reading the environment.
    set_option(pycurl.PROXY, config.proxy)
    set_option(pycurl.NOPROXY, "")
    set_option(pycurl.CAINFO, config.ca_file or certifi.where())


def connect_to(address: str) -> list[str]:
    """libcurl's CONNECT_TO for this address of whatever the URL names; nothing where a proxy finds it."""
    if not address:
        return []
    return [f"::[{address}]:" if ":" in address else f"::{address}:"]


def _announced(lines: list[bytes], *, most: int) -> int:
    """The length of the body that the head states and libcurl enforces, or the most that it may be.

    libcurl enforces nothing that an interim head states, nor a name with a blank before its colon.
    """
    fields = [line.partition(b":") for line in _last_head(lines).split(b"\r\n")]
    lengths = {value.strip() for name, _, value in fields if name.lower() == b"content-length"}
    length = lengths.pop() if len(lengths) == 1 else b""
    is_chunked = any(name.strip().lower() == b"transfer-encoding" for name, _, _ in fields)
    is_enforced = length.isdigit() and len(length) < 12 and not is_chunked
    return min(int(length), most) if is_enforced else most


def _last_head(lines: list[bytes]) -> bytes:
    """The head of the final response: after interim ones, without trailers; nothing if it is not whole."""
    start = max((at for at, line in enumerate(lines) if line.startswith(b"HTTP/")), default=0)
    for end in range(start, len(lines)):
        if not lines[end].strip(b"\r\n"):
            return b"".join(lines[start : end + 1])
    return b""


def _kind(handle: pycurl.Curl, code: int) -> str:
    if code == pycurl.E_OPERATION_TIMEDOUT and not handle.getinfo(pycurl.REQUEST_SIZE):
        return "connect"  # nothing was sent yet, so that another address may be asked
    if code in (pycurl.E_RECV_ERROR, pycurl.E_BAD_CONTENT_ENCODING) and "encoding" in handle.errstr():
        return "protocol"  # chunks that are none, or a transfer coding that nobody knows
    if code == pycurl.E_RECV_ERROR and handle.getinfo(pycurl.SIZE_DOWNLOAD_T) > 0:
        return "truncated"
    return _KINDS.get(code, "network")
