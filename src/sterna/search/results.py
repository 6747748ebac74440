"""The interface of search: its protocol, and the records that a terminal, a page and an API show."""

from typing import Protocol

from sterna.model import Record


class Piece(Record, frozen=True, array_like=False):
    """A part of a text; marked if it is one of the words searched for."""

    text: str
    is_marked: bool = False


class Hit(Record, frozen=True, array_like=False, kw_only=True):
    """A page that matches, and its near-duplicates."""

    url: str
    site: str
    title: str
    language: str
    snippet: tuple[Piece, ...]
    title_pieces: tuple[Piece, ...]
    score: float
    inbound: int  # number of pages that link to it
    fetched: float
    folded: tuple[str, ...]  # URLs of near-duplicates that are not listed themselves
    collection: str = ""  # which it is from, if several are searched


class Found(Record, frozen=True, array_like=False, kw_only=True):
    """One page of the hits of a search."""

    words: str
    hits: tuple[Hit, ...]
    total: int
    is_exact: bool  # False: `total` is an estimate
    offset: int
    limit: int
    seconds: float
    note: str = ""  # which part of the query was not used
    is_partial: bool = False  # no page has all of the words: the hits have some of them


class Searches(Protocol):
    """What finds pages, from several threads at once: `search.searcher.Searcher`."""

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> Found: ...

    def page_count(self) -> int: ...
