"""What a document is: its Content-Type, or else what its first bytes look like (WHATWG's MIME sniffing)."""

import re

_WORD = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_ESSENCE = re.compile(rf"[\t\n\r ]*({_WORD}/{_WORD})[\t\n\r ]*(?:;|\Z)")
_LOOSE = re.compile(r"[\t\n\r ]*([a-z0-9+.-]+/[a-z0-9+.-]+)(?=[\t\n\r ])", re.IGNORECASE)
# With these, browsers take a page for one without a type.
_UNTOLD = frozenset({"", "*/*", "unknown/unknown", "application/unknown"})
_BINARY = "application/octet-stream"
_XML_TYPES = frozenset({"application/xml", "text/xml"})

_SNIFFED_BYTES = 1445
# The tags by which browsers know a page that comes without a type (7.1).
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<(?:!--|(?:!doctype html|html|head|script|iframe|h1|div|font|table|a"
    rb"|style|title|b|body|br|p)[ >])",
    re.IGNORECASE,
)
_XML = re.compile(rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<\?xml")
_SIGNATURES = (
    (b"%PDF-", "application/pdf"),
    (b"\xff\xfe", "text/plain"),
    (b"\xfe\xff", "text/plain"),
    (b"\xef\xbb\xbf", "text/plain"),
)
_BINARY_BYTE = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_XHTML_ROOT = re.compile(
    rb"""[^<]*(?:<[?!](?:[^>"']|"[^"]*"|'[^']*')*>[^<]*)*<html[^>]*[\t\n\r ]xmlns=["']http://www\.w3\.org/1999/xhtml["']"""
)


def type_of(content_type: str, body: bytes) -> str:
    """The type of a body with this header, in lower case; "" only where it is empty and nothing is said."""
    essence = essence_of(content_type)
    if essence == _BINARY:
        return "text/html" if _HTML.match(body) else essence  # what is not set up for pages says so
    if essence in _UNTOLD:
        essence = _sniff(body) if body else essence
    if essence in _XML_TYPES and _XHTML_ROOT.match(body, 0, _SNIFFED_BYTES):
        return "application/xhtml+xml"
    return essence


def essence_of(content_type: str) -> str:
    """The last valid type of the header, as WHATWG's Fetch extracts it; "" if there is none."""
    found = ""
    for part in content_type.split(","):
        valid = _ESSENCE.match(part) or _LOOSE.match(part)
        if valid and (not found or valid[1] != "*/*"):
            found = valid[1].lower()
    return found


def _sniff(body: bytes) -> str:
    if _HTML.match(body):
        return "text/html"
    if _XML.match(body):
        return "text/xml"
    for signature, type_ in _SIGNATURES:
        if body.startswith(signature):
            return type_
    return _BINARY if _BINARY_BYTE.search(body, 0, _SNIFFED_BYTES) else "text/plain"
