"""Writes what a survey found into the index, and decides when a page really changed.

One parcel is one transaction, so a killed survey can go on. A page that the owner does not show - robots.txt,
noindex, a closed path - leaves the index with all its changes. A page that is missing leaves sitemap and
search at once. It is published as deleted only if the server says that it is gone for good (410), or if the
next survey misses it too: a server in the middle of a change answers 404 for a minute, and followers of the
changes would delete a page that comes back. A page without an answer, or with a server error, stays as is.

A date of the server is believed if it lies in the past and is not simply the time of the request, as programs
write it. A file that was touched but is the same did not change, whatever its date; one that changed under an
old date (copied with its times) changed when a survey saw it. A page with a date counts as changed with its
first new byte. A page without one was made by a program and may hold a clock, a counter or a list of news: a
share of its words must differ, since the last survey or, by the likeness that was kept, the last change.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from email.utils import parsedate_to_datetime
from typing import Literal

import msgspec

from sterna.host.own.index import spaced, unspaced
from sterna.model import Page, Parcel, Record, Target
from sterna.web.html import read_may
from sterna.web.signature import change_between
from sterna.web.urls import fingerprint, site_of

EVERYBODY = "*"  # the agent for robots.txt and its kin: what is listed is for all
MAX_TEXT = 200_000  # characters of a page that are searched
MAX_CHANGES = 200_000
MAX_ABSENT = 100_000
ABSENT_SECONDS = 30 * 24 * 3600.0  # for which a URL that led to no page is asked for by every survey
LEAST_CHANGE = 0.1  # share of the words of a page without a date
FRESH_SECONDS = 60.0  # a date closer to the request is taken for the time of the request
EARLIEST = 662_688_000.0  # 1991: earlier dates, such as 1970, stand for none

# Documents; images, styles and scripts are parts of pages.
_DOCUMENTS = frozenset(
    {"text/html", "application/xhtml+xml", "text/plain", "text/markdown", "application/pdf"}
)
_FOLDER_PAGES = frozenset({"index.html", "index.htm", "index.php"})
_CLOSED = frozenset({"robots", "refused"})
_PASSING = frozenset({408, 425, 429})


# What an answer says about a page: it is closed to some, gone for good, or missing, perhaps for a moment.
Standing = Literal["shown", "closed", "gone", "missing", "unknown"]


def standing_of(page: Page) -> Standing:
    if page.error:
        return "closed" if page.error in _CLOSED else "unknown"
    if page.status == 304 or 200 <= page.status < 300:
        x_robots = ", ".join(value for name, value in page.headers if name == "x-robots-tag")
        if not page.digest or not read_may(x_robots, agent=EVERYBODY).index:
            return "closed"
        is_document = page.status == 304 or page.content_type in _DOCUMENTS
        return "shown" if is_document else "missing"
    if page.status == 410:
        return "gone"
    return "unknown" if page.status in _PASSING or page.status >= 500 else "missing"


class Before(Record, frozen=True):
    """A page of the index."""

    id: int
    title: str
    digest: bytes
    likeness: bytes  # as of the last real change: small changes add up
    modified: str  # as the server wrote it
    lastmod: float | None
    read: float  # when its content was last read, with that date
    seen: float
    missing: float | None
    missed: int | None
    text: str = ""  # as the last survey saw it; set only if the digest differs now


class Dating(Record, frozen=True):
    """Whether and when a page changed; `kind` is empty if there is nothing to publish."""

    kind: str  # "created", "updated" or ""
    at: float  # when it changed
    lastmod: float | None  # None if unknown


class Register:
    """Takes the parcels of one survey."""

    def __init__(self, survey: int, *, since: float | None) -> None:
        self._survey = survey
        self._since = since  # when all pages of the site were known; None: never

    def take(self, db: sqlite3.Connection, parcel: Parcel) -> None:
        """Writes a parcel within the caller's transaction."""
        told = Counter(kind for page in parcel.pages if (kind := self._take_page(db, page)))
        line_up(db, parcel.checkpoint.found)
        done = (*parcel.checkpoint.done, *(page.fingerprint for page in parcel.pages))
        db.executemany("INSERT OR REPLACE INTO todo VALUES (?, 0, NULL)", [(mark,) for mark in done])
        db.executemany("INSERT OR REPLACE INTO todo VALUES (?, ?, ?)", map(_todo_of, parcel.checkpoint.again))
        counts = (told[kind] for kind in ("created", "updated", "deleted"))
        db.execute(
            "UPDATE survey SET requests = requests + ?, pages = pages + ?, created = created + ?,"
            " updated = updated + ?, deleted = deleted + ? WHERE number = ?",
            (parcel.usage.requests, parcel.usage.pages, *counts, self._survey),
        )

    def _take_page(self, db: sqlite3.Connection, page: Page) -> str:
        """The kind of the change; "" for none."""
        row = _row_of(db, page)
        standing, kind = standing_of(page), ""
        if standing == "shown":
            db.execute("DELETE FROM absent WHERE mark = ?", (page.fingerprint,))
            return self._show(db, page, row)
        if standing == "closed":
            if row:
                _drop(db, row.id)
            db.execute("DELETE FROM change WHERE mark = ?", (page.fingerprint,))
        elif row and standing != "unknown":
            kind = self._miss(db, page, row, is_gone=standing == "gone")
        if not 200 <= page.status < 300:  # what is there is no document: it will hardly become one
            _note_absent(db, page)
        return kind

    def _show(self, db: sqlite3.Connection, page: Page, row: Before | None) -> str:
        if page.status == 304:  # if it was hidden meanwhile, its content is no longer known
            seen = (page.fetched, page.fingerprint)
            db.execute("UPDATE page SET seen = ?, missing = NULL, missed = NULL WHERE mark = ?", seen)
            return ""
        dating = date_again(row, page) if row else date_new(page, since=self._since)
        _write(db, page, dating, row)
        is_first_sight = row is None and self._since is None
        if dating.kind:
            # A change dated before the first survey could have been published ever since.
            told = dating.at if is_first_sight else page.fetched
            _tell(db, page, dating.kind, title=page.title, at=dating.at, told=told)
        return "" if is_first_sight else dating.kind  # the first survey finds pages, not changes

    def _miss(self, db: sqlite3.Connection, page: Page, row: Before, *, is_gone: bool) -> str:
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


