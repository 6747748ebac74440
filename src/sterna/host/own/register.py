"""What a survey saw, written into the index: one parcel, one transaction, so that a killed one goes on.

A page that its owner does not show - robots.txt, noindex, a closed path - leaves the index with all that was
ever told of it. One that the server says is not there leaves sitemap and search at once, for they name only
what is there. But it is told as deleted only if it is said to be gone for good (410), or if the next survey
misses it too: a server in the middle of a change answers 404 for a minute, and whoever follows the changes
would throw away what comes back. What brought no answer, or an error of the server, is left as it was.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum, auto

import msgspec

from sterna.host.own.dating import Before, Verdict, judge_again, judge_new
from sterna.host.own.tokens import spaced, unspaced
from sterna.model import Page, Parcel, Target
from sterna.web.html import read_may
from sterna.web.urls import fingerprint, site_of

EVERYBODY = "*"  # as whom robots.txt and its kin are read: what is listed is for all
MAX_TEXT = 200_000  # characters of a page that are searched
MAX_CHANGES = 200_000

# What people read; images, styles and programs are parts of pages.
_DOCUMENTS = frozenset(
    {"text/html", "application/xhtml+xml", "text/plain", "text/markdown", "application/pdf"}
)
_FOLDER_PAGES = frozenset({"index.html", "index.htm", "index.php"})
_CLOSED = frozenset({"robots", "refused"})
_PASSING = frozenset({408, 425, 429})


class Standing(Enum):
    """What an answer says of a page."""

    SHOWN = auto()
    CLOSED = auto()  # not for everybody
    GONE = auto()  # for good
    MISSING = auto()  # perhaps for a moment
    UNKNOWN = auto()  # no answer that says anything


def standing_of(page: Page) -> Standing:
    """What the answer to a survey says of a page."""
    if page.error:
        return Standing.CLOSED if page.error in _CLOSED else Standing.UNKNOWN
    if page.status == 304 or 200 <= page.status < 300:
        x_robots = ", ".join(value for name, value in page.headers if name == "x-robots-tag")
        if not page.digest or not read_may(x_robots, agent=EVERYBODY).index:
            return Standing.CLOSED
        is_document = page.status == 304 or page.content_type in _DOCUMENTS
        return Standing.SHOWN if is_document else Standing.MISSING
    if page.status == 410:
        return Standing.GONE
    is_passing = page.status in _PASSING or page.status >= 500
    return Standing.UNKNOWN if is_passing else Standing.MISSING


class Register:
    """Takes the parcels of one survey."""

    def __init__(self, survey: int, *, since: float | None) -> None:
        self._survey = survey
        self._since = since  # when all pages of the site were known, if ever

    def take(self, db: sqlite3.Connection, parcel: Parcel) -> None:
        """Writes what the parcel brought; the caller's transaction holds all of it or nothing."""
        told = Counter(kind for page in parcel.pages if (kind := self._take_page(db, page)))
        line_up(db, parcel.checkpoint.found)
        done = (*parcel.checkpoint.done, *(page.fingerprint for page in parcel.pages))
        db.executemany("INSERT OR REPLACE INTO todo VALUES (?, 0, NULL)", [(mark,) for mark in done])
        db.executemany("INSERT OR REPLACE INTO todo VALUES (?, ?, ?)", map(_todo_of, parcel.checkpoint.again))
        db.execute(
            "UPDATE survey SET requests = requests + ?, pages = pages + ?, created = created + ?,"
            " updated = updated + ?, deleted = deleted + ? WHERE number = ?",
            (
                parcel.usage.requests,
                parcel.usage.pages,
                told["created"],
                told["updated"],
                told["deleted"],
                self._survey,
            ),
        )

    def _take_page(self, db: sqlite3.Connection, page: Page) -> str:
        """The kind of change that it is; "" for none."""
        row = _row_of(db, page)
        standing = standing_of(page)
        if standing is Standing.SHOWN:
            return self._show(db, page, row)
        if standing is Standing.CLOSED:
            _hide(db, page, row)
        elif row and standing is not Standing.UNKNOWN:
            return self._miss(db, page, row, is_gone=standing is Standing.GONE)
        return ""

    def _show(self, db: sqlite3.Connection, page: Page, row: "_Row | None") -> str:
        is_first_sight = row is None and self._since is None
        if row:
            verdict = judge_again(row, page)
            _renew(db, page, verdict, row=row)
        elif page.status == 304:  # unchanged since it was hidden: nothing of it is known any more
            return ""
        else:
            verdict = judge_new(page, since=self._since)
            _add(db, page, verdict)
        if verdict.kind:
            # What a server dated before anybody looked could have been told ever since.
            told = verdict.at if is_first_sight else page.fetched
            _tell(db, page, verdict.kind, title=page.title, at=verdict.at, told=told)
        return "" if is_first_sight else verdict.kind  # nothing became of it: it was there

    def _miss(self, db: sqlite3.Connection, page: Page, row: "_Row", *, is_gone: bool) -> str:
        is_confirmed = row.missed is not None and row.missed < self._survey
        if not (is_gone or is_confirmed):
            db.execute(
                "UPDATE page SET missing = ?, missed = ? WHERE id = ?", (page.fetched, self._survey, row.id)
            )
            return ""
        _drop(db, row.id)
        at = page.fetched if row.missing is None else row.missing
        _tell(db, page, "deleted", title=row.title, at=at, told=page.fetched)
        return "deleted"


