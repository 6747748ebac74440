"""Calls over HTTP: which call a request is, its body within bounds, and the reply."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus

from sterna.errors import Refused
from sterna.host.policy.policy import HostLimits
from sterna.host.state import Sessions
from sterna.model import Record
from sterna.transport.interface import Op
from sterna.web.urls import path_of
from sterna.wire.discovery import WELL_KNOWN
from sterna.wire.handshake import MAX_HELLO_BYTES, SESSION_BYTES
from sterna.wire.problems import PROBLEM_TYPE, Problem, encode_problem

MAX_SMALL_BYTES = 4 * 1024
SLOWEST_BYTES = 16 * 1024  # a second, on average, of a body

_POSTED: dict[str, Op] = {"/hello": "hello", "/order": "order", "/acknowledge": "acknowledge"}
_SHOWN = re.compile(r"/(sitemap(?:-[1-9][0-9]{0,4})?\.xml|changes\.(?:atom|jsonl)|pages)")


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response; a streamed body is read to its end, or closed."""

    status: int
    media_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | AsyncIterator[bytes]

    def fields(self) -> list[tuple[str, str]]:
        fields = [("Content-Type", self.media_type), *self.headers]
        if isinstance(self.body, bytes) and self.status != HTTPStatus.NOT_MODIFIED:
            fields.append(("Content-Length", str(len(self.body))))
        return fields


@dataclass(frozen=True, slots=True)
class HostRequest:
    """An HTTP request as ASGI and CGI describe it."""

    method: str
    path: str
    body: AsyncIterator[bytes]
    announced: int | None  # bytes of the body, if its length is known
    if_none_match: str = ""
    host: str = ""  # the field Host, by which one of many sites is found


def refusal(why: Problem) -> Reply:
    headers = tuple(field for field in why.headers if field[0] != "Content-Type")
    return Reply(why.status, PROBLEM_TYPE, headers, encode_problem(why))


def http_error(status: int, title: str) -> Reply:
    """The reply to a request that is not a call."""
    return refusal(Problem(type="about:blank", title=title, status=status))


class Shown(Record, frozen=True):
    """A request for a file that the host shows to everybody."""

    name: str


def op_of(method: str, path: str, *, endpoint: str) -> Op | Shown | Reply:
    """The call, the file, or the reply that says that the request is neither."""
    # A proxy in front may keep the endpoint's path or strip it.
    prefix = path_of(endpoint).rstrip("/")
    rest = path.removeprefix(prefix) if path.startswith(f"{prefix}/") or path == prefix else path
    if rest in _POSTED:
        return _POSTED[rest] if method == "POST" else http_error(405, "Method Not Allowed")
    if rest in (WELL_KNOWN, "", "/"):
        return "discover" if method == "GET" else http_error(405, "Method Not Allowed")
    if shown := _SHOWN.fullmatch(rest):
        return Shown(shown[1]) if method in ("GET", "HEAD") else http_error(405, "Method Not Allowed")
    return http_error(404, "Not Found")


class Bodies:
    """Reads the bodies of requests, each of them and all together within bounds."""

    def __init__(self, sessions: Sessions, limits: Callable[[], HostLimits]) -> None:
        self._sessions = sessions
        self._limits = limits
        self._read_bytes = 0  # of bodies that are being received; changed by read() alone

    async def read(self, op: Op, chunks: AsyncIterator[bytes], *, announced: int | None) -> bytes:
        """A call's body; Refused as soon as it is too large, too slow, or of no session."""
        most_of = {"discover": 0, "hello": MAX_HELLO_BYTES, "order": self._limits().order_bytes}
        most = most_of.get(op, MAX_SMALL_BYTES)
        if announced is not None and announced > most:
            raise Refused("too-large", f"{announced:,} bytes exceed the limit of {most:,}")
        body = bytearray()
        try:
            async for chunk in self._in_time(chunks):
                self._read_bytes += len(chunk)
                body += chunk
                if len(body) > most:
                    raise Refused("too-large", f"more than {most:,} bytes")
                if self._read_bytes > 2 * self._limits().order_bytes:
                    raise Refused("busy", "too many large requests at once", retry_after=1)
                # Strangers cannot fill the memory: of their orders only the first bytes are read.
                if op == "order" and len(body) - len(chunk) < SESSION_BYTES <= len(body):
                    self._sessions.find(bytes(body[:SESSION_BYTES]))
        finally:
            self._read_bytes -= len(body)
        return bytes(body)

    async def _in_time(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        began, received = time.monotonic(), 0
        while True:
            left = began + self._limits().body_seconds + received / SLOWEST_BYTES - time.monotonic()
            try:
                async with asyncio.timeout(left):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise Refused("malformed", "timeout while receiving the message") from None
            if chunk is None:
                return
            received += len(chunk)
            yield chunk
