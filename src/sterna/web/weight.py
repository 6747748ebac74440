"""The memory that texts take: one, two or four bytes for each character, as the widest of a text needs."""

import re
from collections.abc import Iterable
from typing import Protocol

from sterna.model import Links

_IS_WIDE = re.compile("[\U00010000-\U0010ffff]").search
_IS_BROAD = re.compile("[\u0100-\uffff]").search
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
    if _IS_WIDE(text):
        return 4
    return 2 if _IS_BROAD(text) else 1
