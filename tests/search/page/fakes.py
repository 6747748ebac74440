"""Searchers for the page's tests: one that finds plain words, one that gets stuck, one that fails."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from sterna.errors import SternaError
from sterna.search.results import Found, Hit, Piece

FETCHED = 1_794_834_000.0  # 16 November 2026, 13:00 UTC


def hit_of(url: str, title: str, text: str = "", **fields: object) -> Hit:
    """A hit with nothing marked."""
    given = {
        "url": url,
        "site": "/".join(url.split("/", 3)[:3]),
        "title": title,
        "language": "en",
        "snippet": (Piece(text),),
        "title_pieces": (Piece(title),),
        "score": 1.0,
        "inbound": 0,
        "fetched": FETCHED,
        "folded": (),
    }
    return Hit(**(given | fields))  # type: ignore[arg-type]


def found_of(words: str, *hits: Hit, **fields: object) -> Found:
    """All of these hits as the only page of results."""
    given = {
        "words": words,
        "hits": hits,
        "total": len(hits),
        "is_exact": True,
        "offset": 0,
        "limit": 10,
        "seconds": 0.004,
    }
    return Found(**(given | fields))  # type: ignore[arg-type]


@dataclass(slots=True)
class FakeSearcher:
    """Finds the pages whose title or text holds all of the words; operators are words like all others."""

    pages: Sequence[Hit]

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> Found:
        wanted = words.lower().split()
        hits = [_marked(hit, wanted) for hit in self.pages if _holds(hit, wanted)]
        window = tuple(hits[offset : offset + limit])
        return found_of(words, *window, total=len(hits), offset=offset, limit=limit)

    def page_count(self) -> int:
        return len(self.pages)


def _holds(hit: Hit, wanted: Sequence[str]) -> bool:
    words = f"{hit.title} {hit.snippet[0].text}".lower().split()
    return all(word in words for word in wanted)


def _marked(hit: Hit, wanted: Sequence[str]) -> Hit:

    words = hit.snippet[0].text.split()
    pieces = ((Piece(word, word.lower() in wanted), Piece(" ")) for word in words)
    return msgspec.structs.replace(hit, snippet=tuple(chain.from_iterable(pieces)))


def many_pages(count: int = 25) -> list[Hit]:
    """Pages that are all found by `select`."""
    return [
        hit_of(f"http://site.test/page-{number}.html", f"Page {number}", f"how to select number {number}")
        for number in range(1, count + 1)
    ]


@dataclass(slots=True)
class StuckSearcher(FakeSearcher):
    """Does not come back with an answer before it is let go."""

    go: threading.Event = field(default_factory=threading.Event)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> Found:
        self.begun.release()
        assert self.go.wait(30)
        return FakeSearcher.search(self, words, limit=limit, offset=offset)


@dataclass(slots=True)
class BrokenSearcher(FakeSearcher):
    """Fails in the way that it is told."""

    error: Exception = field(
        default_factory=lambda: SternaError("/secret/index is broken: sterna index --anew")
    )

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> Found:
        raise self.error
