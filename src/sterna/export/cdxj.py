"""CDXJ: a line for each answer in WARC files, sorted by the address turned round and by time.

Fields and their order are those that cdxj-indexer and pywb write, every value a text:
`org,example)/ 20260102030405 {"url": ..., "mime": ..., "status": ..., "digest": ..., "length": ..., ...}`.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from sterna.export.records import Heads
from sterna.export.surt import surt
from sterna.export.warc import Entry
from sterna.model import Record

BLOCK_LINES = 1024  # of a compressed index: what a reader fetches to look up one address
_INDEXED = frozenset({"response", "revisit"})
_NOT_DIGIT = re.compile(r"\D")


def index_line(entry: Entry, *, filename: str) -> bytes | None:
    """The line of a record; None where it is none that an index tells of."""
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
    """Some lines, compressed, and the line by which a second index knows them."""

    data: bytes
    pointer: bytes


def blocks(lines: Iterable[bytes], *, filename: str) -> Iterator[Block]:
    """The lines as a compressed index; its pointers, in their order, are what is searched first."""
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
