"""Texts, addresses and times as XML documents have them."""

import re
from datetime import UTC, datetime
from html import escape

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0 2.2
# What browsers leave as it is in a path or a query, and RFC 3986 does not allow there.
_NOT_URI = re.compile(r"[\[\]{}|\\^`\"<> ]|[^!-~]|%(?![0-9A-Fa-f]{2})")


def text(written: str) -> str:
    """A text that can stand in an element or between quotes."""
    return escape(_NOT_XML.sub("\ufffd", written))


def address(url: str) -> str:
    """A URL as RFC 3986 has it, that can stand in an element or between quotes."""
    origin_end = url.find("/", len("https://"))
    return escape(url[:origin_end] + _NOT_URI.sub(_quoted, url[origin_end:]))


def time(seconds: float) -> str:
    """A time as the W3C and RFC 3339 write it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _quoted(sign: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in sign[0].encode("utf-8", "replace"))
