"""HTTP heads as a WARC file holds them: as received, but true for the body that is stored with them.

The body is stored without its transfer encoding and with its content encoding. What no longer holds is kept
under an `X-Archive-Orig-` name, as other archiving tools do it.
"""

import re

_KEPT_AS = b"X-Archive-Orig-"
_LATER_VERSION = re.compile(rb"(?:^|(?<= ))HTTP/[23](?:\.0)?(?=[ \r\n]|$)")


def request_head(head: bytes) -> bytes:
    """The request's head in HTTP/1.1 form, closed by a blank line."""
    request_line, *fields = _lines(head)
    return _closed([_as_http1(request_line), *fields])


def response_head(head: bytes, status: int, *, body_bytes: int | None) -> bytes:
    """The response's head in HTTP/1.1 form; `body_bytes` None where it describes a body that was not sent."""
    status_line, *fields = _final(head) or [b"HTTP/1.1 %d \r\n" % status]
    kept = [_renamed(field, body_bytes) for field in fields]
    had_length, has_length = (b"content-length" in map(_name, each) for each in (fields, kept))
    length = [b"Content-Length: %d\r\n" % (body_bytes or 0)] if had_length and not has_length else []
    return _closed([_as_http1(status_line), *length, *kept])


def _lines(head: bytes) -> list[bytes]:
    return [line for line in head.splitlines(keepends=True) if line.strip()]


def _final(head: bytes) -> list[bytes]:
    """The lines of the last response: interim ones (103) come before it, trailers after it."""
    blocks: list[list[bytes]] = [[]]
    for line in head.splitlines(keepends=True):
        if line.strip():
            blocks[-1].append(line)
        else:
            blocks.append([])
    return next((block for block in reversed(blocks) if block and block[0].startswith(b"HTTP/")), [])


def _renamed(field: bytes, body_bytes: int | None) -> bytes:
    name = _name(field)
    is_wrong_length = name == b"content-length" and body_bytes not in (None, _stated_length(field))
    return _KEPT_AS + field if name == b"transfer-encoding" or is_wrong_length else field


def _name(field: bytes) -> bytes:
    return field.partition(b":")[0].strip().lower()


def _stated_length(field: bytes) -> int:
    value = field.partition(b":")[2].strip()
    # No length that can be meant has more than 19 digits; int() would take thousands, and signs.
    return int(value) if value.isdigit() and len(value) < 20 else -1


def _as_http1(line: bytes) -> bytes:
    return _LATER_VERSION.sub(b"HTTP/1.1", line)


def _closed(lines: list[bytes]) -> bytes:
    head = b"".join(lines)
    return head + (b"\r\n" if head.endswith(b"\n") else b"\r\n\r\n")
