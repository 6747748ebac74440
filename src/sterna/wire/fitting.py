"""Which pages of a parcel are given up, so that any home takes the rest: the largest, with their rows."""

from collections.abc import Callable, Iterable, Sequence
from sys import getsizeof

import msgspec

from sterna.model import Page, Record
from sterna.web.weight import weight_of_objects, weight_of_rows, weight_of_texts
from sterna.wire.columns import JOINED_BYTES
from sterna.wire.records import MAX_TEXTS_BYTES

Judged = tuple[Page, Sequence[bytes]]  # with the rows that rules sent home of it

_PAGE_BYTES, _ROW_BYTES = 32, 5  # that they take in a parcel beside their own
_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the room, tried in turn
_MORE_BYTES = 2 * 1024 * 1024  # by which the texts of a parcel may be more than those of its pages
_JOINED = 14 * JOINED_BYTES  # more memory for the columns of texts that are joined

_encode = msgspec.msgpack.Encoder().encode


class Room(Record, frozen=True):
    """What a parcel has for pages and their rows: bytes as it travels, and memory at home."""

    sent_bytes: int
    memory_bytes: int


class Needed(Record, frozen=True):
    """At most what pages with their rows need: bytes in a parcel, memory of their texts, and in all."""

    sent_bytes: int
    text_bytes: int
    memory_bytes: int


def is_light(judged: list[Judged], room: Room) -> bool:
    """True if the pages surely fit; it takes little time, and most parcels are light."""
    needed = needed_by(judged)
    return (
        needed.sent_bytes <= room.sent_bytes
        and needed.text_bytes <= MAX_TEXTS_BYTES
        and needed.memory_bytes <= room.memory_bytes
    )


def needed_by(judged: list[Judged]) -> Needed:
    pages = [page for page, _ in judged]
    objects = sum(weight_of_objects(page) + weight_of_rows(rows) for page, rows in judged)
    sent = sum(len(page.raw.body) + len(page.raw.response_head) for page in pages if page.raw)
    texts = 0
    for column in _columns(pages):
        characters, size = sum(map(len, column)), sum(map(getsizeof, column))
        # UTF-8 takes four bytes for a character at most, and twice what Python takes for it.
        sent += min(4 * characters, 2 * size)
        # Texts that are joined count twice, and as wide as the widest.
        texts += max(size, min(8 * characters, 2 * JOINED_BYTES))
    return Needed(sent + objects, texts + objects, sent + texts + 2 * objects)


def _columns(pages: list[Page]) -> Iterable[list[str]]:
    """The texts of pages that may be long; others, and lists of texts, count among their objects."""
    yield [page.title for page in pages]
    yield [page.description for page in pages]
    yield [page.text for page in pages]
    yield [page.html for page in pages]
    yield [page.content_type for page in pages]
    yield [page.modified for page in pages]
    yield [page.etag for page in pages]
    yield [page.links.urls for page in pages]
    yield [page.links.texts for page in pages]
    yield [page.links.rels for page in pages]


def fitting(judged: list[Judged], room: Room, *, is_taken: Callable[[list[Judged]], bool]) -> list[Judged]:
    """The pages with their rows, the largest given up until a home takes the parcel with them."""
    if is_taken(judged):
        return judged
    sizes = [len(_encode(page)) for page, _ in judged]
    sent = [
        size + _PAGE_BYTES + sum(map(len, rows)) + _ROW_BYTES * len(rows)
        for size, (_, rows) in zip(sizes, judged, strict=True)
    ]
    texts = [max(size, weight_of_texts(page)) for size, (page, _) in zip(sizes, judged, strict=True)]
    weights = [
        2 * text + weight_of_objects(page) + weight_of_rows(rows)
        for text, (page, rows) in zip(texts, judged, strict=True)
    ]
    order = sorted(range(len(judged)), key=weights.__getitem__, reverse=True)
    # What they take is only known once the columns are made.
    for share in _SHARES:
        left = [
            sum(sent) - share * room.sent_bytes,
            sum(texts) - share * (MAX_TEXTS_BYTES - _MORE_BYTES),
            sum(weights) - share * (room.memory_bytes - _JOINED),
        ]
        found = list(judged)
        for place in order:
            if max(left) <= 0:
                break
            page = _given_up(judged[place][0])
            found[place] = page, ()
            left[0] -= sent[place] - len(_encode(page)) - _PAGE_BYTES
            left[1] -= texts[place]
            left[2] -= weights[place] - weight_of_objects(page)
        if is_taken(found):
            break
    return found


def _given_up(page: Page) -> Page:
    return Page(
        url=page.url,
        fingerprint=page.fingerprint,
        depth=page.depth,
        fetched=page.fetched,
        error="too_large",
        referrer=page.referrer,
    )
