"""One request and its response, and the interface of whatever fetches it."""

import email.utils
from typing import Protocol

from sterna.model import Record
from sterna.web.bodies import BodyClaim
from sterna.web.closed import ClosedPaths

MAX_BODY_BYTES = 16 * 1024 * 1024


class Request(Record, frozen=True, kw_only=True):
    """A GET to one address of the URL's host; redirects are never followed by the fetcher itself."""

    url: str
    address: str = ""  # "" where a proxy finds it
    headers: tuple[tuple[str, str], ...] = ()
    private: tuple[tuple[str, str], ...] = ()  # further headers: cookies, passwords; in no archive and no log
    max_bytes: int = MAX_BODY_BYTES
    may_cut: bool = False  # a longer body is cut at max_bytes instead of refused
    timeout_seconds: float = 60.0
    is_fresh: bool = False  # on a connection of its own
    is_tolerant: bool = False  # read what browsers would of a malformed answer, or of one that is cut
    claim: BodyClaim | None = None  # to the memory for its body; None: no limit but max_bytes
    closed: tuple[ClosedPaths, ...] = ()  # for those who find out by which other path the URL's file is known


def head_of(request: Request, *, is_sent: bool = False) -> bytes:
    """The request's head as HTTP/1.1 spells it, for the archive; if it `is_sent`, with what is private."""
    host, _, rest = request.url.partition("://")[2].partition("/")
    lines = [f"GET /{rest} HTTP/1.1", f"Host: {host}"]
    sent = (*request.private, ("Connection", "close")) if is_sent else ()
    lines += [f"{name}: {value}" for name, value in (*request.headers, *sent)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


class Response(Record, frozen=True, kw_only=True):
    """What came back: the head and the body as received, transfer coding removed."""

    status: int
    head: bytes
    body: bytes
    headers: tuple[tuple[str, str], ...]  # names in lower case
    seconds: float  # from the request's start to the first byte of the answer
    wire_bytes: int
    is_http2: bool = False
    is_cut: bool = False  # it ended before its end: only of a request that is tolerant

    def header(self, name: str) -> str:
        """All values of a header, joined; "" where it is absent."""
        return ", ".join([value for key, value in self.headers if key == name])

    def location(self) -> str:
        """Where a redirect leads, as the server wrote it; "" where it does not say."""
        value = next((value for key, value in self.headers if key == "location"), "")
        try:
            return value.encode("latin-1").decode()  # what is not ASCII is UTF-8 nearly always
        except UnicodeError:
            return value


class Fetcher(Protocol):
    """Carries out requests; refuses with FetchError."""

    async def fetch(self, request: Request) -> Response: ...


def read_head(head: bytes) -> tuple[tuple[str, str], ...]:
    """The header fields of a response's head, in order, folded lines joined."""
    fields: list[tuple[str, str]] = []
    for line in head.decode("latin-1").split("\n")[1:]:  # RFC 9112 2.2: a bare LF ends a line too
        if line[:1] in (" ", "\t") and fields:
            name, value = fields[-1]
            fields[-1] = (name, f"{value} {line.strip()}")
            continue
        name, colon, value = line.partition(":")
        if colon:
            fields.append((name.strip().lower(), value.strip()))
    return tuple(fields)


def retry_after_seconds(value: str, now: float) -> float | None:
    """What a Retry-After header asks for, as seconds from now; None where it says nothing."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:12])
    if not value:
        return None
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
