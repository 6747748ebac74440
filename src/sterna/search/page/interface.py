"""Whom the page asks, and how much it lets be asked."""

from typing import Protocol

from sterna.model import Record
from sterna.search.results import Found


class Searches(Protocol):
    """What finds pages: `search.searcher.Searcher`; called from several threads at once."""

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> Found: ...

    def page_count(self) -> int: ...


class Bounds(Record, frozen=True, kw_only=True):
    """What one request may ask for, and what all of them may take."""

    letters: int = 500  # of a query
    hits: int = 10  # on a page
    pages: int = 100  # of results
    api_hits: int = 100  # in an answer of the API
    seconds: float = 5.0  # from the request to its answer
    searches: int = 4  # at once
    waiting: int = 32  # requests for a search that has not begun

    @property
    def reach(self) -> int:
        """How many of the hits can be seen at all."""
        return self.pages * self.hits
