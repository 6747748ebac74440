"""CDXJ: a line for each answer in WARC files, sorted by the reversed address and by time.

Fields and their order are those that cdxj-indexer and pywb write, every value a text:
`org,example)/ 20260102030405 {"url": ..., "mime": ..., "status": ..., "digest": ..., "length": ..., ...}`.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import compress, islice, pairwise
from urllib.parse import quote_from_bytes, unquote_to_bytes

from sterna.export.warc import Heads, WarcEntry
from sterna.web.urls import hostname_of, path_of, site_of

BLOCK_LINES = 1024  # of a compressed index, which a reader fetches at once
_INDEXED = frozenset({"response", "revisit"})
_NOT_DIGIT = re.compile(r"\D")
_WWW = re.compile(r"\Awww\d*\.")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "#%")

# Sessions in queries, and in paths of ASP.NET: /(24 characters)/page.aspx, /(S(24 characters))/page.aspx.
_SESSION = re.compile(r"(?:jsessionid|phpsessid|sid)=[a-z0-9]{32}|aspsessionid[a-z]{8}=[a-z]{24}")
_COLD_FUSION = (re.compile("cfid=."), re.compile("cftoken=."))  # one after the other
_ASPX_SESSION = re.compile(r"\((?:[a-z0-9]{24}|(?:[a-z]\([a-z0-9]{24}\))+)\)")


def index_line(entry: WarcEntry, *, filename: str) -> str | None:
    """The line of a record; None if the index does not list its type."""
    heads = entry.heads
    if heads.kind not in _INDEXED:
        return None
    fields = {
        "url": heads.url,
        "mime": "warc/revisit" if heads.kind == "revisit" else heads.mime,
        "status": heads.status or None,
        "digest": heads.payload_digest,
        "length": str(entry.length),
        "offset": str(entry.offset),
        "filename": filename,
        "recordDigest": entry.digest or None,
    }
    stated = {name: value for name, value in fields.items() if value is not None}
    return f"{surt(heads.url)} {timestamp(heads)} {json.dumps(stated)}\n"


def timestamp(heads: Heads) -> str:
    """The record's time in 14 digits."""
    return _NOT_DIGIT.sub("", heads.date)[:14]


def blocks(lines: Iterable[str], *, filename: str) -> Iterator[tuple[bytes, str]]:
    """The lines as a compressed index, block by block, each with its part of the secondary index."""
    rest, offset = iter(lines), 0
    header = f"!meta 0 {json.dumps({'format': 'cdxj-gzip-1.0', 'filename': filename})}\n"
    while some := list(islice(rest, BLOCK_LINES)):
        data = gzip.compress("".join(some).encode(), mtime=0)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        place = {"offset": offset, "length": len(data), "digest": digest}
        yield data, f"{header}{some[0].partition('{')[0].strip()} {json.dumps(place)}\n"
        header = ""
        offset += len(data)


# --- SURT: the key by which indexes of web archives are sorted, such as "org,example)/path?query"
#
# The spellings that archives hold for one address get one key, as the tools of the Internet Archive make it:
# escapes are undone and made again, case is folded, `www` and session ids are dropped, parameters sorted.


def surt(url: str) -> str:
    """The key of a canonical http or https URL."""
    path, _, query = path_of(url).partition("?")
    *folders, page = _escaped(_normal(_unescaped(path))).lower().split("/")
    if ".aspx" in page[1:]:
        folders = [folder for folder in folders if not _ASPX_SESSION.fullmatch(folder)]
    path = "/".join([*folders, page]).removesuffix("/") or "/"
    query = _query(query)
    return f"{_host(url)}){path}?{query}" if query else f"{_host(url)}){path}"


def _host(url: str) -> str:
    host = _WWW.sub("", hostname_of(url).replace("..", ".").strip("."))
    name, port = ",".join(reversed(host.split("."))), site_of(url).rpartition(":")[2]
    return f"{name}:{port}" if port.isdecimal() else name  # a canonical URL names no default port


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
    is_kept = [not _SESSION.fullmatch(parameter) for parameter in parameters]
    for at, pair in enumerate(pairwise(parameters)):
        if all(pattern.match(each) for pattern, each in zip(_COLD_FUSION, pair, strict=True)):
            is_kept[at] = is_kept[at + 1] = False
    kept = list(compress(parameters, is_kept))
    if len(kept) < len(parameters) and kept[-1:] != parameters[-1:]:
        kept.append("")  # those tools leave the `&` of one at the end
    return "&".join(sorted(kept, key=lambda parameter: parameter.split("=", 1)))


def _unescaped(text: str) -> bytes:
    """The bytes with all escapes undone, repeatedly escaped ones too."""
    before, data = b"", text.encode()
    while data != before:
        before, data = data, unquote_to_bytes(data)
    return data


def _escaped(data: bytes) -> str:
    return quote_from_bytes(data, safe=_SAFE)
