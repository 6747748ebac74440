"""Bytes to text as browsers do it: byte order mark, header, meta element, and then a guess."""

import codecs
import re

import webencodings

from sterna.web.japanese import decode_japanese

_PRESCAN_BYTES = 1024  # HTML standard 13.2.3.2

_HEAD_BYTES = 64 * 1024  # of a page in whose head a meta may stand behind those
_META_CHARSET = re.compile(rb"<meta[^<>]*charset", re.IGNORECASE)
_NO_MARKUP = re.compile(
    rb"<!--.*?(?:-->|\Z)|<(script|style|title|noscript)\b.*?(?:</\1|\Z)", re.IGNORECASE | re.DOTALL
)
_BODY = re.compile(rb"<(?:body|/head|p|div|h[1-6]|table|ul|a)[\t\n\f\r />]", re.IGNORECASE)

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))

# Python leaves five bytes of windows-1252 undefined, where the Encoding standard has C1 controls.
_WINDOWS_1252 = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))

_CHARSET_PARAM = re.compile(
    r"""charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)'|([^\t\n\f\r ;,"']+))""", re.IGNORECASE
)

# What the prescan stops at: a comment ("<!-->" is a whole one), a tag's name, other markup up to its ">".
_MARKUP = re.compile(
    rb"""<!(?=--)(?:.*?-->|.*) | <(?P<name>/?[a-z][^\t\n\f\r />]*) | <[!/?][^>]*>""", re.I | re.S | re.X
)
_ATTRIBUTE = re.compile(
    rb"""[\t\n\f\r /]* (?P<name>[^\t\n\f\r />][^\t\n\f\r />=]*)
         (?:[\t\n\f\r ]*=[\t\n\f\r ]*
            (?:"(?P<double>[^"]*)" | '(?P<single>[^']*)' | ["'].* | (?P<bare>[^\t\n\f\r >]+)))?""",
    re.S | re.X,
)
_XML_ENCODING = re.compile(rb"""<\?xml[^>]*?encoding[\t\n\r ]*=[\t\n\r ]*["']([^"'>]*)["']""")


def charset_of(content_type: str) -> str | None:
    found = _CHARSET_PARAM.search(content_type)
    return next((value.strip() for value in found.groups() if value), None) if found else None


def decode_text(body: bytes, http_charset: str | None, *, is_html: bool = True) -> tuple[str, str]:
    """Returns the text, bad bytes as U+FFFD, and its encoding, which only in HTML a meta may declare."""
    for bom, name in _BOMS:
        if body.startswith(bom):
            return _decode_as(name, body[len(bom) :]), name
    declared = _name_of(http_charset or "") or (_declared_in(body) if is_html else None)
    if declared:
        return _decode_as(declared, body), declared
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return _decode_as("windows-1252", body), "windows-1252"


def load_encodings() -> None:
    """Imports the codecs of all encodings, which Python would import with the first page of each."""
    for label in webencodings.LABELS:
        _name_of(label)
    for name in ("euc-jp", "iso-2022-jp"):
        decode_japanese(name, b"\xad\xa1")


def _decode_as(name: str, body: bytes) -> str:
    if name == "windows-1252":
        return codecs.charmap_decode(body, "strict", _WINDOWS_1252)[0]
    if name == "replacement":
        # Encodings that can hide markup, such as ISO-2022-KR: one character, whatever the bytes.
        return "\ufffd" if body else ""
    if name in ("euc-jp", "iso-2022-jp"):
        return decode_japanese(name, body)
    # The Encoding standard reads GBK with the decoder of its superset.
    encoding = webencodings.lookup("gb18030" if name == "gbk" else name)
    text: str = encoding.codec_info.decode(body, "replace")[0]
    return text


def _name_of(label: str) -> str | None:
    """Returns the name of the encoding that a label means: "latin1" means windows-1252."""
    encoding = webencodings.lookup(label) if label.isascii() else None
    return encoding.name if encoding else None


def _declared_in(body: bytes) -> str | None:
    """What a meta element declares: in the first bytes, or later in the head, as browsers find it."""
    if found := _prescan(body[:_PRESCAN_BYTES]):
        return found
    if len(body) <= _PRESCAN_BYTES or not _META_CHARSET.search(body, 0, _HEAD_BYTES):
        return None
    head = _NO_MARKUP.sub(b"", body[:_HEAD_BYTES])
    end = _BODY.search(head)
    return _prescan(head[: end.start()] if end else head)


def _prescan(head: bytes) -> str | None:
    position = 0
    while found := _MARKUP.search(head, position):
        position = found.end()
        if found["name"] is None:
            continue
        attributes: dict[bytes, bytes] = {}
        while attribute := _ATTRIBUTE.match(head, position):
            value = attribute["double"] or attribute["single"] or attribute["bare"] or b""
            attributes.setdefault(attribute["name"].lower(), value)
            position = attribute.end()
        if position >= len(head):
            break  # a tag that is cut off may hold half a label
        if found["name"].lower() == b"meta" and (name := _declared_by(attributes)):
            return name
    xml = _XML_ENCODING.match(head)
    return _as_in_meta(xml[1]) if xml else None


def _declared_by(attributes: dict[bytes, bytes]) -> str | None:
    if b"charset" in attributes:
        return _as_in_meta(attributes[b"charset"])
    if attributes.get(b"http-equiv", b"").lower() == b"content-type":
        label = charset_of(attributes.get(b"content", b"").decode("latin-1"))
        return _as_in_meta(label.encode("latin-1")) if label else None
    return None


def _as_in_meta(label: bytes) -> str | None:
    # A page whose meta element could be read as ASCII is not in UTF-16, whatever it says.
    name = _name_of(label.decode("latin-1"))
    return {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "windows-1252"}.get(name or "", name)
