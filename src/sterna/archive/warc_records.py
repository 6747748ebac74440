"""A page as WARC 1.1 records, each a gzip member of its own (ISO 28500:2017).

A body is stored without its transfer encoding and with its content encoding. HTTP heads are stored as
received, but true for that body: fields that no longer hold get an `X-Archive-Orig-` name, as in other
archiving tools.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from io import BytesIO
from ipaddress import ip_address

from fastwarc.stream_io import GzipWriter
from fastwarc.warc import WarcRecord, WarcRecordType

from sterna.archive.disk import clean, moment
from sterna.archive.manifest import Original
from sterna.model import Page, Raw

DATE_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"  # of WARC-Date, in UTC
_LEVEL = 6
_KEPT_AS = b"X-Archive-Orig-"
_LATER_VERSION = re.compile(rb"(?:^|(?<= ))HTTP/[23](?:\.0)?(?=[ \r\n]|$)")
_REVISIT = "http://netpreserve.org/warc/1.1/revisit/"


def warcinfo(name: str, fields: Mapping[str, str], *, now: datetime) -> bytes:
    """The first record of a file: the software and its settings."""
    described = {"format": "WARC File Format 1.1", **fields}
    block = "".join(f"{key}: {' '.join(value.split())}\r\n" for key, value in described.items() if value)
    headers = {
        "WARC-Date": now.strftime(DATE_FORMAT),
        "WARC-Filename": name,
        "Content-Type": "application/warc-fields",
    }
    member, _ = _member(WarcRecordType.warcinfo, block.encode(), headers=headers)
    return member


def original_of(page: Page, raw: Raw) -> Original:
    """What a later revisit states of this response."""
    return Original(page.fetched, _sha1(raw.body))


def is_revisit(page: Page, raw: Raw, original: Original | None) -> bool:
    """Whether the page is stored as a revisit: its body is the one of an earlier record, byte for byte.

    A server may send the same page compressed or not; then its head does not describe the earlier body.
    """
    if not page.is_unchanged:
        return False
    return page.status == 304 or (original is not None and original.payload == _sha1(raw.body))


def page_records(page: Page, raw: Raw, original: Original | None = None) -> bytes:
    """The response, or a revisit of the original instead, and the request."""
    url = clean(page.url)
    headers = {"WARC-Target-URI": url, "WARC-Date": moment(page.fetched).strftime(DATE_FORMAT)}
    if raw.is_http2:
        headers["WARC-Protocol"] = "h2"
    address = {"WARC-IP-Address": raw.address} if _is_address(raw.address) else {}
    is_again = is_revisit(page, raw, original)
    head = response_head(raw.response_head, page.status, body_bytes=len(raw.body))
    described = headers | address | {"Content-Type": "application/http; msgtype=response"}
    if is_again:
        profile = "server-not-modified" if page.status == 304 else "identical-payload-digest"
        described |= {"WARC-Profile": _REVISIT + profile, "WARC-Refers-To-Target-URI": url}
        if original:
            described["WARC-Refers-To-Date"] = moment(original.fetched).strftime(DATE_FORMAT)
            described["WARC-Payload-Digest"] = _written(original.payload)
    else:
        described["WARC-Payload-Digest"] = _digest(raw.body)
    kind = WarcRecordType.revisit if is_again else WarcRecordType.response
    block = head + raw.body
    if is_again:
        # Replay takes the body of the original, and its head too where there is none: the head of a 304 would
        # be replayed as it is, as an empty page.
        block = b"" if page.status == 304 else head
    answer, record_id = _member(kind, block, headers=described)
    if not raw.request_head.strip():
        return answer
    headers |= {"WARC-Concurrent-To": record_id, "Content-Type": "application/http; msgtype=request"}
    request, _ = _member(WarcRecordType.request, request_head(raw.request_head), headers=headers)
    return answer + request


def _member(kind: WarcRecordType, block: bytes, *, headers: Mapping[str, str]) -> tuple[bytes, str]:
    record = WarcRecord()
    record.init_headers(kind)
    for name, value in headers.items():
        record.headers[name] = value
    record.headers["WARC-Block-Digest"] = _digest(block)
    record.set_bytes_content(block)
    buffer = BytesIO()
    writer = GzipWriter(buffer, _LEVEL)
    record.write(writer)
    writer.finish()
    return buffer.getvalue(), record.headers["WARC-Record-ID"]


def _digest(data: bytes) -> str:
    return _written(_sha1(data))


def _sha1(data: bytes) -> bytes:
    # It is what other tools write, in base 32, and compare; it detects damage, not manipulation.
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _written(sha1: bytes) -> str:
    return "sha1:" + base64.b32encode(sha1).decode()


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


# --- HTTP heads


def request_head(head: bytes) -> bytes:
    """The request's head in HTTP/1.1 form, closed by a blank line."""
    request_line, *fields = [line for line in head.splitlines(keepends=True) if line.strip()]
    return _as_http1(request_line, fields)


def response_head(head: bytes, status: int, *, body_bytes: int) -> bytes:
    """The response's head in HTTP/1.1 form, for a body of this length."""
    status_line, *fields = _final(head) or [b"HTTP/1.1 %d \r\n" % status]
    kept = [_renamed(field, body_bytes) for field in fields]
    had_length, has_length = (b"content-length" in map(_name, each) for each in (fields, kept))
    length = [b"Content-Length: %d\r\n" % body_bytes] if had_length and not has_length else []
    return _as_http1(status_line, [*length, *kept])


def _final(head: bytes) -> list[bytes]:
    """The lines of the last response: interim ones (103) come before it, trailers after it."""
    blocks: list[list[bytes]] = [[]]
    for line in head.splitlines(keepends=True):
        if line.strip():
            blocks[-1].append(line)
        else:
            blocks.append([])
    return next((block for block in reversed(blocks) if block and block[0].startswith(b"HTTP/")), [])


def _renamed(field: bytes, body_bytes: int) -> bytes:
    """The field, under another name if it does not hold for the stored body."""
    name, value = _name(field), field.partition(b":")[2].strip()
    # A valid length has at most 19 digits; int() would accept thousands, and signs.
    stated = int(value) if value.isdigit() and len(value) < 20 else -1
    is_wrong_length = name == b"content-length" and stated != body_bytes
    return _KEPT_AS + field if name == b"transfer-encoding" or is_wrong_length else field


def _name(field: bytes) -> bytes:
    return field.partition(b":")[0].strip().lower()


def _as_http1(first: bytes, fields: Sequence[bytes]) -> bytes:
    head = b"".join([_LATER_VERSION.sub(b"HTTP/1.1", first), *fields])
    return head + (b"\r\n" if head.endswith(b"\n") else b"\r\n\r\n")