def _note_absent(db: sqlite3.Connection, page: Page) -> None:
    """Notes a URL that has no row: the next surveys ask for it too."""
    db.execute(
        "INSERT OR IGNORE INTO absent SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS"
        " (SELECT 1 FROM page WHERE mark = ?1) AND (SELECT count(*) FROM absent) < ?5",
        (page.fingerprint, page.url, page.depth, page.fetched, MAX_ABSENT),
    )


def line_up_absent(db: sqlite3.Connection, *, now: float) -> None:
    """Adds the URLs that led to no page before to the survey's frontier, but for those of long ago."""
    db.execute("DELETE FROM absent WHERE since < ?", (now - ABSENT_SECONDS,))
    line_up(db, (Target(url, depth) for url, depth in db.execute("SELECT url, depth FROM absent").fetchall()))


def _row_of(db: sqlite3.Connection, page: Page) -> Before | None:
    found = db.execute(
        "SELECT id, title, digest, likeness, modified, lastmod, read, seen, missing, missed FROM page"
        " WHERE mark = ?",
        (page.fingerprint,),
    ).fetchone()
    if found is None:
        return None
    row = Before(*found)
    if page.digest == row.digest:
        return row
    (text,) = db.execute("SELECT text FROM words WHERE rowid = ?", (row.id,)).fetchone()
    return msgspec.structs.replace(row, text=unspaced(text))


def line_up(db: sqlite3.Connection, targets: Iterable[Target]) -> None:
    """Adds URLs to the survey's frontier; known ones stay as they are."""
    db.executemany("INSERT OR IGNORE INTO todo VALUES (?, ?, ?)", map(_todo_of, targets))


def _todo_of(target: Target) -> tuple[int, int, bytes]:
    return fingerprint(target.url), target.depth, msgspec.msgpack.encode(target)


