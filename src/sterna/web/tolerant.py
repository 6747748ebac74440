"""A tolerant HTTP/1.1 client, for answers that libcurl refuses and browsers show."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from urllib.parse import urlsplit

import certifi

from sterna.errors import FetchError
from sterna.web.bodies import SMALL_BYTES, is_splintered
from sterna.web.http import Request, Response, head_of, read_head

CONNECT_SECONDS = 15.0
_MAX_HEAD_BYTES = 256 * 1024
_PIECE_BYTES = 64 * 1024
_PIECES_AT_ONCE = 256
_MAX_INTERIM = 16
_MAX_BLANKS = 16  # lines before the status
_MAX_DIGITS = 18  # of a length

# Browsers look for the status line behind up to four bytes of junk, and are not strict about what it says.
_STATUS = re.compile(rb".{0,4}?(?:HTTP(?:/[0-9.]*)?|ICY)[ \t]+(\d{3})(?!\d)", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"[ \t]*(?:0x)?([0-9a-f]{1,8})[ \t]*(?:;|\r?\n)", re.IGNORECASE)


async def fetch_tolerantly(request: Request, *, ca_file: str = "") -> Response:
    """The response, as far as it came (`is_cut`); FetchError if there is none, as of any other fetcher."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(request.timeout_seconds), _connected(request, ca_file) as (reader, writer):
            writer.write(head_of(request, is_sent=True))
            head, status = await _read_head(reader)
            seconds = loop.time() - began
            body = await _read_body(reader, head, request=request)
    except TimeoutError as error:
        raise FetchError("timeout", "the answer took too long") from error
    except OSError as error:
        raise FetchError("network", str(error)) from error
    if request.claim:
        request.claim.shrink(len(body.data))
    if body.is_cut and not body.data:
        raise FetchError("truncated", "the connection ended before the body", wire_bytes=len(head))
    return Response(
        status=status,
        head=head,
        body=bytes(body.data),
        headers=read_head(head),
        seconds=seconds,
        wire_bytes=len(head) + len(body.data),
        is_cut=body.is_cut,
    )


@lru_cache(maxsize=4)
def _trusting(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)  # which takes longer than a request


@asynccontextmanager
async def _connected(
    request: Request, ca_file: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    parts = urlsplit(request.url)
    hostname = (parts.hostname or "").rstrip(".")
    context = _trusting(ca_file or certifi.where()) if parts.scheme == "https" else None
    port = parts.port or (443 if context else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                request.address or hostname,
                port,
                limit=_MAX_HEAD_BYTES,
                ssl=context,
                server_hostname=hostname if context else None,
            )
    except ssl.SSLError as error:
        raise FetchError("tls", str(error)) from error
    except (OSError, TimeoutError) as error:
        raise FetchError("connect", str(error)) from error
    try:
        yield reader, writer
    finally:
        writer.transport.abort()  # whatever the server still sends, nobody reads


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """The final head, and its status."""
    for _ in range(_MAX_INTERIM):
        line = await _read_line(reader)
        for _ in range(_MAX_BLANKS):
            line = await _read_line(reader) if line in (b"\r\n", b"\n") else line
        status = _STATUS.match(line)
        if not status:
            raise FetchError("protocol" if line else "empty", "the answer does not begin with a status")
        lines, size = [line], len(line)
        while line not in (b"\r\n", b"\n"):
            line = await _read_line(reader)
            size += len(line)
            if not line.endswith(b"\n"):
                raise FetchError("truncated", "the connection ended within the head", wire_bytes=size)
            if size > _MAX_HEAD_BYTES:
                raise FetchError("too_large", f"a head of more than {_MAX_HEAD_BYTES} bytes", wire_bytes=size)
            lines.append(line)
        if int(status[1]) < 200:  # an interim response
            continue
        head = b"".join(lines)
        if b"\0" in head:
            raise FetchError("protocol", "a NUL in the head", wire_bytes=size)
        return head, int(status[1])
    raise FetchError("protocol", f"more than {_MAX_INTERIM} interim responses")


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """A line with its end; without one, what came before the connection ended."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        raise FetchError("too_large", f"a line of more than {_MAX_HEAD_BYTES} bytes") from error


class _Body:
    """A body that grows up to its limit."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.data = bytearray()
        self._pieces = 0
        self.is_cut = False  # it ended before its end
        self.is_full = False

    async def add(self, piece: bytes) -> None:
        request = self._request
        if request.claim and len(self.data) + len(piece) > SMALL_BYTES:
            await request.claim.wait(request.max_bytes)
        self.data += piece
        self._pieces += 1
        if is_splintered(self._pieces, len(self.data)):
            detail = f"a body in {self._pieces:,} tiny pieces"
            raise FetchError("protocol", detail, wire_bytes=len(self.data))
        if self._pieces % _PIECES_AT_ONCE == 0:
            await asyncio.sleep(0)  # to read what has come does not wait
        if len(self.data) > request.max_bytes:
            if not request.may_cut:
                detail = f"a body of more than {request.max_bytes} bytes"
                raise FetchError("too_large", detail, wire_bytes=len(self.data))
            del self.data[request.max_bytes :]
            self.is_full = True


async def _read_body(reader: asyncio.StreamReader, head: bytes, *, request: Request) -> _Body:
    body = _Body(request)
    fields = read_head(head)
    codings = [value.strip(' \t";').lower() for name, value in fields if name == "transfer-encoding"]
    try:
        if any(coding.endswith("chunked") for coding in codings):
            await _read_chunks(reader, body)
        else:
            await _read_plainly(reader, body, _length_of(fields))
    except ConnectionError:
        body.is_cut = True
    return body


def _length_of(fields: tuple[tuple[str, str], ...]) -> int | None:
    """The stated length; None where none is valid. Two that differ are how responses are smuggled."""
    values = {part.strip() for name, value in fields if name == "content-length" for part in value.split(",")}
    digits = (value for value in values if value.isascii() and value.isdigit())
    lengths = {int(value[:_MAX_DIGITS]) for value in digits}
    if len(lengths) > 1:
        raise FetchError("protocol", "two lengths that differ")
    return lengths.pop() if lengths else None


async def _read_plainly(reader: asyncio.StreamReader, body: _Body, length: int | None) -> None:
    while not body.is_full and (length is None or len(body.data) < length):
        most = _PIECE_BYTES if length is None else min(_PIECE_BYTES, length - len(body.data))
        piece = await reader.read(most)
        if not piece:
            body.is_cut = length is not None
            return
        await body.add(piece)


async def _read_chunks(reader: asyncio.StreamReader, body: _Body) -> None:
    while not body.is_full:
        line = await _read_line(reader)
        size = _CHUNK_SIZE.match(line)
        if size is None:
            if line and not body.data:
                raise FetchError("protocol", f"{line[:40]!r} is not the size of a chunk")
            body.is_cut = True
            return
        left = int(size[1], 16)
        if not left:
            return  # whatever the trailers say
        while left and not body.is_full:
            piece = await reader.read(min(left, _PIECE_BYTES))
            if not piece:
                body.is_cut = True
                return
            left -= len(piece)
            await body.add(piece)
        await _read_line(reader)  # the chunk's end
