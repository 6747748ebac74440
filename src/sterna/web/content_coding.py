"""Content codings undone, with a bound on what comes out; of damaged bodies as much as can be read."""

import re
import zlib
from collections.abc import Callable, Generator, Iterator
from io import BytesIO

import brotli
import zstandard

from sterna.errors import ReadError
from sterna.model import Record

_MAX_CODINGS = 3
_MAX_MEMBERS = 10_000  # of a gzip body; empty ones cost time and give nothing
_CHUNK_BYTES = 2**16

# Four bytes of zstd can stand for 128 KiB, and its decoder gives all that its input holds: 8 MiB at a time.
_ZSTD_CHUNK_BYTES = 2**8
_MAX_ZSTD_WINDOW_BYTES = 2**27

_GZIP_MAGIC = b"\x1f\x8b"
_PLAIN = re.compile(rb"(?:\xef\xbb\xbf)?\s*<[!?a-z]", re.IGNORECASE)
_GZIP_WBITS, _ZLIB_WBITS, _RAW_WBITS = 31, 15, -15


class _CutOff(Exception):
    """The compressed body ends too early."""

    def __init__(self) -> None:
        super().__init__("it ends too early")


_BROKEN = (_CutOff, zlib.error, brotli.error, zstandard.ZstdError)


class Decoded(Record, frozen=True):
    """A body without its content codings, and what was wrong with it."""

    body: bytes
    note: str = ""  # "cut": it ended too early; "damaged": what follows is unreadable, or a checksum is wrong


def decode_body(body: bytes, content_encoding: str, *, max_bytes: int) -> bytes:
    """Returns the body without its content codings, as far as it can be read; raises ReadError."""
    return decode(body, content_encoding, max_bytes=max_bytes).body


def decode(body: bytes, content_encoding: str, *, max_bytes: int) -> Decoded:
    """Undoes the content codings; ReadError "bomb" beyond `max_bytes`, "encoding" if nothing can be read."""
    note = ""
    for coding in _codings(content_encoding):
        # Others are ignored, as browsers do: "utf-8" and "none" stand here by mistake. And nothing at all,
        # under any coding, is how servers send an empty page.
        if body and coding in _DECODERS:
            undone = _undo(body, coding, max_bytes=max_bytes)
            body, note = undone.body, note or undone.note
    if len(body) > max_bytes:
        raise _bomb(max_bytes)
    return Decoded(body, note)


def decode_start(body: bytes, content_encoding: str, *, max_bytes: int, is_cut: bool) -> tuple[bytes, bool]:
    """The first `max_bytes` of the body without its content codings, and whether there is more of it.

    `is_cut`: no more of the body was read. ReadError where it is broken before that.
    """
    for coding in _codings(content_encoding):
        if body and coding in _DECODERS:
            out = BytesIO()
            try:
                for piece in _DECODERS[coding](body):
                    out.write(piece)
                    if out.tell() > max_bytes:
                        is_cut = True
                        break
            except (ReadError, *_BROKEN) as error:
                if not (is_cut and out.tell()):
                    raise ReadError("encoding", f"broken {coding} body: {error}") from error
            body = out.getvalue()
    return body[:max_bytes], is_cut or len(body) > max_bytes


def _codings(content_encoding: str) -> list[str]:
    """The codings in the order in which they are undone; ReadError if they are too many."""
    codings = [name for coding in content_encoding.split(",") if (name := coding.strip().lower())]
    if len(codings) > _MAX_CODINGS:
        raise ReadError("encoding", f"more than {_MAX_CODINGS} content codings: {content_encoding[:80]!r}")
    return codings[::-1]


def _undo(body: bytes, coding: str, *, max_bytes: int) -> Decoded:
    out = BytesIO()
    note = ""
    try:
        for piece in _DECODERS[coding](body):
            out.write(piece)
            if out.tell() > max_bytes:
                raise _bomb(max_bytes)
    except _BROKEN as error:
        if _PLAIN.match(body):
            return Decoded(body)  # some servers name a coding and send plain HTML
        if not out.tell():
            raise ReadError("encoding", f"broken {coding} body: {error}") from error
        note = "cut" if isinstance(error, _CutOff) else "damaged"
    return Decoded(out.getvalue(), note)


def _bomb(max_bytes: int) -> ReadError:
    return ReadError("bomb", f"more than {max_bytes} bytes when decompressed")


def _gunzip(body: bytes) -> Iterator[bytes]:
    position = 0
    for _ in range(_MAX_MEMBERS):
        position = yield from _inflate(body, position, wbits=_GZIP_WBITS)
        if not body.startswith(_GZIP_MAGIC, position):
            return  # servers pad; gzip itself ignores what follows
    raise ReadError("encoding", f"more than {_MAX_MEMBERS} gzip members")


def _undeflate(body: bytes) -> Iterator[bytes]:
    if body.startswith(_GZIP_MAGIC):
        yield from _gunzip(body)
        return
    # "deflate" means a zlib stream (RFC 9110 8.4.1.2), but some servers send a raw one, and browsers take it.
    is_zlib = body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0
    yield from _inflate(body, 0, wbits=_ZLIB_WBITS if is_zlib else _RAW_WBITS)


def _inflate(body: bytes, position: int, *, wbits: int) -> Generator[bytes, None, int]:
    """Yields the pieces of the stream that starts at `position`, and returns where it ends."""
    inflater = zlib.decompressobj(wbits)
    while not inflater.eof:
        pending = inflater.unconsumed_tail
        if not pending:
            pending = body[position : position + _CHUNK_BYTES]
            position += len(pending)
        before = inflater.copy()
        try:
            piece = inflater.decompress(pending, _CHUNK_BYTES)
        except zlib.error:
            yield from _salvage(before, pending)
            raise
        if not piece and not pending:
            raise _CutOff
        yield piece
    return position - len(inflater.unused_data)


def _salvage(inflater: "zlib._Decompress", pending: bytes) -> Iterator[bytes]:
    """What stands before the error, which a single call would lose."""
    for at in range(len(pending)):
        try:
            yield inflater.decompress(pending[at : at + 1], _CHUNK_BYTES)
        except zlib.error:
            return


def _unbrotli(body: bytes) -> Iterator[bytes]:
    decoder = brotli.Decompressor()
    piece: bytes = decoder.process(body, output_buffer_limit=_CHUNK_BYTES)
    while piece:
        yield piece
        piece = decoder.process(b"", output_buffer_limit=_CHUNK_BYTES)
    if not decoder.is_finished():
        raise _CutOff


def _unzstd(body: bytes) -> Iterator[bytes]:
    # Not stream_reader: it takes a frame that is cut off for a whole one.
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES)
    frame = decompressor.decompressobj()
    for start in range(0, len(body), _ZSTD_CHUNK_BYTES):
        rest = body[start : start + _ZSTD_CHUNK_BYTES]
        while rest:
            if frame.eof:
                frame = decompressor.decompressobj()
            yield frame.decompress(rest)
            rest = frame.unused_data
    if not frame.eof:
        raise _CutOff


_DECODERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _undeflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
