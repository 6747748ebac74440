"""CDXJ: a line for each answer in WARC files, sorted by the reversed address and by time.

Fields and their order are those that cdxj-indexer and pywb write, every value a text:
`org,example)/ 20260102030405 {"url": ..., "mime": ..., "status": ..., "digest": ..., "length": ..., ...}`.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from urllib.parse import quote_from_bytes, unquote_to_bytes

from sterna.export.warc import Heads, WarcEntry
from sterna.model import Record
from sterna.web.urls import hostname_of, path_of, site_of

BLOCK_LINES = 1024  # of a compressed index, which a reader fetches at once
_INDEXED = frozenset({"response", "revisit"})
_NOT_DIGIT = re.compile(r"\D")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_WWW = re.compile(r"www\d*\.")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "#%")

# Parameters with session ids, and the lengths of the ids.
_SESSION_PARAMETERS = {"jsessionid": 32, "phpsessid": 32, "sid": 32}
_ASP, _ASP_KEY, _ASP_NUMBER = "aspsessionid", 8, 24
_COLD_FUSION = ("cfid", "cftoken")  # one after the other
_ASPX_NUMBER = 24


def index_line(entry: WarcEntry, *, filename: str) -> bytes | None:
    """The line of a record; None if the index does not list its type."""
    heads = entry.heads
    if heads.kind not in _INDEXED:
        return None
    fields = {
        "url": heads.url,
        "mime": "warc/revisit" if heads.kind == "revisit" else heads.mime,
        "status": heads.status,
        "digest": heads.fields.get("warc-payload-digest"),
        "length": str(entry.length),
        "offset": str(entry.offset),
        "filename": filename,
        "recordDigest": entry.digest or None,
    }
    stated = {name: value for name, value in fields.items() if value is not None}
    return f"{surt(heads.url)} {timestamp(heads)} {json.dumps(stated)}\n".encode("ascii")


def timestamp(heads: Heads) -> str:
    """The record's time in 14 digits."""
    return _NOT_DIGIT.sub("", heads.date)[:14]


class Block(Record, frozen=True):
    """Some lines, compressed, and their line in the secondary index."""

    data: bytes
    pointer: bytes


def blocks(lines: Iterable[bytes], *, filename: str) -> Iterator[Block]:
    """The lines as a compressed index; the pointers make up the secondary index."""
    rest, offset = iter(lines), 0
    header = b"!meta 0 %s\n" % json.dumps({"format": "cdxj-gzip-1.0", "filename": filename}).encode()
    while some := list(islice(rest, BLOCK_LINES)):
        data = gzip.compress(b"".join(some), mtime=0)
        place = {
            "offset": offset,
            "length": len(data),
            "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        }
        key = some[0].partition(b"{")[0].strip()
        yield Block(data, header + key + b" " + json.dumps(place).encode() + b"\n")
        header = b""
        offset += len(data)


# --- SURT: the key by which indexes of web archives are sorted, such as "org,example)/path?query"
#
# The spellings that archives hold for one address get one key, as the tools of the Internet Archive make it:
# escapes are undone and made again, case is folded, `www` and session ids are dropped, parameters sorted.


def surt(url: str) -> str:
    """The key of a canonical http or https URL."""
    path, _, query = path_of(url).partition("?")
    key = f"{_host(url)}){_path(path)}"
    query = _query(query)
    return f"{key}?{query}" if query else key


def _host(url: str) -> str:
    host = hostname_of(url).lower().replace("..", ".").strip(".")
    if found := _WWW.match(host):
        host = host[found.end() :]
    name = ",".join(reversed(host.split(".")))
    site = site_of(url)
    scheme, port = site.partition(":")[0], site.rpartition(":")[2]
    number = int(port) if port.isdecimal() else 0
    return f"{name}:{number}" if number and number != _DEFAULT_PORTS[scheme] else name


def _path(path: str) -> str:
    path = _escaped(_normal(_unescaped(path))).lower()
    path = _without_sessions(path)
    return path.removesuffix("/") or "/"


def _without_sessions(path: str) -> str:
    """The path without sessions of ASP.NET: /(24 characters)/page.aspx, /(S(24 characters))/page.aspx."""
    *folders, page = path.split("/")
    if ".aspx" not in page[1:]:
        return path
    return "/".join([*(folder for folder in folders if not _is_session(folder)), page])


def _is_session(folder: str) -> bool:
    if not (folder.startswith("(") and folder.endswith(")")):
        return False
    inner = folder[1:-1]
    if _is_number(inner, _ASPX_NUMBER):
        return True
    # Each part is a letter and its number in brackets.
    parts = inner.removesuffix(")").split(")")
    return inner.endswith(")") and all(
        part[:1].isalpha() and part[1:2] == "(" and _is_number(part[2:], _ASPX_NUMBER) for part in parts
    )


def _is_number(text: str, length: int) -> bool:
    return len(text) == length and text.isascii() and text.isalnum()


def _normal(path: bytes) -> bytes:
    """The path without dot segments and empty ones; what goes above the root stays."""
    kept: list[bytes] = []
    for segment in path.split(b"/")[1:]:
        if segment == b".." and kept:
            kept.pop()
        elif segment != b".":
            kept.append(segment)
    *folders, last = kept or [b""]
    return b"/" + b"".join(folder + b"/" for folder in folders if folder) + last


def _query(query: str) -> str:
    parameters = _escaped(_unescaped(query)).lower().split("&")
    kept = [
        parameter
        for number, parameter in enumerate(parameters)
        if not (_tells_session(parameter) or _is_cold_fusion(parameters, number))
    ]
    if len(kept) < len(parameters) and kept[-1:] != parameters[-1:]:
        kept.append("")  # those tools leave the `&` of one at the end
    return "&".join(sorted(kept, key=lambda parameter: parameter.split("=", 1)))


def _tells_session(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    if name in _SESSION_PARAMETERS:
        return _is_number(value, _SESSION_PARAMETERS[name])
    key = name.removeprefix(_ASP)
    return (
        name.startswith(_ASP)
        and len(key) == _ASP_KEY
        and len(value) == _ASP_NUMBER
        and (key + value).isalpha()
    )


def _is_cold_fusion(parameters: list[str], number: int) -> bool:
    """True of both parameters of such a pair."""
    return any(
        first >= 0
        and [each.partition("=")[0] for each in parameters[first : first + 2]] == list(_COLD_FUSION)
        and all(each.partition("=")[2] for each in parameters[first : first + 2])
        for first in (number - 1, number)
    )


def _unescaped(text: str) -> bytes:
    """The bytes with all escapes undone, repeatedly escaped ones too."""
    before, data = b"", text.encode()
    while data != before:
        before, data = data, unquote_to_bytes(data)
    return data


def _escaped(data: bytes) -> str:
    return quote_from_bytes(data, safe=_SAFE)
