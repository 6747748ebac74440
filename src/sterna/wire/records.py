"""Pages and targets in columns, as a parcel carries them; the fields are those that `model` marks as `Sent`.

URLs of the visited site travel without its name. Digest and size of a page are left out where they follow
from its HTML, and its fingerprint always: home computes them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import add, attrgetter, sub
from typing import Any

import msgspec
from msgspec.structs import replace

from sterna.errors import WireError
from sterna.model import Links, Page, Raw, Record, Sent, Target, marked
from sterna.web.markup import MAX_LINKS
from sterna.web.signature import DIGEST_BYTES, LIKENESS_BYTES, digest_of
from sterna.web.urls import MAX_URL_LENGTH, Canonical, fingerprint
from sterna.web.weight import PAGE_BYTES, TARGET_BYTES
from sterna.wire.columns import (
    ITEM,
    ROW,
    Lists,
    Numbers,
    Texts,
    counted,
    pack_flags,
    pack_lists,
    pack_numbers,
    pack_some,
    pack_texts,
    unpack_flags,
    unpack_lists,
    unpack_numbers,
    unpack_some,
    unpack_texts,
    weight_of_lists,
    weight_of_texts,
)
from sterna.wire.problems import array_length, is_array, malformed, size_of
from sterna.wire.weight import is_empty, paths_in, weight_of_column, weight_of_nested

MAX_PAGES = 100_000  # in a parcel; unchanged ones not counted
MAX_TARGETS = 1_000_000  # of one kind in a parcel: a page may lead to as many as its sitemaps name
MAX_FIELD_CHARS = 256 * 1024  # of a short text: curl accepts no longer header lines
MAX_LISTS_BYTES = 8 * 1024 * 1024  # of a column with any number of texts in a row, where these are not joined
MAX_TEXTS_BYTES = 26 * 1024 * 1024  # of memory for the texts of all records of a kind in a parcel
MAX_STATUS = 999
MAX_DEPTH = 2**31 - 1
SLACK_TARGETS = 100_000  # URLs by which the last page may exceed a budget
MAX_PAUSE_SECONDS = 24 * 3600 + 120  # before a URL is tried again: a day, and clocks that differ
_MAX_TRIES = 1000
MAX_PRIORITY = 2**63 - 1
_MAX_SIZE = 2**53
_NO_DIGEST, _OWN_DIGEST, _HTML_DIGEST = range(3)  # the values of `digest_kinds`
_BREAKS = re.compile(r"[\0\r\n]")  # home sends validators back in a header, which must not hold these
_ERROR = re.compile(r"(?:[a-z][a-z0-9_]{0,63})?")
_LINK_LINES = re.compile(rf"(?:https?://[^\s\0]{{1,{MAX_URL_LENGTH}}}+(?:\n|\Z))*+")

_canonical = Canonical(())  # which parameters a crawler drops from its URLs is not checked here
_Extracts = tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]
_Raws = tuple[Raw | None, ...]


class Columns(Record, frozen=True, kw_only=True):
    """Records as they travel: `count` rows; the columns are those of the subclass."""

    count: int = 0


def as_travelling(page: Page) -> Page:
    """The page in whole milliseconds, without validators that are invalid in the header they return in."""
    return replace(
        page,
        fetched=milliseconds(page.fetched) / 1000,
        is_unchanged=False,
        modified="" if _BREAKS.search(page.modified) else page.modified,
        etag="" if _BREAKS.search(page.etag) else page.etag,
    )


def pack_pages(pages: Sequence[Page], site: str) -> Columns:
    return PAGES.pack(pages, _Rows(len(pages), site, htmls=[page.html for page in pages]))


def unpack_pages(packed: msgspec.Raw, site: str, *, earliest: float, latest: float) -> tuple[Page, ...]:
    """The pages, weighed before, each with its fingerprint; WireError if a value is invalid."""
    columns = PAGES.decode(packed)
    count = columns.count
    htmls = unpack_texts(columns.htmls, count)  # type: ignore[attr-defined]
    rows = _Rows(count, site, htmls, earliest=milliseconds(earliest), latest=milliseconds(latest))
    fields = PAGES.unpack(columns, rows)
    fields["fingerprint"] = list(map(fingerprint, fields["url"]))
    return tuple(Page(**dict(zip(fields, row, strict=True))) for row in zip(*fields.values(), strict=True))


def pack_targets(targets: Sequence[Target], site: str) -> Columns:
    return TARGETS.pack(targets, _Rows(len(targets), site))


def unpack_targets(packed: msgspec.Raw, site: str, *, now: float) -> tuple[Target, ...]:
    """The targets, weighed before; WireError if a value is invalid."""
    if memoryview(packed) == TARGETS.none:
        return ()
    columns = TARGETS.decode(packed)
    rows = _Rows(columns.count, site, latest=milliseconds(now + MAX_PAUSE_SECONDS))
    return tuple(map(Target, *TARGETS.unpack(columns, rows).values()))


def check_error(kind: str) -> None:
    """WireError unless the text is a valid name of an error."""
    if not _ERROR.fullmatch(kind):
        raise WireError("malformed", f"{kind[:100]!r} is not the name of an error")


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


# --- tables of columns, derived from the records


@dataclass(frozen=True)
class _Rows:
    """What codecs know of the rows besides the values of their own field; times in milliseconds."""

    count: int
    site: str
    htmls: Sequence[str] = ()
    earliest: int = 0
    latest: int = 0

    @cached_property
    def body_sizes(self) -> list[int]:
        """The sizes of the HTML as most servers sent it."""
        return [len(html) if html.isascii() else len(html.encode()) for html in self.htmls]

    def digest(self, place: int) -> bytes:
        """The digest of the HTML as most servers sent it."""
        return digest_of(self.htmls[place].encode())


@dataclass(frozen=True, slots=True)
class _Codec:
    """How the values of a field become columns, one of each type in `types`, and back."""

    types: tuple[Any, ...]
    pack: Callable[[Sequence[Any], _Rows], tuple[Any, ...]]
    unpack: Callable[..., Sequence[Any]]  # of the rows and the columns; WireError if a value is invalid


@dataclass(frozen=True, slots=True)
class Weight:
    """How many records a part of a parcel has, and what they take in memory besides its bytes."""

    count: int = 0
    size_bytes: int = 0


class _Table:
    """The columns of one record, of which a parcel has at most `most`, each of `each_bytes` in memory."""

    def __init__(self, record: type[Record], *, most: int, each_bytes: int, what: str) -> None:
        self._most, self._each_bytes, self._what = most, each_bytes, what
        self._fields = [
            (field, attrgetter(field), _CODECS[mark.codec], mark.columns.split())
            for field, mark in marked(record, Sent).items()
        ]
        columns = [
            (column, kind, _EMPTY[kind])
            for _, _, codec, names in self._fields
            for column, kind in zip(names, codec.types, strict=True)
        ]
        self.columns = _columns_type(record, columns)
        # The same of which nothing is decoded yet.
        unread = [(column, msgspec.Raw, msgspec.Raw(b"\x90")) for column, _, _ in columns]
        self._unread = msgspec.msgpack.Decoder(_columns_type(record, unread))
        # Of these, rows of the site get its name.
        self._urls = frozenset(
            names[0] for _, _, codec, names in self._fields if codec in (_CODECS["url"], _CODECS["referrer"])
        )
        self._lists = frozenset(column for column, kind, _ in columns if kind in (Lists, _Extracts))
        self._texts = frozenset(column for column, kind, _ in columns if kind == Texts)
        self._decoder = msgspec.msgpack.Decoder(self.columns)
        self.none = msgspec.msgpack.encode(self.columns())

    def pack(self, records: Sequence[Record], rows: _Rows) -> Columns:
        if not records:
            return self.columns()
        columns: dict[str, Any] = {"count": rows.count}
        for _, get, codec, names in self._fields:
            columns.update(zip(names, codec.pack(list(map(get, records)), rows), strict=True))
        return self.columns(**columns)

    def weigh(self, packed: msgspec.Raw, site: str) -> Weight:
        """What the rows would take in memory; WireError if they are too many, or their texts too large."""
        if memoryview(packed) == self.none:
            return Weight()
        columns = self._unread.decode(packed)
        count = columns.count
        if not 0 <= count <= self._most:
            raise WireError("malformed", f"a parcel with {count} {self._what} (0 to {self._most:,})")
        texts, objects = 0, self._each_bytes * count
        for name in columns.__struct_fields__[1:]:
            column = getattr(columns, name)
            if (length := array_length(column)) > count:
                raise WireError("malformed", f"a column of {length} rows among others of {count}")
            if name in self._lists and is_array(column) and size_of(column) > MAX_LISTS_BYTES:
                raise WireError("malformed", f"{size_of(column):,} bytes of {name} in a parcel")
            if name in self._texts:
                texts += weight_of_texts(column)
            elif name in self._lists:
                texts += weight_of_lists(column)
            weigh = weight_of_nested if name in self._lists else weight_of_column
            objects += weigh(column, count)
            if name in self._urls and not is_empty(column):
                objects += len(site) * count
            elif name == "link_urls":
                objects += len(site) * paths_in(column, count)
        if texts > MAX_TEXTS_BYTES:
            raise WireError("too-large", f"texts that take {texts:,} bytes of memory in a parcel")
        return Weight(count, texts + objects)

    def decode(self, packed: msgspec.Raw) -> Columns:
        with malformed("the parcel"):
            return self._decoder.decode(packed)

    def unpack(self, columns: Columns, rows: _Rows) -> dict[str, Sequence[Any]]:
        return {
            field: codec.unpack(rows, *(getattr(columns, name) for name in names))
            for field, _, codec, names in self._fields
        }


def _columns_type(record: type[Record], columns: list[tuple[str, Any, Any]]) -> type[Columns]:
    made = msgspec.defstruct(f"{record.__name__}Columns", columns, bases=(Columns,), kw_only=True)
    assert issubclass(made, Columns)
    return made


# --- URLs


def _shortened(urls: str, site: str, *, between: str) -> str:
    """URLs with a character between them, those of the site without its name."""
    return f"{between}{urls}".replace(f"{between}{site}/", f"{between}/")[1:]


def _pack_urls(urls: Sequence[str], rows: _Rows) -> tuple[Texts]:
    # One replacement in all of them is quicker than one in each.
    column = pack_texts(urls)
    if isinstance(column, str):
        return (_shortened(column, rows.site, between=ROW),)
    return (pack_texts([_shortened(url, rows.site, between=ROW) for url in urls]),)


def _unpack_referrers(rows: _Rows, column: Texts) -> list[str]:
    """Many rows have the same, and some have none."""
    urls = [rows.site + text if text.startswith("/") else text for text in unpack_texts(column, rows.count)]
    for url in set(urls):
        if url and (len(url) > MAX_URL_LENGTH or _canonical(url) != url):
            raise WireError("malformed", f"{url[:200]!r} is not a canonical URL")
    return urls


def _unpack_urls(rows: _Rows, column: Texts) -> list[str]:
    urls = _unpack_referrers(rows, column)
    if "" in urls:
        raise WireError("malformed", "a URL is empty")
    return urls


def _pack_links(links: Sequence[Links], rows: _Rows) -> tuple[Texts, Texts, Texts]:
    return (
        pack_texts([_shortened(each.urls, rows.site, between=ITEM) for each in links]),
        pack_texts([each.texts for each in links]),
        pack_texts([each.rels for each in links]),
    )


def _unpack_links(rows: _Rows, urls: Texts, texts: Texts, rels: Texts) -> list[Links]:
    short = unpack_texts(urls, rows.count)
    longer = sum(text.startswith("/") + text.count(f"{ITEM}/") for text in short) * len(rows.site)
    if longer > MAX_TEXTS_BYTES:
        raise WireError("too-large", f"links that take {longer:,} bytes of memory in a parcel")
    whole = [f"{ITEM}{text}".replace(f"{ITEM}/", f"{ITEM}{rows.site}/")[1:] for text in short]
    links = list(map(Links, whole, unpack_texts(texts, rows.count), unpack_texts(rels, rows.count)))
    for each in links:
        if not each.urls and not each.texts and not each.rels:
            continue
        if len(each) > MAX_LINKS or max(each.texts.count(ITEM), each.rels.count(ITEM)) >= len(each):
            raise WireError(
                "malformed", f"a page with more than {MAX_LINKS:,} links, or more texts than links"
            )
        if not _LINK_LINES.fullmatch(each.urls):
            raise WireError("malformed", "a link is not an http or https URL")
    return links


# --- texts


def _short(rows: _Rows, column: Texts) -> Sequence[str]:
    texts = unpack_texts(column, rows.count)
    if max(map(len, texts), default=0) > MAX_FIELD_CHARS:
        raise WireError("malformed", f"a field of more than {MAX_FIELD_CHARS:,} characters")
    return texts


def _validators(rows: _Rows, column: Texts) -> Sequence[str]:
    texts = _short(rows, column)
    if any(map(_BREAKS.search, texts)):
        raise WireError("malformed", "a validator with a line break in it")
    return texts


def _errors(rows: _Rows, column: Texts) -> Sequence[str]:
    errors = unpack_texts(column, rows.count)
    for error in set(errors):
        check_error(error)
    return errors


def _short_lists(rows: _Rows, column: Lists) -> Sequence[tuple[str, ...]]:
    lists = unpack_lists(column, rows.count)
    if max((len(text) for texts in lists for text in texts), default=0) > MAX_FIELD_CHARS:
        raise WireError("malformed", f"a field of more than {MAX_FIELD_CHARS:,} characters")
    return lists


def _unpack_headers(rows: _Rows, column: Lists) -> list[tuple[tuple[str, str], ...]]:
    lists = _short_lists(rows, column)
    if any(len(texts) % 2 for texts in lists):
        raise WireError("malformed", "a header without a value")
    return [tuple(zip(texts[::2], texts[1::2], strict=True)) for texts in lists]


# --- times, digests and sizes


def _pack_times(times: Sequence[float]) -> Numbers:
    whole = list(map(milliseconds, times))
    return pack_numbers(list(map(sub, whole, [0, *whole])))  # each from the one before


def _unpack_times(rows: _Rows, column: Numbers) -> list[float]:
    times = list(accumulate(counted(column, rows.count)))
    if times and not rows.earliest <= min(times) <= max(times) <= rows.latest:
        raise WireError("malformed", "a page was fetched before the visit began, or in the future")
    return [time / 1000 for time in times]


def _unpack_pauses(rows: _Rows, column: Numbers) -> list[float]:
    name = "time of another try"
    return [at / 1000 for at in unpack_numbers(column, rows.count, least=0, most=rows.latest, name=name)]


def _pack_digests(digests: Sequence[bytes], rows: _Rows) -> tuple[bytes, bytes]:
    kinds, own = bytearray(), []
    for place, digest in enumerate(digests):
        if not digest:
            kinds.append(_NO_DIGEST)
        elif rows.htmls[place] and digest == rows.digest(place):
            kinds.append(_HTML_DIGEST)
        else:
            kinds.append(_OWN_DIGEST)
            own.append(digest)
    return bytes(kinds), b"".join(own)


def _unpack_digests(rows: _Rows, kinds: bytes, joined: bytes) -> list[bytes]:
    own = bytes(kind == _OWN_DIGEST for kind in counted(kinds, rows.count))
    digests = unpack_some(own, joined, DIGEST_BYTES, count=rows.count)
    for place, kind in enumerate(kinds):
        if kind == _HTML_DIGEST:
            digests[place] = rows.digest(place)
        elif kind not in (_NO_DIGEST, _OWN_DIGEST):
            raise WireError("malformed", f"a digest of kind {kind}")
    return digests


def _unpack_sizes(rows: _Rows, column: Numbers) -> list[int]:
    beyond = unpack_numbers(column, rows.count, least=-_MAX_SIZE, most=_MAX_SIZE, name="size")
    sizes = list(map(add, beyond, rows.body_sizes))
    if sizes and min(sizes) < 0:
        raise WireError("malformed", "a page with a negative size")
    return sizes


# --- the codecs by name


def _column(kind: Any, pack: Callable[[Sequence[Any]], Any], unpack: Callable[..., Sequence[Any]]) -> _Codec:
    """A field in one column, packed from its own values alone."""
    return _Codec((kind,), lambda values, _: (pack(values),), unpack)


def _numbers(name: str, most: int, *, least: int = 0) -> _Codec:
    return _column(
        Numbers,
        pack_numbers,
        lambda rows, column: unpack_numbers(column, rows.count, least=least, most=most, name=name),
    )


def _values(kind: Any, absent: object) -> _Codec:
    """As they are, or an empty column where no row has a value."""
    return _column(
        kind,
        lambda values: tuple(values) if any(values) else (),
        lambda rows, column: counted(column or (absent,) * rows.count, rows.count),
    )


_EMPTY: dict[Any, Any] = {Texts: "", Lists: "", Numbers: (), bytes: b"", _Raws: (), _Extracts: ()}
_CODECS: dict[str, _Codec] = {
    "url": _Codec((Texts,), _pack_urls, _unpack_urls),
    "referrer": _Codec((Texts,), _pack_urls, _unpack_referrers),
    "links": _Codec((Texts, Texts, Texts), _pack_links, _unpack_links),
    "depth": _numbers("depth", MAX_DEPTH),
    "status": _numbers("status", MAX_STATUS),
    "redirects": _numbers("number of redirects", _MAX_TRIES),
    "attempts": _numbers("number of attempts", _MAX_TRIES),
    "priority": _numbers("priority", MAX_PRIORITY, least=-MAX_PRIORITY),
    "fetched": _column(Numbers, _pack_times, _unpack_times),
    "not_before": _column(
        Numbers, lambda times: pack_numbers(list(map(milliseconds, times))), _unpack_pauses
    ),
    "error": _column(Texts, pack_texts, _errors),
    "text": _column(Texts, pack_texts, lambda rows, column: unpack_texts(column, rows.count)),
    "short_text": _column(Texts, pack_texts, _short),
    "validator": _column(Texts, pack_texts, _validators),
    # Unpacked already: digest and size need it.
    "html": _column(Texts, pack_texts, lambda rows, _column: rows.htmls),
    "digest": _Codec((bytes, bytes), _pack_digests, _unpack_digests),
    "size": _Codec(
        (Numbers,),
        lambda sizes, rows: (pack_numbers(list(map(sub, sizes, rows.body_sizes))),),
        _unpack_sizes,
    ),
    "texts": _column(Lists, pack_lists, _short_lists),
    "headers": _column(
        Lists,
        lambda headers: pack_lists([[text for header in each for text in header] for each in headers]),
        _unpack_headers,
    ),
    "extracts": _values(_Extracts, ()),
    "raw": _values(_Raws, None),
    "is_kept": _column(
        bytes,
        lambda flags: pack_flags(flags, usual=True),
        lambda rows, column: unpack_flags(column, rows.count, usual=True),
    ),
    "is_sitemap": _column(
        bytes,
        lambda kinds: pack_flags([kind == "sitemap" for kind in kinds], usual=False),
        lambda rows, column: [
            "sitemap" if flag else "page" for flag in unpack_flags(column, rows.count, usual=False)
        ],
    ),
    "likeness": _Codec(
        (bytes, bytes),
        lambda values, _: pack_some(values, LIKENESS_BYTES),
        lambda rows, has, joined: unpack_some(has, joined, LIKENESS_BYTES, count=rows.count),
    ),
}
PAGES = _Table(Page, most=MAX_PAGES, each_bytes=PAGE_BYTES, what="pages")
TARGETS = _Table(Target, most=MAX_TARGETS, each_bytes=TARGET_BYTES, what="URLs")
PageColumns, TargetColumns = PAGES.columns, TARGETS.columns
