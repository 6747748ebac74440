"""The memory that texts take, and the records of a parcel until home has stored them.

A text takes one, two or four bytes for each character, as its widest one needs. The figures of objects are
those of CPython on 64 bits, and of what the ledger makes of a URL.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol

from sterna.model import Links, Page, Target

MAX_STATE_BYTES = 48 * 1024 * 1024  # of all facts that a crawler keeps at a site
MAX_FACT_BYTES = 16 * 1024 * 1024  # of one of them
PAGE_BYTES, TARGET_BYTES = 600, 500  # of a page or URL, besides its columns
VALUE_BYTES = 60  # of a text or number in a column, besides what the text says
ROW_BYTES = 60  # of a fact that rules send home
FACT_BYTES, GONE_BYTES, DONE_BYTES = 160, 50, 50  # of a fact of the crawler's own, and of URLs that are done

_LENGTHS = {  # by the head of an object: bytes of its length, and bytes beside that and the contents
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
_FIXED = {  # the size of what follows the head; what is in lists and maps counts for itself
    0xC0: 0, 0xC1: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
    0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
}  # fmt: skip

_CONTINUATION = bytes(range(0x80, 0xC0))
# The first bytes of characters that make their text broad (from U+0100) or wide (from U+10000).
_IS_WIDE_UTF8 = re.compile(rb"[\xf0-\xff]").search
_IS_BROAD_UTF8 = re.compile(rb"[\xc4-\xff]").search


def weight_of(texts: Iterable[str]) -> int:
    """The bytes that the texts take in memory."""
    return sum(len(text) * _width(text) for text in texts)


class HasTexts(Protocol):
    """What a page has in common with the document that is read of a response."""

    @property
    def title(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def html(self) -> str: ...
    @property
    def keywords(self) -> tuple[str, ...]: ...
    @property
    def headings(self) -> tuple[str, ...]: ...
    @property
    def links(self) -> Links: ...
    @property
    def extracts(self) -> tuple[tuple[str, tuple[str, ...]], ...]: ...


def weight_of_texts(page: HasTexts) -> int:
    """The memory that the texts of a page take, but for what its server said of it."""
    links = page.links
    columns = (page.title, page.description, page.text, page.html, links.urls, links.texts, links.rels)
    extracts = (text for name, found in page.extracts for text in (name, *found))
    return sum(map(weight_of, (columns, page.keywords, page.headings, extracts)))


def weight_of_utf8(data: bytes) -> int:
    """The bytes that the text takes once it is decoded."""
    if data.isascii():
        return len(data)
    width = 4 if _IS_WIDE_UTF8(data) else 2 if _IS_BROAD_UTF8(data) else 1
    return width * len(data.translate(None, _CONTINUATION))


def _width(text: str) -> int:
    if text.isascii():
        return 1
    try:  # an encoder tells it faster than a pattern
        text.encode("latin-1")
        return 1
    except UnicodeEncodeError:
        return 2 if len(text.encode("utf-16-le", "surrogatepass")) == 2 * len(text) else 4


# --- records


def weight_of_url(target: Target) -> int:
    """At least what a URL takes in a parcel, with its bytes."""
    return TARGET_BYTES + 8 * VALUE_BYTES + 3 * (len(target.url) + len(target.referrer))


def weight_of_objects(page: Page) -> int:
    """At least what a page takes in a parcel besides its texts: its objects, and its URLs."""
    extracts = sum(3 + len(texts) for _, texts in page.extracts)
    items = len(page.keywords) + len(page.headings) + 3 * len(page.headers) + extracts
    raw = 10 * VALUE_BYTES if page.raw else 0
    # They may be joined, and then as wide as the widest.
    nested = chain(page.keywords, page.headings, *page.headers, *(texts for _, texts in page.extracts))
    chars = len(page.url) + len(page.referrer) + 3 * sum(map(len, nested))
    return PAGE_BYTES + VALUE_BYTES * (len(page.__struct_fields__) + items) + raw + 3 * chars


def weight_of_rows(rows: Sequence[bytes]) -> int:
    return ROW_BYTES * len(rows) + sum(map(len, rows)) + 5 * len(rows)


def weight_of_fact(fact: bytes) -> int:
    """What one of the facts that a crawler keeps takes."""
    return FACT_BYTES + len(fact)


def weight_of_facts(added: int, removed: int) -> int:
    """What so many changes of the crawler's own facts take, besides what they say."""
    return FACT_BYTES * added + GONE_BYTES * removed


def objects_in(data: bytes | bytearray | memoryview, *, most: int) -> int:
    """The number of objects in valid msgpack, those in lists and maps included; not counted beyond `most`."""
    at = count = 0
    while at < len(data) and count <= most:
        head = data[at]
        count += 1
        at += 1
        if 0xA0 <= head < 0xC0:
            at += head & 0x1F
        elif length := _LENGTHS.get(head):
            at += length[0] + length[1] + int.from_bytes(data[at : at + length[0]], "big")
        else:
            at += _FIXED.get(head, 0)
    return count
