"""The index of the own site, one SQLite file: its pages with their true dates, its changes, and search.

It is not part of the host's state: it can be deleted and made again, and the long transactions of a survey
must not keep homes waiting.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sterna.errors import UsageError
from sterna.host.files import Database, Format
from sterna.host.site.closed import Closed
from sterna.host.state import OWN_INDEX
from sterna.model import Record
from sterna.web.sitemap_file import Listed

NAME = OWN_INDEX  # in the folder of state
MAX_PAGES = 1_000_000  # of a survey, unless the owner sets another limit
OPEN = Closed()  # closed by nothing but the default paths

FORMAT = Format(
    name="index",
    version=1,
    missing="there is no index of the site in {}: make it with 'sterna host index --site URL'",
    repair="delete it and run 'sterna host index' again",
    tables="""
CREATE TABLE about (site TEXT NOT NULL);

CREATE TABLE page (
    id INTEGER PRIMARY KEY,
    mark INTEGER NOT NULL UNIQUE,  -- the fingerprint of its URL
    url TEXT NOT NULL,
    depth INTEGER NOT NULL,
    title TEXT NOT NULL,
    canonical INTEGER NOT NULL,    -- the mark of the page that it names as its original, or its own
    folder INTEGER,                -- of an index.html: the mark of the folder that shows it
    digest BLOB NOT NULL,
    likeness BLOB NOT NULL,        -- as of the last real change
    etag TEXT NOT NULL,
    modified TEXT NOT NULL,        -- as the server wrote it
    lastmod REAL,                  -- NULL if unknown
    created REAL,                  -- NULL: before the first complete survey
    read REAL NOT NULL,            -- when its content was last read
    seen REAL NOT NULL,            -- when it last existed
    missing REAL,                  -- since when the server says that it does not
    missed INTEGER                 -- the survey that found this out
);

-- A copy is left out if its original is there and is not a copy itself.
CREATE VIEW copy AS
    SELECT page.mark FROM page JOIN page AS whole ON whole.mark = page.canonical
    WHERE page.canonical <> page.mark AND whole.canonical = whole.mark AND whole.missing IS NULL
    UNION
    SELECT page.mark FROM page JOIN page AS whole ON whole.mark = page.folder
    WHERE whole.digest = page.digest AND whole.canonical = whole.mark AND whole.missing IS NULL;

CREATE VIEW shown AS
    SELECT * FROM page WHERE missing IS NULL AND mark NOT IN (SELECT mark FROM copy);

CREATE TABLE change (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    mark INTEGER NOT NULL,
    url TEXT NOT NULL,
    title TEXT NOT NULL,
    kind TEXT NOT NULL,            -- created, updated, deleted
    at REAL NOT NULL,              -- when it happened, as far as known
    told REAL NOT NULL             -- since when it could be published
);
CREATE INDEX change_of_page ON change (mark, n);
CREATE INDEX change_told ON change (told);

CREATE TABLE survey (
    number INTEGER PRIMARY KEY,
    began REAL NOT NULL,
    ended REAL,                    -- NULL: under way, or to be continued
    is_whole INTEGER NOT NULL DEFAULT 0,
    requests INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL DEFAULT 0,
    updated INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0
);

-- The frontier of the survey under way; URLs that are done have no target.
CREATE TABLE todo (mark INTEGER PRIMARY KEY, depth INTEGER NOT NULL, target BLOB);
CREATE INDEX todo_waiting ON todo (depth) WHERE target IS NOT NULL;

-- URLs that led to no page: an unchanged page is not read, so its links do not bring them back.
CREATE TABLE absent (
    mark INTEGER PRIMARY KEY,
    url TEXT NOT NULL,
    depth INTEGER NOT NULL,
    since REAL NOT NULL
);