def _write(db: sqlite3.Connection, page: Page, dating: Dating, row: Before | None) -> None:
    """Adds a page, or renews it; its likeness stays that of the last real change."""
    folder, _, name = page.url.rpartition("/")
    cursor = db.execute(
        "INSERT INTO page (mark, url, depth, title, canonical, folder, digest, likeness, etag, modified,"
        " lastmod, created, read, seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (mark) DO UPDATE SET title = excluded.title, canonical = excluded.canonical,"
        " digest = excluded.digest, likeness = excluded.likeness, etag = excluded.etag,"
        " modified = excluded.modified, lastmod = excluded.lastmod, read = excluded.read,"
        " seen = excluded.seen, missing = NULL, missed = NULL",
        (
            page.fingerprint,
            page.url,
            page.depth,
            page.title,
            _canonical_of(page),
            fingerprint(f"{folder}/") if name in _FOLDER_PAGES else None,
            page.digest,
            page.likeness if row is None or dating.kind else row.likeness,
            page.etag,
            page.modified,
            dating.lastmod,
            dating.at if dating.kind == "created" else None,
            page.fetched,
            page.fetched,
        ),
    )
    if row is None or page.digest != row.digest:
        id = row.id if row else cursor.lastrowid
        texts = (page.title, "\n".join(page.headings), page.text[:MAX_TEXT])
        db.execute("DELETE FROM words WHERE rowid = ?", (id,))
        db.execute(
            "INSERT INTO words (rowid, title, headings, text) VALUES (?, ?, ?, ?)", (id, *map(spaced, texts))
        )


def _canonical_of(page: Page) -> int:
    """The mark of the page of the same site that this one names as canonical; its own otherwise."""
    if "canonical" in page.links.rels:
        for link in page.links:
            if "canonical" in link.rel.split() and site_of(link.url) == site_of(page.url):
                return fingerprint(link.url)
    return page.fingerprint


def _drop(db: sqlite3.Connection, id: int) -> None:
    db.execute("DELETE FROM words WHERE rowid = ?", (id,))
    db.execute("DELETE FROM page WHERE id = ?", (id,))


def _tell(db: sqlite3.Connection, page: Page, kind: str, *, title: str, at: float, told: float) -> None:
    db.execute(
        "INSERT INTO change (mark, url, title, kind, at, told) VALUES (?, ?, ?, ?, ?, ?)",
        (page.fingerprint, page.url, title, kind, at, told),
    )


def forget_changes(db: sqlite3.Connection, may_show: Callable[[str], bool]) -> None:
    """Deletes the oldest changes, and those of deleted pages that would be hidden: no survey sees these."""
    urls = db.execute("SELECT DISTINCT mark, url FROM change WHERE kind = 'deleted'").fetchall()
    hidden = [(mark,) for mark, url in urls if not may_show(url)]
    db.executemany("DELETE FROM change WHERE mark = ?", hidden)
    db.execute("DELETE FROM change WHERE n <= (SELECT max(n) FROM change) - ?", (MAX_CHANGES,))


# -- when a page changed -----------------------------------------------------------------------------------


def date_of(modified: str, fetched: float) -> float | None:
    """The time in a server's Last-Modified; None if it is missing or not credible."""
    try:
        time = parsedate_to_datetime(modified).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return time if EARLIEST <= time <= fetched - FRESH_SECONDS else None


def date_new(page: Page, *, since: float | None) -> Dating:
    """Dates a page that is not in the index; `since` is when all pages of the site were known, if ever."""
    date = date_of(page.modified, page.fetched)
    if since is None:
        # Its creation is unknown, but the server may know its last change.
        return Dating("updated" if date else "", date or page.fetched, date)
    at = date if date and date > since else page.fetched
    return Dating("created", at, date or page.fetched)


def date_again(before: Before, page: Page) -> Dating:
    if page.digest == before.digest:
        return Dating("", page.fetched, before.lastmod)
    date = date_of(page.modified, page.fetched)
    # A date of just now may be the time of the request, but not if the page had a date of its own before.
    has_date = date is not None or date_of(before.modified, before.read) is not None
    is_dated = bool(page.modified) and page.modified != before.modified and has_date
    if not (is_dated or _is_other(before, page)):
        return Dating("", page.fetched, before.lastmod)
    at = date if date and date > before.seen else page.fetched
    return Dating("updated", at, at)


def _is_other(before: Before, page: Page) -> bool:
    if page.title != before.title or change_between(before.likeness, page.likeness) >= LEAST_CHANGE:
        return True
    # A likeness of few words says little.
    old, new = set(before.text.split()), set(page.text.split())
    return len(old ^ new) >= LEAST_CHANGE * (len(old) + len(new))
