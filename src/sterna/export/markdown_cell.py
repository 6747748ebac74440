"""What runs in the cell of an export: stored pages in, Markdown out, until the export closes the line.

Their HTML, and the bodies in WARC records, are what strangers' servers sent.
"""

import socket
from collections.abc import Callable
from contextlib import suppress

from sterna.archive.warc_scan import content
from sterna.errors import ReadError, StorageError
from sterna.export.markdown import text_to_markdown, to_markdown
from sterna.export.warc import read_heads
from sterna.model import Record
from sterna.runtime.cell.frame import CellLine, message_decoder
from sterna.web.charset import charset_of, decode_text, load_encodings
from sterna.web.content_coding import decode_body

MAX_RECORD_BYTES = 32 * 1024**2  # of a WARC record, and of the page in it
MAX_CONVERSION_BYTES = 128 * 1024**2
MAX_MARKDOWN_BYTES = 128 * 1024**2
_RECORD_END = b"\r\n\r\n"


class Conversion(Record, frozen=True, kw_only=True):
    """A page to be converted: its HTML, else that of its WARC record, else its text and headings."""

    url: str
    html: str = ""
    record: bytes = b""  # compressed
    text: str = ""
    headings: tuple[str, ...] = ()
    is_main: bool = False  # without menus and other frames


class Converted(Record, frozen=True):
    markdown: str


warm = load_encodings  # in the warm parent: a jailed cell can open no file
_read_task: Callable[[bytes], Conversion] = message_decoder(Conversion)


def serve(sock: socket.socket) -> None:
    line = CellLine(sock, _read_task, most_in=MAX_CONVERSION_BYTES, most_out=MAX_MARKDOWN_BYTES)
    while True:
        try:
            task = line.receive()
        except (EOFError, ConnectionError):
            return
        line.send(Converted(convert(task)))


def convert(page: Conversion) -> str:
    html = page.html or _html_of(page.record)
    body = ""
    if html:
        with suppress(ReadError):  # the parser gave up; the stored text is used instead
            body = to_markdown(html, page.url, is_main=page.is_main)
    return body or text_to_markdown(page.text, page.headings)


def _html_of(packed: bytes) -> str:
    """The page in a WARC record; empty if it is unreadable."""
    try:
        record = content(packed, max_bytes=MAX_RECORD_BYTES) if packed else b""
        heads = read_heads(record)
        body = record[heads.block_start :].removesuffix(_RECORD_END)
        coding = heads.http_fields.get("content-encoding", "")
        body = decode_body(body, coding, max_bytes=MAX_RECORD_BYTES)
    except (ReadError, StorageError):
        return ""
    return decode_text(body, charset_of(heads.http_fields.get("content-type", "")))[0]