CREATE VIRTUAL TABLE words USING fts5 (title, headings, text, tokenize = 'unicode61 remove_diacritics 2');
""",
)


# Indexes of earlier releases lack it.
_ADDED_LATER = (
    "CREATE TABLE IF NOT EXISTS absent"
    " (mark INTEGER PRIMARY KEY, url TEXT NOT NULL, depth INTEGER NOT NULL, since REAL NOT NULL)"
)


class Survey(Record, frozen=True, array_like=False):
    number: int
    began: float
    ended: float | None
    is_whole: bool
    requests: int
    pages: int
    created: int
    updated: int
    deleted: int


class Change(Record, frozen=True, array_like=False):
    n: int
    url: str
    title: str
    kind: str  # created, updated, deleted
    at: float
    told: float
    created: float | None = None


class Index(Database):
    """One connection to the file; used by one thread at a time."""

    def __init__(self, state: Path, *, site: str = "") -> None:
        """Opens it for reading; with a site for writing too, and creates it if needed.

        UsageError if there is none to read, or if it is the index of another site.
        """
        super().__init__(state / NAME, FORMAT, is_reader=not site)
        if site:
            with self.transaction() as db:
                db.execute(_ADDED_LATER)
                if not db.execute("SELECT 1 FROM about").fetchone():
                    db.execute("INSERT INTO about VALUES (?)", (site,))
            if (other := self.site()) != site:
                self.close()
                raise UsageError(f"{state / NAME} is the index of {other}: name another folder with --state")

    def site(self) -> str:
        with self.snapshot() as db:
            row = db.execute("SELECT site FROM about").fetchone()
        if row is None:  # its creation was interrupted
            raise UsageError(FORMAT.missing.format(self.path.parent))
        return str(row[0])

    def last_survey(self, *, is_over: bool = True) -> Survey | None:
        """The last survey that ended, or with `is_over` false the last one."""
        where = "WHERE ended IS NOT NULL" if is_over else ""
        with self.snapshot() as db:
            row = db.execute(
                f"SELECT * FROM survey {where} ORDER BY number DESC LIMIT 1"  # noqa: S608 - one of two words
            ).fetchone()
        return Survey(row[0], row[1], row[2], bool(row[3]), *row[4:]) if row else None

    def count(self) -> int:
        with self.snapshot() as db:
            return int(db.execute("SELECT count(*) FROM shown").fetchone()[0])

    def pages(self, closed: Closed = OPEN) -> Iterator[Listed]:
        """Every page that is shown to everybody, in the order of discovery."""
        with self.snapshot() as db:
            for url, lastmod in db.execute("SELECT url, lastmod FROM shown ORDER BY id"):
                if url not in closed:
                    yield Listed(url, lastmod)

    def digests(self, closed: Closed = OPEN, *, seen_since: float) -> Iterator[tuple[int, bytes]]:
        """The fingerprint and the digest of every page that everybody may see and was there since then."""
        with self.snapshot() as db:
            statement = "SELECT url, mark, digest FROM page WHERE missing IS NULL AND seen >= ?"
            for url, mark, digest in db.execute(statement, (seen_since,)):
                if url not in closed:
                    yield mark, digest

    def changes(
        self, closed: Closed = OPEN, *, since: float = 0.0, newest_first: bool = False
    ) -> Iterator[Change]:
        """The changes that could be published since then, in the order of discovery."""
        statement = (
            "SELECT n, change.url, change.title, kind, at, told, created FROM change"
            " LEFT JOIN page USING (mark) WHERE told >= ?"
            " AND (kind = 'deleted' OR mark NOT IN (SELECT mark FROM copy)) ORDER BY n * ?"
        )
        return self._changes(statement, (since, -1 if newest_first else 1), closed)

    def latest(self, closed: Closed = OPEN) -> Iterator[Change]:
        """The last change of each page that is there or was deleted, the newest first."""
        statement = (
            "SELECT n, change.url, change.title, kind, at, told, created FROM change"
            " LEFT JOIN shown USING (mark)"
            " WHERE n = (SELECT max(n) FROM change AS other WHERE other.mark = change.mark)"
            " AND (kind = 'deleted' OR shown.id IS NOT NULL) ORDER BY told DESC, n DESC"
        )
        return self._changes(statement, (), closed)

    def _changes(self, statement: str, values: tuple[float, ...], closed: Closed) -> Iterator[Change]:
        with self.snapshot() as db:
            for row in db.execute(statement, values):
                if row[1] not in closed:
                    yield Change(*row)


# -- search ------------------------------------------------------------------------------------------------

MAX_QUERY = 1_000  # characters; the rest is ignored
MAX_WORDS = 32
EXCERPT_WORDS = 30
TITLE_WEIGHT, HEADINGS_WEIGHT = 8.0, 3.0  # relative to a word of the text
_BEGIN, _END = "\x02", "\x03"  # around a word that was found, in an excerpt; no text in the index holds them

# A phrase in quotes, the second of which may be missing, or a word.
_ASKED = re.compile(r'"([^"]*)"?|([^\s"]+)')
_RANK = f"bm25({TITLE_WEIGHT}, {HEADINGS_WEIGHT}, 1.0)"
_STATEMENT = """
    SELECT shown.digest, shown.url, shown.title, shown.lastmod, -rank, snippet(words, 2, ?, ?, '…', ?)
    FROM words CROSS JOIN shown ON shown.id = words.rowid
    WHERE words MATCH ? AND rank MATCH ? ORDER BY rank
