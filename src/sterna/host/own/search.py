"""Search over the pages of the own site: whatever is asked, the answer is pages and never an error."""

import re
import sqlite3
from collections.abc import Iterator

from sterna.host.own.index import OPEN, Index
from sterna.host.own.tokens import BEGIN, END, spaced, unspaced
from sterna.host.site.closed import Closed
from sterna.model import Record

MAX_QUERY = 1_000  # characters; what stands behind them is left out
MAX_WORDS = 32
EXCERPT_WORDS = 30
TITLE_WEIGHT, HEADINGS_WEIGHT = 8.0, 3.0  # where a word of the text weighs 1

# A phrase in quotes, of which the second may be missing, or a word.
_ASKED = re.compile(r'"([^"]*)"?|([^\s"]+)')
_RANK = f"bm25({TITLE_WEIGHT}, {HEADINGS_WEIGHT}, 1.0)"
_STATEMENT = """
    SELECT shown.digest, shown.url, shown.title, shown.lastmod, -rank, snippet(words, 2, ?, ?, '…', ?)
    FROM words CROSS JOIN shown ON shown.id = words.rowid
    WHERE words MATCH ? AND rank MATCH ? ORDER BY rank
"""


class Found(Record, frozen=True, array_like=False):
    """A page that was found; `marked` are the words of the excerpt that were asked for, from and to."""

    url: str
    title: str
    lastmod: float | None
    score: float
    excerpt: str
    marked: tuple[tuple[int, int], ...]


def search(index: Index, query: str, *, most: int = 10, closed: Closed = OPEN) -> list[Found]:
    """The best pages: with all words, then with words that begin so; if there are none, with any of them.

    Of pages that are the same to the last byte the best one stands for all.
    """
    phrases = phrases_of(query)
    if not phrases:
        return []
    found: dict[bytes, Found] = {}
    exact, begun = " ".join(phrases), " ".join(f"{phrase}*" for phrase in phrases)
    any_begun = " OR ".join(f"{phrase}*" for phrase in phrases)
    with index.snapshot() as db:
        for expression in (exact, begun, any_begun):
            if expression is any_begun and found:
                break
            for digest, page in _ask(db, expression):
                if len(found) >= most:
                    break
                if page.url not in closed:
                    found.setdefault(digest, page)
    return list(found.values())


def phrases_of(query: str) -> list[str]:
    """The words and phrases of a query, each in quotes: nothing of it can be an operator."""
    asked = (phrase or word for phrase, word in _ASKED.findall(query[:MAX_QUERY]))
    words = (spaced(text) for text in asked if any(map(str.isalnum, text)))
    return [f'"{word}"' for _, word in zip(range(MAX_WORDS), words, strict=False)]


def _ask(db: sqlite3.Connection, expression: str) -> Iterator[tuple[bytes, Found]]:
    rows = db.execute(_STATEMENT, (BEGIN, END, EXCERPT_WORDS, expression, _RANK))
    for digest, url, title, lastmod, score, snippet in rows:
        excerpt, marked = _unmarked(unspaced(snippet))
        yield digest, Found(url, title, lastmod, round(score, 3), excerpt, marked)


def _unmarked(snippet: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The excerpt as it reads, and where the words stand in it."""
    text, marked, begin = "", [], 0
    for piece in re.split(f"([{BEGIN}{END}])", snippet):
        if piece == BEGIN:
            begin = len(text)
        elif piece == END:
            marked.append((begin, len(text)))
        else:
            text += piece
    return text, tuple(marked)
