"""The heads of WARC records, as far as an index tells of them; read as the common tools read them."""

import re
from collections.abc import Iterator

import msgspec

from sterna.model import Record

_SPACE = re.compile(r"[;\s]")


class Heads(Record, frozen=True):
    """What a record says of itself, and an answer in it; names in lower case, the first of each counts."""

    fields: dict[str, str]
    status: str = ""
    http_fields: dict[str, str] = msgspec.field(default_factory=dict)
    block_start: int = 0  # where the body of the answer begins, or the block where there is no answer

    @property
    def kind(self) -> str:
        return self.fields.get("warc-type", "")

    @property
    def url(self) -> str:
        return self.fields.get("warc-target-uri", "")

    @property
    def date(self) -> str:
        return self.fields.get("warc-date", "")

    @property
    def mime(self) -> str | None:
        """The media type of an answer, without its parameters; None where it has none."""
        stated = self.http_fields.get("content-type")
        return _SPACE.split(stated, maxsplit=1)[0].strip() if stated else stated


def read_heads(beginning: bytes) -> Heads:
    """The heads of a record from its first bytes."""
    _, fields, start = _head(beginning, 0)
    if "msgtype=response" not in fields.get("content-type", ""):
        return Heads(fields, block_start=start)
    status_line, http_fields, end = _head(beginning, start)
    return Heads(fields, _status(status_line), http_fields, end)


def _status(line: str) -> str:
    return line.partition(" ")[2].strip().partition(" ")[0]


def _head(data: bytes, start: int) -> tuple[str, dict[str, str], int]:
    """First line, fields and end of the head that starts there."""
    lines = _lines(data, start)
    first, end = next(lines, ("", start))
    fields: dict[str, str] = {}
    name = ""  # of the field that a continuation line would add to
    for line, after in lines:
        end = after
        if not line:
            break
        if line[0] in " \t":
            if name:
                fields[name] += line
            continue
        key, colon, value = line.partition(":")
        key = key.rstrip(" \t").lower()
        name = key if colon and key not in fields else ""
        if name:
            fields[name] = value.lstrip()
    return first, fields, end


def _lines(data: bytes, start: int) -> Iterator[tuple[str, int]]:
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield _text(data[start:end]).rstrip(), end
        start = end


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")