"""


class Found(Record, frozen=True, array_like=False):
    """A page that was found; `marked` holds the ranges of the query's words in the excerpt."""

    url: str
    title: str
    lastmod: float | None
    score: float
    excerpt: str
    marked: tuple[tuple[int, int], ...]


def search(index: Index, query: str, *, most: int = 10, closed: Closed = OPEN) -> list[Found]:
    """The best pages: with all words, then with words that begin so; if there are none, with any of these.

    No query is an error. Of pages with identical content only the best is returned.
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
            rows = db.execute(_STATEMENT, (_BEGIN, _END, EXCERPT_WORDS, expression, _RANK))
            for digest, url, title, lastmod, score, snippet in rows:
                if len(found) >= most:
                    break
                if url not in closed and digest not in found:
                    found[digest] = Found(url, title, lastmod, round(score, 3), *_unmarked(unspaced(snippet)))
    return list(found.values())


def phrases_of(query: str) -> list[str]:
    """The words and phrases of a query, each in quotes, so that none of them is an operator."""
    asked = (phrase or word for phrase, word in _ASKED.findall(query[:MAX_QUERY]))
    words = (spaced(text) for text in asked if any(map(str.isalnum, text)))
    return [f'"{word}"' for _, word in zip(range(MAX_WORDS), words, strict=False)]


def _unmarked(snippet: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The excerpt without its marks, and the ranges that they enclosed."""
    text, marked, begin = "", [], 0
    for piece in re.split(f"([{_BEGIN}{_END}])", snippet):
        if piece == _BEGIN:
            begin = len(text)
        elif piece == _END:
            marked.append((begin, len(text)))
        else:
            text += piece
    return text, tuple(marked)


# -- scripts without spaces --------------------------------------------------------------------------------

# SQLite's tokenizer splits words at characters that are not letters. Thai, Lao, Burmese, Khmer, kana and Han
# are indexed letter by letter instead, so that a word is found as a sequence of letters.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_BORDER = re.compile(f"(?<=[{_UNSPACED}])(?=[{_UNSPACED}])")
_MADE_SPACE = re.compile(f"([{_UNSPACED}]{_END}?) (?={_BEGIN}?[{_UNSPACED}])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")


def spaced(text: str) -> str:
    """The text as it is indexed and searched."""
    return _BORDER.sub(" ", _CONTROL.sub(" ", text))


def unspaced(text: str) -> str:
    """Indexed text as people write it; marks of an excerpt stay."""
    return _MADE_SPACE.sub(r"\1", text)
