"""Fetching by libcurl's multi interface on the running event loop."""

import asyncio
from collections.abc import Callable
from functools import partial
from io import BytesIO

import certifi
import pycurl

from sterna.errors import FetchError
from sterna.model import Record
from sterna.web.http import Request, Response, read_head

CONNECT_SECONDS = 15
SLOWEST_BYTES_PER_SECOND = 64
SLOW_SECONDS = 20
MAX_HANDLES = 1024

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
    ca_file: str = ""


class CurlFetcher:
    """Many requests at once, HTTP/1.1 and HTTP/2, connections kept; made inside a running loop."""

    def __init__(self, config: CurlConfig) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, config.connections)
        self._multi.setopt(pycurl.M_MAXCONNECTS, config.connections)
        # All of these are changed in the loop's thread alone.
        self._timer: asyncio.TimerHandle | None = None
        self._watched: dict[int, int] = {}
        self._waiting: dict[pycurl.Curl, asyncio.Future[int]] = {}
        self._idle: list[pycurl.Curl] = []

    async def fetch(self, request: Request) -> Response:
        handle = self._idle.pop() if self._idle else pycurl.Curl()
        sink = _Sink(request)
        self._prepare(handle, request, sink)
        done = self._loop.create_future()
        self._waiting[handle] = done
        try:
            self._multi.add_handle(handle)
            code = await done
            return _response(handle, sink, code)
        finally:
            self._release(handle)

    async def close(self) -> None:
        """Ends all that is under way; whoever waits for it is cancelled."""
        for done in list(self._waiting.values()):
            done.cancel()
        await asyncio.sleep(0)
        if self._timer:
            self._timer.cancel()
        for handle in self._idle:
            handle.close()
        self._multi.close()
        for fd in list(self._watched):
            self._unwatch(fd)

    def _release(self, handle: pycurl.Curl) -> None:
        self._waiting.pop(handle, None)
        self._multi.remove_handle(handle)
        handle.reset()
        if len(self._idle) < MAX_HANDLES:
            self._idle.append(handle)
        else:
            handle.close()

    def _prepare(self, handle: pycurl.Curl, request: Request, sink: "_Sink") -> None:
        set_option = handle.setopt
        set_option(pycurl.URL, request.url)
        set_option(pycurl.PATH_AS_IS, 1)
        set_option(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        set_option(pycurl.NOSIGNAL, 1)
        set_option(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        # A validator goes back as it came, and servers do not keep to ASCII.
        fields = [f"{name}: {value}".encode("latin-1", "replace") for name, value in request.headers]
        set_option(pycurl.HTTPHEADER, fields)
        set_option(pycurl.HTTP_CONTENT_DECODING, 0)
        set_option(pycurl.CONNECTTIMEOUT, CONNECT_SECONDS)
        set_option(pycurl.TIMEOUT_MS, int(request.timeout_seconds * 1000))
        set_option(pycurl.LOW_SPEED_LIMIT, SLOWEST_BYTES_PER_SECOND)
        set_option(pycurl.LOW_SPEED_TIME, SLOW_SECONDS)
        # Empty values also keep libcurl from reading the environment.
        set_option(pycurl.PROXY, self._config.proxy)
        set_option(pycurl.NOPROXY, "")
        set_option(pycurl.CAINFO, self._config.ca_file or certifi.where())
        if request.address:
            set_option(pycurl.CONNECT_TO, [f"::{_bracketed(request.address)}:"])
        if request.is_fresh:
            set_option(pycurl.FRESH_CONNECT, 1)
            set_option(pycurl.FORBID_REUSE, 1)
        if request.may_cut:
            set_option(pycurl.WRITEFUNCTION, sink.write_or_cut)
        else:
            set_option(pycurl.MAXFILESIZE_LARGE, request.max_bytes)
            set_option(pycurl.WRITEDATA, sink.body)
        set_option(pycurl.HEADERFUNCTION, sink.add_head_line)

    def _on_socket(self, what: int, fd: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            self._unwatch(fd)
            return
        before = self._watched.get(fd, 0)
        self._watched[fd] = what
        self._switch(fd, bool(what & pycurl.POLL_IN), was=bool(before & pycurl.POLL_IN), is_read=True)
        self._switch(fd, bool(what & pycurl.POLL_OUT), was=bool(before & pycurl.POLL_OUT), is_read=False)

    def _switch(self, fd: int, wanted: bool, *, was: bool, is_read: bool) -> None:
        if wanted == was:
            return
        if is_read and wanted:
            self._loop.add_reader(fd, self._act, fd, pycurl.CSELECT_IN)
        elif is_read:
            self._loop.remove_reader(fd)
        elif wanted:
            self._loop.add_writer(fd, self._act, fd, pycurl.CSELECT_OUT)
        else:
            self._loop.remove_writer(fd)

    def _unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)

    def _on_timer(self, milliseconds: int) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if milliseconds >= 0:
            # Never called straight away: libcurl must not be entered from its own callback.
            act: Callable[[], None] = partial(self._act, pycurl.SOCKET_TIMEOUT, 0)
            self._timer = self._loop.call_later(milliseconds / 1000.0, act)

    def _act(self, fd: int, events: int) -> None:
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


class _Sink:
    """Takes the head and the body of one response."""

    def __init__(self, request: Request) -> None:
        self.body = BytesIO()
        self.head = bytearray()
        self.is_head_done = False
        self.is_cut = False
        self._max_bytes = request.max_bytes

    def add_head_line(self, line: bytes) -> None:
        if line.startswith(b"HTTP/"):  # of an interim response too: the last one counts
            self.head.clear()
            self.is_head_done = False
        if self.is_head_done:
            return  # a trailer
        self.head += line
        self.is_head_done = not line.strip(b"\r\n")

    def write_or_cut(self, data: bytes) -> int:
        room = self._max_bytes - self.body.tell()
        self.body.write(data[:room])
        self.is_cut = len(data) > room
        return len(data) if not self.is_cut else 0


def _response(handle: pycurl.Curl, sink: _Sink, code: int) -> Response:
    if code and not (code == pycurl.E_WRITE_ERROR and sink.is_cut):
        received = len(sink.head) + sink.body.tell()
        raise FetchError(_kind(handle, code), handle.errstr(), wire_bytes=received)
    if not sink.is_head_done:  # libcurl takes it for a whole answer without a body
        raise FetchError("truncated", "the connection ended within the head")
    head = bytes(sink.head)
    return Response(
        status=handle.getinfo(pycurl.RESPONSE_CODE),
        head=head,
        body=sink.body.getvalue(),
        headers=read_head(head),
        seconds=handle.getinfo(pycurl.STARTTRANSFER_TIME),
        wire_bytes=len(head) + sink.body.tell(),
        is_http2=head.startswith(b"HTTP/2"),
        is_cut=sink.is_cut,
    )


def _kind(handle: pycurl.Curl, code: int) -> str:
    if code == pycurl.E_RECV_ERROR and handle.getinfo(pycurl.SIZE_DOWNLOAD_T) > 0:
        return "truncated"
    if code == pycurl.E_OPERATION_TIMEDOUT and not handle.getinfo(pycurl.REQUEST_SIZE):
        return "connect"  # nothing was sent yet, so that another address may be asked
    return _KINDS.get(code, "network")


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
