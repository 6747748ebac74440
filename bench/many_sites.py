"""Thousands of small sites on loopback addresses: a thread answers after a set time and notes each request.

All answers take equally long, so they are due in the order in which they were asked for: a queue is all the
timer there is. A request begins when it is read, and ends just before its answer goes to the kernel, some 15
microseconds: noted afterwards, by a thread that was put aside meanwhile, kept delays would look broken.
"""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ROBOTS_PATH = "/robots.txt"
PARAGRAPH = "<p>The Arctic tern flies from pole to pole and back each year, and sees two summers.</p>\n"
PARAGRAPHS = 20
BACKLOG = 4096
LOOK_SECONDS = 0.1
LONGEST_HEAD_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer, in seconds of the monotonic clock."""

    site: str
    path: str
    began: float
    ended: float
    was_taken: bool  # False if the client left before its answer


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    site: str
    unread: bytes = b""
    is_open: bool = True


@dataclass(slots=True)
class ManySites:
    """What the serving thread did; to be read when it is over."""

    port: int
    exchanges: list[Exchange] = field(default_factory=list)
    connections: int = 0  # ever accepted
    most_open: int = 0


def addresses(count: int) -> list[str]:
    """So many addresses in 127.0.0.0/8."""
    return [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count)]


@contextmanager
def serve(*, pages: int, answer_seconds: float) -> Iterator[ManySites]:
    """The same site of so many pages on every loopback address, until the block ends."""
    with socket.socket() as listener:
        # On every address of this device, and on no other device.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        listener.bind(("0.0.0.0", 0))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        sites = ManySites(listener.getsockname()[1])
        server = _Server(listener, sites, replies=_replies(pages), answer_seconds=answer_seconds)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield sites
        finally:
            server.is_over = True
            thread.join()


class _Server:
    """Everything but `is_over` belongs to the thread that runs it."""

    def __init__(
        self, listener: socket.socket, sites: ManySites, *, replies: dict[str, bytes], answer_seconds: float
    ) -> None:
        self.is_over = False
        self._listener = listener
        self._sites = sites
        self._replies = replies
        self._answer_seconds = answer_seconds
        self._poll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        self._owed: deque[tuple[float, _Connection, str]] = deque()  # since when, whom, what

    def run(self) -> None:
        self._poll.register(self._listener, select.EPOLLIN)
        while not self.is_over:
            for fd, _ in self._poll.poll(self._patience()):
                if fd == self._listener.fileno():
                    self._accept()
                else:
                    self._read(self._connections[fd])
            self._answer_due()
        for connection in list(self._connections.values()):
            self._close(connection)
        self._poll.close()

    def _patience(self) -> float:
        """Seconds until the next answer is due, or until the end should be looked for."""
        if not self._owed:
            return LOOK_SECONDS
        return min(max(self._owed[0][0] + self._answer_seconds - time.monotonic(), 0.0), LOOK_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[accepted.fileno()] = _Connection(accepted, accepted.getsockname()[0])
            self._poll.register(accepted, select.EPOLLIN)
            self._sites.connections += 1
            self._sites.most_open = max(self._sites.most_open, len(self._connections))

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(LONGEST_HEAD_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            self._close(connection)
            return
        *heads, connection.unread = (connection.unread + data).split(b"\r\n\r\n")
        now = time.monotonic()
        self._owed += ((now, connection, head.split(b" ", 2)[1].decode("latin-1")) for head in heads)

    def _answer_due(self) -> None:
        now = time.monotonic()
        while self._owed and self._owed[0][0] + self._answer_seconds <= now:
            began, connection, path = self._owed.popleft()
            ended = time.monotonic()
            was_taken = connection.is_open and self._send(connection, path)
            self._sites.exchanges.append(Exchange(connection.site, path, began, ended, was_taken))

    def _send(self, connection: _Connection, path: str) -> bool:
        reply = self._replies.get(path, self._replies[""])
        try:
            return connection.socket.send(reply) == len(reply)  # far smaller than the socket's buffer
        except ConnectionError:
            self._close(connection)
            return False

    def _close(self, connection: _Connection) -> None:
        connection.is_open = False
        del self._connections[connection.socket.fileno()]
        connection.socket.close()


def _replies(pages: int) -> dict[str, bytes]:
    """Whole replies by path: a start page that links to the others, robots.txt, "" for what is not there."""
    paths = ["/", *(f"/{number}.html" for number in range(1, pages))]
    links = "".join(f'<li><a href="{path}">Page {path}</a></li>\n' for path in paths)
    replies = {
        path: _reply("200 OK", "text/html", _page(path, links if path == "/" else "")) for path in paths
    }
    replies[ROBOTS_PATH] = _reply("200 OK", "text/plain", "User-agent: *\nDisallow:\n")
    replies[""] = _reply("404 Not Found", "text/html", _page("nothing", ""))
    return replies


def _page(title: str, links: str) -> str:
    home = '<a href="/">Home</a>'
    text = PARAGRAPH * PARAGRAPHS
    return f"<!DOCTYPE html><title>{title}</title>\n<h1>{title}</h1>\n{home}<ul>{links}</ul>\n{text}"


def _reply(status: str, content_type: str, body: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()