class _Row(Before, frozen=True, kw_only=True):
    """A page of the index."""

    id: int
    missing: float | None
    missed: int | None


def _row_of(db: sqlite3.Connection, page: Page) -> _Row | None:
    names = ("id", "title", "digest", "likeness", "modified", "lastmod", "read", "seen", "missing", "missed")
    found = db.execute(
        "SELECT id, title, digest, likeness, modified, lastmod, read, seen, missing, missed FROM page"
        " WHERE mark = ?",
        (page.fingerprint,),
    ).fetchone()
    if found is None:
        return None
    row = _Row(text="", **dict(zip(names, found, strict=True)))
    if page.digest == row.digest:
        return row
    (text,) = db.execute("SELECT text FROM words WHERE rowid = ?", (row.id,)).fetchone()
    return msgspec.structs.replace(row, text=unspaced(text))


def line_up(db: sqlite3.Connection, targets: Iterable[Target]) -> None:
    """Adds to what the survey has to do; what it has met before stays as it is."""
    db.executemany("INSERT OR IGNORE INTO todo VALUES (?, ?, ?)", map(_todo_of, targets))


def _todo_of(target: Target) -> tuple[int, int, bytes]:
    return fingerprint(target.url), target.depth, msgspec.msgpack.encode(target)


def _add(db: sqlite3.Connection, page: Page, verdict: Verdict) -> None:
    created = verdict.at if verdict.kind == "created" else None
    cursor = db.execute(
        "INSERT INTO page (mark, url, depth, title, canonical, folder, digest, likeness, etag, modified,"
        " lastmod, created, read, seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            page.fingerprint,
            page.url,
            page.depth,
            page.title,
            _canonical_of(page),
            _folder_of(page),
            page.digest,
            page.likeness,
            page.etag,
            page.modified,
            verdict.lastmod,
            created,
            page.fetched,
            page.fetched,
        ),
    )
    assert cursor.lastrowid
    _write_words(db, page, cursor.lastrowid)


def _renew(db: sqlite3.Connection, page: Page, verdict: Verdict, *, row: _Row) -> None:
    if page.status == 304:
        db.execute(
            "UPDATE page SET seen = ?, missing = NULL, missed = NULL WHERE id = ?", (page.fetched, row.id)
        )
        return
    db.execute(
        "UPDATE page SET title = ?, canonical = ?, digest = ?, etag = ?, modified = ?, lastmod = ?, read = ?,"
        " seen = ?, missing = NULL, missed = NULL WHERE id = ?",
        (
            page.title,
            _canonical_of(page),
            page.digest,
            page.etag,
            page.modified,
            verdict.lastmod,
            page.fetched,
            page.fetched,
            row.id,
        ),
    )
    if verdict.kind:
        db.execute("UPDATE page SET likeness = ? WHERE id = ?", (page.likeness, row.id))
    if page.digest != row.digest:
        db.execute("DELETE FROM words WHERE rowid = ?", (row.id,))
        _write_words(db, page, row.id)


def _write_words(db: sqlite3.Connection, page: Page, id: int) -> None:
    texts = (page.title, "\n".join(page.headings), page.text[:MAX_TEXT])
    db.execute(
        "INSERT INTO words (rowid, title, headings, text) VALUES (?, ?, ?, ?)", (id, *map(spaced, texts))
    )


def _canonical_of(page: Page) -> int:
    """The mark of the page of the same site of which this one says that it is a copy; its own otherwise."""
    if "canonical" in page.links.rels:
        for link in page.links:
            if "canonical" in link.rel.split() and site_of(link.url) == site_of(page.url):
                return fingerprint(link.url)
    return page.fingerprint


def _folder_of(page: Page) -> int | None:
    """The mark of the folder whose page this may be."""
    folder, _, name = page.url.rpartition("/")
    return fingerprint(f"{folder}/") if name in _FOLDER_PAGES else None


def _hide(db: sqlite3.Connection, page: Page, row: _Row | None) -> None:
    if row:
        _drop(db, row.id)
    db.execute("DELETE FROM change WHERE mark = ?", (page.fingerprint,))


def _drop(db: sqlite3.Connection, id: int) -> None:
    db.execute("DELETE FROM words WHERE rowid = ?", (id,))
    db.execute("DELETE FROM page WHERE id = ?", (id,))


def _tell(db: sqlite3.Connection, page: Page, kind: str, *, title: str, at: float, told: float) -> None:
    db.execute(
        "INSERT INTO change (mark, url, title, kind, at, told) VALUES (?, ?, ?, ?, ?, ?)",
        (page.fingerprint, page.url, title, kind, at, told),
    )


def forget_hidden(db: sqlite3.Connection, may_show: Callable[[str], bool]) -> None:
    """Tells no more of pages that were deleted and would be hidden now; nobody asks for them again."""
    urls = db.execute("SELECT DISTINCT mark, url FROM change WHERE kind = 'deleted'").fetchall()
    hidden = [(mark,) for mark, url in urls if not may_show(url)]
    db.executemany("DELETE FROM change WHERE mark = ?", hidden)


def forget_old_changes(db: sqlite3.Connection) -> None:
    """Keeps the index from growing with the years."""
    db.execute("DELETE FROM change WHERE n <= (SELECT max(n) FROM change) - ?", (MAX_CHANGES,))
