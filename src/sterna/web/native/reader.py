"""Calls the reader in C: what a page says, or nothing where only a tree can tell.

It is C that reads strangers' bytes, so only a jailed cell opens it.
"""

import ctypes
import os
from collections.abc import Collection
from functools import cache

from sterna.errors import JailError
from sterna.model import Field
from sterna.web.markup import MAX_HEADINGS, Findings, Joined, language_of, read_srcset
from sterna.web.native.build import LIBRARY
from sterna.web.urls import Canonical, site_of

# As reader.h has them.
_WANTS_TEXT, _WANTS_HEADINGS, _WANTS_DESCRIPTION = 1, 2, 4
_SLICES = (
    *("title", "text", "language", "base", "description", "shared_description"),
    *("robots", "content_languages", "headings", "hrefs", "texts", "rels", "media", "hard", "marks"),
)
# The fields that it reads; the rest needs a tree.
READ: frozenset[Field] = frozenset({
    "title", "text", "links", "language", "headers", "html", "description", "headings",
})  # fmt: skip
_IN_THE_BODY: frozenset[Field] = frozenset({"title", "text", "headings", "description"})


class _Slice(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Found(ctypes.Structure):
    _fields_ = tuple((name, _Slice) for name in _SLICES)


def why_not() -> str:
    """Why pages cannot be read in C here; "" if they can."""
    return "" if load() else "the reader in C was not compiled when Sterna was installed"


@cache
def load() -> ctypes.CDLL | None:
    """The library, which a cell cannot open by itself; None if it was not compiled."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    library.reader_new.restype = ctypes.c_void_p
    library.reader_new.argtypes = [ctypes.c_uint64] * 2
    library.reader_read.argtypes = [
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t),
        *(ctypes.c_uint, ctypes.c_char_p, ctypes.c_void_p),
    ]
    library.reader_split.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
    library.reader_join.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
    return library


class _NativeFindings(Findings):
    """The findings of the page that was read last, whose links lie in the reader."""

    def __init__(self, agent: str, reader: "NativeReader") -> None:
        super().__init__(agent)
        self._reader = reader

    def joined(self, base: str, canonical: Canonical) -> Joined:
        return self._reader.joined(base, canonical)


class NativeReader:
    """Reads one page after the other, where why_not() says that it can."""

    def __init__(self) -> None:
        library = load()
        assert library
        self._call, self._split, self._join = library.reader_read, library.reader_split, library.reader_join
        seeds = (int.from_bytes(os.urandom(8), "little") for _ in range(2))
        self._reader = library.reader_new(*seeds)
        if not self._reader:
            raise JailError("no memory for a reader")
        self._found = _Found()
        self._at = ctypes.addressof(self._found)
        self.doubt = 0  # where it was in doubt of the last page; 0 if it was sure

    def read(self, text: str, *, agent: str, wants: Collection[Field]) -> Findings | None:
        """What the page says, or None where it is in doubt."""
        if not READ.issuperset(wants):
            return None
        page = text.encode("utf-8", "surrogatepass")
        flags = _WANTS_TEXT * (not _IN_THE_BODY.isdisjoint(wants))
        flags |= _WANTS_HEADINGS * ("headings" in wants) | _WANTS_DESCRIPTION * ("description" in wants)
        self.doubt = self._call(self._reader, page, len(page), flags, agent.lower().encode(), self._at)
        return None if self.doubt else self._findings(agent, flags)

    def hrefs(self) -> dict[str, tuple[str, str]]:
        """The links of the last page as they are written, with text and rel; until they are joined."""
        texts_and_rels = zip(self._parts("texts"), self._parts("rels"), strict=True)
        return dict(zip(self._parts("hrefs"), texts_and_rels, strict=True))

    def joined(self, base: str, canonical: Canonical) -> Joined:
        """The links of the last page, joined: plain ones in C, the others here."""
        given = site_of(base).encode(), canonical.folder_of(base).encode()
        if self._split(self._reader, *given, self._at):
            raise MemoryError
        hard = "".join([f"{canonical(href, base) or ''}\0" for href in self._parts("hard")]).encode()
        if self._join(self._reader, hard, len(hard), self._at):
            raise MemoryError
        marks: _Slice = self._found.marks
        packed = ctypes.string_at(marks.data, marks.size) if marks.size else b""
        return Joined(self._text("hrefs"), self._text("texts"), self._text("rels"), packed)

    def _findings(self, agent: str, flags: int) -> Findings:
        found = _NativeFindings(agent, self)
        found.language = language_of(self._text("language"))
        found.content_language = next(filter(None, map(language_of, self._parts("content_languages"))), "")
        found.base = self._text("base")
        found.robots = self._parts("robots")
        if flags & _WANTS_TEXT:
            found.title, found.text = self._text("title"), self._text("text")
        if flags & _WANTS_DESCRIPTION:
            found.description = self._text("description") or self._text("shared_description")
        if flags & _WANTS_HEADINGS:
            found.headings = tuple(self._parts("headings")[:MAX_HEADINGS])
        self._add_media(found)
        return found

    def _add_media(self, found: Findings) -> None:
        media = iter(self._parts("media"))
        sizes = ""
        for kind, written in zip(media, media, strict=True):
            if kind == "sizes":  # of the candidates that come next
                sizes = written
            elif kind == "srcset":
                read_srcset(found, written, sizes)
            else:
                found.add_media(written, kind)

    def _text(self, name: str) -> str:
        part: _Slice = getattr(self._found, name)
        return ctypes.string_at(part.data, part.size).decode("utf-8", "surrogatepass") if part.size else ""

    def _parts(self, name: str) -> list[str]:
        return self._text(name).split("\0")[:-1]
